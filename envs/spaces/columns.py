"""Write many arrays or choices into rows at once, which is faster than one by one."""

from collections.abc import Callable, Sequence
from operator import index
from typing import Any

import numpy as np

from paddock.envs.spaces.codecs import Array, Codec, DiscreteCodec, NumericCodec, Views, out_of_range_check

Fill = Callable[[Any, Sequence[Any]], None]  # (rows as an index or a slice, an element for each)
FILL_ERRORS = (
    AttributeError,
    TypeError,
    ValueError,
    LookupError,
)  # what a fill raises of elements that it does not take

LARGE = 1024  # bytes per element, above which the copy itself dominates


def filler(codec: Codec, view: Views) -> Fill | None:
    """Return a function that writes one element into each of many rows; None for structures and images.

    It takes arrays of the declared shape and a castable dtype, and integers. For other elements it raises one of
    FILL_ERRORS, possibly after writing some; the codec's writer then reports the cause.
    """
    if isinstance(codec, NumericCodec):
        return _fill_numbers(codec, view)
    return _fill_choices(codec, view) if isinstance(codec, DiscreteCodec) else None


def _fill_numbers(codec: NumericCodec, view: Array) -> Fill | None:
    shape, dtype = view.shape[1:], np.dtype(view.dtype.str)
    if not shape or dtype.itemsize * int(np.prod(shape)) > LARGE:
        return None
    first, rest, straight = {shape[0]}, shape[1:], view.flags.c_contiguous
    casting: Any = "same_kind" if dtype.kind == "f" else "safe"  # with which integers would wrap around
    has_other = out_of_range_check(codec) if codec.kind == "choices" else None

    def fill(rows: Any, elements: Sequence[Any]) -> None:
        if set(map(len, elements)) != first:  # else one element's surplus could fill another's gap
            raise ValueError
        # Concatenating takes a third of the time of stacking, and a wrong shape does not broadcast.
        if straight and isinstance(rows, slice):
            each = view[rows]
            np.concatenate(elements, out=each.reshape(-1, *rest), casting=casting)
        else:
            joined = np.concatenate(elements, dtype=dtype, casting=casting)
            if joined.shape[1:] != rest:
                raise ValueError
            view[rows] = each = joined.reshape(-1, *shape)
        if has_other is not None and has_other(each):
            codec.convert(each, each.shape[:1])  # names the element

    return fill


def _fill_choices(codec: DiscreteCodec, view: Array) -> Fill:
    low, high = codec.start, codec.start + codec.size - 1

    def fill(rows: Any, elements: Sequence[Any]) -> None:
        chosen = list(map(index, elements))
        if min(chosen) < low or max(chosen) > high:
            raise ValueError
        view[rows] = chosen

    return fill
