"""Many elements at once into rows, part by part: less for each than one by one, and only where all is as declared."""

from collections.abc import Callable, Sequence
from operator import index, itemgetter
from typing import Any

import numpy as np

from paddock.envs.spaces.parts import Array, Choice, NumbersPart, Part, Views, finder
from paddock.envs.spaces.structures import Record

Fill = Callable[[Any, Sequence[Any]], None]  # (rows as an index or a slice, an element for each)
DOUBTS = (AttributeError, TypeError, ValueError, LookupError)  # what a fill raises of elements that it does not take

LARGE = 1024  # bytes of a part; above, a copy costs more than a step of Python


def filler(part: Part, views: Views) -> Fill | None:
    """Return a function that writes an element into each of many rows; None for what varies in size, and for images.

    It takes arrays of the declared shape and dtype, or of a dtype that this one includes, and whole numbers. Of all
    else it raises one of DOUBTS, good or bad: the writer says which. What it has written by then stays.
    """
    if isinstance(part, Record):
        return _fill_record(part, views)
    if isinstance(part, NumbersPart):
        return _fill_numbers(part, views)
    return _fill_choices(part, views) if isinstance(part, Choice) else None


def _fill_record(part: Record, views: Views) -> Fill | None:
    each = views if isinstance(views, tuple) else tuple(views.values())
    fills = [filler(inner, view) for inner, view in zip(part.parts.values(), each, strict=True)]
    if None in fills:
        return None
    inside = [(itemgetter(key), fill) for key, fill in zip(part.parts, fills, strict=True) if fill is not None]
    size = part.size

    def fill(rows: Any, elements: Sequence[Any]) -> None:
        if size is not None and set(map(len, elements)) != {size}:
            raise ValueError
        for get, write in inside:
            write(rows, list(map(get, elements)))

    return fill


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
