"""Many arrays or choices at once into rows, which takes less for each than one by one."""

from collections.abc import Callable, Sequence
from operator import index
from typing import Any

import numpy as np

from paddock.envs.spaces.parts import Array, Choice, NumbersPart, Part, Views, finder

Fill = Callable[[Any, Sequence[Any]], None]  # (rows as an index or a slice, an element for each)
DOUBTS = (AttributeError, TypeError, ValueError, LookupError)  # what a fill raises of elements that it does not take

LARGE = 1024  # bytes of a part; above, a copy costs more than a step of Python


def filler(part: Part, view: Views) -> Fill | None:
    """Return a function that writes an element into each of many rows; None for structures, and for images.

    It takes arrays of the declared shape, and of a dtype that can be cast, and whole numbers. For everything else it
    raises one of DOUBTS: the writer says what is wrong. Elements before it may have been written.
    """
    if isinstance(part, NumbersPart):
        return _fill_numbers(part, view)
    return _fill_choices(part, view) if isinstance(part, Choice) else None


def _fill_numbers(part: NumbersPart, view: Array) -> Fill | None:
    shape, dtype = view.shape[1:], np.dtype(view.dtype.str)
    if not shape or dtype.itemsize * int(np.prod(shape)) > LARGE:
        return None
    first, rest, straight = {shape[0]}, shape[1:], view.flags.c_contiguous
    casting: Any = "same_kind" if dtype.kind == "f" else "safe"  # by which integers wrap around
    has_other = finder(part, len(view)) if part.kind == "choices" else None

    def fill(rows: Any, elements: Sequence[Any]) -> None:
        if set(map(len, elements)) != first:  # or one's surplus could fill what another lacks
            raise ValueError
        # Joined end to end, and not stacked: a third of the time, and a wrong shape does not broadcast.
        if straight and isinstance(rows, slice):
            each = view[rows]
            np.concatenate(elements, out=each.reshape(-1, *rest), casting=casting)
        else:
            joined = np.concatenate(elements, dtype=dtype, casting=casting)
            if joined.shape[1:] != rest:
                raise ValueError
            view[rows] = each = joined.reshape(-1, *shape)
        if has_other is not None and has_other(each):
            part.fit(each, each.shape[:1])  # says which

    return fill


def _fill_choices(part: Choice, view: Array) -> Fill:
    low, high = part.start, part.start + part.size - 1

    def fill(rows: Any, elements: Sequence[Any]) -> None:
        chosen = list(map(index, elements))
        if min(chosen) < low or max(chosen) > high:
            raise ValueError
        view[rows] = chosen

    return fill
