"""Convert rows to the features of dense networks, by a mapping that is laid out once."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from paddock.envs.spaces.codecs import Array, Leaf

Spread = Callable[[Array, Array], object]  # (a leaf's numbers [B, n], output for its features [B, width])


class Features:
    """Features of the leaves of rows, concatenated in the order of the leaves.

    Real numbers are copied, pixels scaled to [0, 1], choices one-hot encoded, bits 0 or 1; a length becomes one bit per
    item that is present; text has no features.

    Attributes:
        width: F, number of features.
        is_real: [F] bool, features that are real numbers (and can be normalized).
    """

    def __init__(self, leaves: Sequence[Leaf], itemsize: int) -> None:
        """Lay out the features of `leaves` in rows of `itemsize` bytes."""
        shown = [(leaf, width) for leaf in leaves if (width := width_of(leaf))]
        self.width = sum(width for _, width in shown)
        self.is_real = np.concatenate([np.zeros(0, np.bool_), *[np.full(n, leaf.kind == "real") for leaf, n in shown]])
        ends = np.cumsum([width for _, width in shown]).tolist()
        # For each leaf: the field of its numbers, the slice of its features, and the conversion.
        self._steps = [
            (str(k), slice(end - width, end), _spread(leaf))
            for k, ((leaf, width), end) in enumerate(zip(shown, ends, strict=True))
        ]
        self._numbers = np.dtype(
            {
                "names": [name for name, *_ in self._steps],
                "formats": [(leaf.dtype, (leaf.count,)) for leaf, _ in shown],
                "offsets": [leaf.offset for leaf, _ in shown],
                "itemsize": itemsize,
            }
        )
        reals = [leaf for leaf in leaves if leaf.kind == "real" and leaf.dtype == "<f4"]
        self._straight = len(reals) == len(leaves) and itemsize == 4 * self.width

    def __call__(self, octets: Array) -> Array:
        """Map contiguous uint8 rows [B, itemsize] to [B, F] float32; a view if no conversion is needed."""
        if self._straight:
            return octets.view(np.float32)
        out, numbers = np.empty((len(octets), self.width), np.float32), octets.view(self._numbers)[:, 0]
        for name, columns, spread in self._steps:
            spread(numbers[name], out[:, columns])
        return out


def numbers_of(leaf: Leaf, octets: Array) -> Array:
    """Return a view of a leaf's numbers [B, n] in rows of bytes [B, itemsize]."""
    dtype = np.dtype(leaf.dtype)
    return octets[:, leaf.offset : leaf.offset + leaf.count * dtype.itemsize].view(dtype)


def width_of(leaf: Leaf) -> int:
    """Return the number of features of a leaf."""
    if leaf.kind == "text":
        return 0
    if leaf.kind in ("choice", "length"):
        return leaf.count * leaf.sizes[0]
    # An empty MultiDiscrete([]) has no sizes to divide by.
    return leaf.count // max(len(leaf.sizes), 1) * sum(leaf.sizes) if leaf.kind == "choices" else leaf.count


def divisor_of(leaf: Leaf) -> int:
    """Return the divisor that scales a leaf's numbers to features."""
    return leaf.greatest if leaf.kind == "pixels" else 1


def _spread(leaf: Leaf) -> Spread:
    """Return the function that writes the features of a leaf's numbers."""
    if leaf.kind in ("choice", "choices"):
        sizes = np.array(leaf.sizes)
        repeats = leaf.count // len(sizes)
        value = np.tile(
            np.concatenate([np.arange(n) + start for n, start in zip(sizes, leaf.starts, strict=True)]), repeats
        )
        if len(sizes) == repeats == 1:
            return lambda numbers, out: _copy(numbers == value, out)  # comparing into floats takes three times as long
        own = np.tile(np.repeat(np.arange(len(sizes)), sizes), repeats)
        source = np.repeat(np.arange(repeats) * len(sizes), sizes.sum()) + own
        return lambda numbers, out: _copy(numbers.take(source, axis=1) == value, out)
    if leaf.kind == "length":
        items = np.arange(leaf.sizes[0])
        return lambda numbers, out: np.greater(numbers[:, :, None], items, out=out.reshape(*numbers.shape, -1))
    return partial(_divide, divisor_of(leaf)) if leaf.kind == "pixels" else _copy


def _divide(by: int, numbers: Array, out: Array) -> None:
    np.divide(numbers, by, out=out, dtype=np.float32)


def _copy(numbers: Array, out: Array) -> None:
    out[...] = numbers
