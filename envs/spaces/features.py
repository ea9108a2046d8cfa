"""Rows as numbers for dense networks: what each leaf becomes, laid out once."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from envs.spaces.parts import Array, Leaf

Spread = Callable[[Array, Array], object]  # (a leaf's numbers [B, n], where its features go [B, width])


class Features:
    """The features of some leaves of rows, side by side in the order of the leaves.

    Numbers as they are, pixels between 0 and 1, choices one-hot, bits as 0 and 1, a length as one bit for each item
    that there is; text has none.

    Attributes:
        width: F, how many there are.
        is_real: [F] bool, which are real numbers, and thus worth normalizing.
    """

    def __init__(self, leaves: Sequence[Leaf], itemsize: int) -> None:
        """Lay the features out.

        Args:
            itemsize: bytes of a row.
        """
        self._itemsize = itemsize
        self._steps: list[tuple[Leaf, int, int, Spread]] = []  # a leaf, its features from and to, and how
        self.width = 0
        for leaf in leaves:
            width = _width(leaf)
            if width:
                self._steps.append((leaf, self.width, self.width + width, _spread(leaf)))
            self.width += width
        self.is_real = np.zeros(self.width, np.bool_)
        for leaf, start, stop, _ in self._steps:
            self.is_real[start:stop] = leaf.kind == "real"
        reals = [leaf for leaf in leaves if leaf.kind == "real" and leaf.dtype == "<f4"]
        self._straight = len(reals) == len(leaves) and itemsize == 4 * self.width

    def __call__(self, octets: Array) -> Array:
        """Map rows as bytes [B, itemsize], uint8 and contiguous, to [B, F] float32; a view where nothing changes."""
        if self._straight:
            return octets.view(np.float32)
        out = np.empty((len(octets), self.width), np.float32)
        for leaf, start, stop, spread in self._steps:
            spread(numbers_of(leaf, octets), out[:, start:stop])
        return out


def numbers_of(leaf: Leaf, octets: Array) -> Array:
    """View a leaf's numbers [B, n] in rows of bytes [B, itemsize]."""
    dtype = np.dtype(leaf.dtype)
    shape = len(octets), int(np.prod(leaf.shape))
    return np.ndarray(shape, dtype, octets.data, leaf.offset, (octets.strides[0], dtype.itemsize))


def _width(leaf: Leaf) -> int:
    """How many features a leaf has."""
    count = int(np.prod(leaf.shape))
    if leaf.kind == "text":
        return 0
    if leaf.kind in ("choice", "tag", "length"):
        return count * leaf.sizes[0]
    return count // len(leaf.sizes) * sum(leaf.sizes) if leaf.kind == "choices" else count


def _spread(leaf: Leaf) -> Spread:
    """What writes the features of a leaf's numbers."""
    if leaf.kind in ("choice", "choices", "tag"):
        sizes = np.array(leaf.sizes)
        repeats = int(np.prod(leaf.shape)) // len(sizes)
        value = np.tile(
            np.concatenate([np.arange(n) + start for n, start in zip(sizes, leaf.starts, strict=True)]), repeats
        )
        if len(sizes) == repeats == 1:
            return lambda numbers, out: np.equal(numbers, value, out=out)
        own = np.tile(np.repeat(np.arange(len(sizes)), sizes), repeats)
        place = np.repeat(np.arange(repeats) * len(sizes), sizes.sum()) + own
        return lambda numbers, out: np.equal(numbers[:, place], value, out=out)
    if leaf.kind == "length":
        items = np.arange(leaf.sizes[0])
        return lambda numbers, out: np.greater(numbers[:, :, None], items, out=out.reshape(*numbers.shape, -1))
    if leaf.kind == "pixels":
        return partial(_divide, 255)
    return partial(_divide, max(leaf.sizes[0] - 1, 1)) if leaf.kind == "links" else _copy


def _divide(by: int, numbers: Array, out: Array) -> None:
    np.divide(numbers, by, out=out, dtype=np.float32)


def _copy(numbers: Array, out: Array) -> None:
    out[...] = numbers
