"""Rows as numbers for dense networks: what each leaf becomes, laid out once."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from paddock.envs.spaces.parts import Array, Leaf

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
        shown = [(leaf, width) for leaf in leaves if (width := width_of(leaf))]
        self.width = sum(width for _, width in shown)
        self.is_real = np.concatenate([np.zeros(0, np.bool_), *[np.full(n, leaf.kind == "real") for leaf, n in shown]])
        ends = np.cumsum([width for _, width in shown]).tolist()
        # By the name of a field that has a leaf's numbers: where its features go, and how.
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
        """Map rows as bytes [B, itemsize], uint8 and contiguous, to [B, F] float32; a view where nothing changes."""
        if self._straight:
            return octets.view(np.float32)
        out, numbers = np.empty((len(octets), self.width), np.float32), octets.view(self._numbers)[:, 0]
        for name, place, spread in self._steps:
            spread(numbers[name], out[:, place])
        return out


def numbers_of(leaf: Leaf, octets: Array) -> Array:
    """View a leaf's numbers [B, n] in rows of bytes [B, itemsize]."""
    dtype = np.dtype(leaf.dtype)
    return octets[:, leaf.offset : leaf.offset + leaf.count * dtype.itemsize].view(dtype)


def width_of(leaf: Leaf) -> int:
    """Return the number of features of a leaf."""
    if leaf.kind == "text":
        return 0
    if leaf.kind in ("choice", "tag", "length"):
        return leaf.count * leaf.sizes[0]
    # Of no choices, a MultiDiscrete([]), there is nothing to divide by.
    return leaf.count // max(len(leaf.sizes), 1) * sum(leaf.sizes) if leaf.kind == "choices" else leaf.count


def divisor_of(leaf: Leaf) -> int:
    """Return by what a leaf's numbers are divided as they become features."""
    if leaf.kind == "pixels":
        return leaf.greatest
    return max(leaf.sizes[0] - 1, 1) if leaf.kind == "links" else 1


def _spread(leaf: Leaf) -> Spread:
    """Return the function that writes the features of a leaf's numbers."""
    if leaf.kind in ("choice", "choices", "tag"):
        sizes = np.array(leaf.sizes)
        repeats = leaf.count // len(sizes)
        value = np.tile(
            np.concatenate([np.arange(n) + start for n, start in zip(sizes, leaf.starts, strict=True)]), repeats
        )
        if len(sizes) == repeats == 1:
            return lambda numbers, out: _copy(
                numbers == value, out
            )  # a comparison into floats takes three times as long
        own = np.tile(np.repeat(np.arange(len(sizes)), sizes), repeats)
        place = np.repeat(np.arange(repeats) * len(sizes), sizes.sum()) + own
        return lambda numbers, out: _copy(numbers.take(place, axis=1) == value, out)
    if leaf.kind == "length":
        items = np.arange(leaf.sizes[0])
        return lambda numbers, out: np.greater(numbers[:, :, None], items, out=out.reshape(*numbers.shape, -1))
    return partial(_divide, divisor_of(leaf)) if leaf.kind in ("pixels", "links") else _copy


def _divide(by: int, numbers: Array, out: Array) -> None:
    np.divide(numbers, by, out=out, dtype=np.float32)


def _copy(numbers: Array, out: Array) -> None:
    out[...] = numbers
