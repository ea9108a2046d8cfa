"""Sparse features: the columns and values of those that are not zero.

Choices are one-hot encoded, so about one in seven of a gridworld's features is not zero.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from paddock.envs.spaces.codecs import Array, Leaf
from paddock.envs.spaces.features import Features, divisor_of, width_of

SHARE = 4  # smallest ratio of features to dense numbers at which sparse features pay off
FEWEST = 64  # features below which they do not
TYPES = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8")  # of features.h, as are KINDS
KINDS = ("one-hot", "scaled", "length")
NUMBER = np.dtype(  # `struct number` of features.h
    [("start", "i8"), *((name, "i4") for name in ("offset", "first", "size", "kind", "type")), ("by", "f4")]
)


@dataclass(frozen=True, eq=False)
class SparseRows:
    """R rows of numbers in compressed sparse row (CSR) form."""

    starts: NDArray[np.int64]  # [R + 1], start of each row
    index: NDArray[np.uint16]  # [numbers], columns, rising in each row
    value: NDArray[np.float32] | None  # [numbers]; None: all are 1

    @classmethod
    def of(cls, numbers: Array, ones: bool = False) -> "SparseRows":
        """Return the sparse form of a matrix [R, F]; with `ones`, all entries are 0 or 1."""
        rows, index = np.nonzero(numbers)
        starts = np.searchsorted(rows, np.arange(len(numbers) + 1))
        return cls(starts.astype(np.int64), index.astype(np.uint16), None if ones else numbers[rows, index])

    def __len__(self) -> int:
        return len(self.starts) - 1

    def head(self, count: int) -> "SparseRows":
        """Return the first rows."""
        return SparseRows(self.starts[: count + 1], self.index, self.value)

    def part(self, rows: slice) -> "SparseRows":
        """Return consecutive rows as views."""
        return SparseRows(self.starts[rows.start : rows.stop + 1], self.index, self.value)

    def pick(self, rows: NDArray[np.int64]) -> "SparseRows":
        """Return chosen rows in the given order."""
        counts = (self.starts[1:] - self.starts[:-1])[rows]
        at = np.concatenate([np.arange(self.starts[r], self.starts[r + 1]) for r in rows]).astype(np.int64)
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return SparseRows(starts, self.index[at], None if self.value is None else self.value[at])

    def row(self, number: int) -> tuple[NDArray[np.uint16], NDArray[np.float32]]:
        """Return the columns and the values of a row."""
        at = slice(self.starts[number], self.starts[number + 1])
        index = self.index[at]
        return index, np.ones(len(index), np.float32) if self.value is None else self.value[at]


@dataclass(frozen=True)
class SparseFeatures:
    """Map from rows of bytes to the nonzero features of their leaves."""

    leaves: tuple[Leaf, ...]
    itemsize: int  # bytes of a row
    legal: int = -1  # offset of the legal-choice mask, in consecutive bytes; -1: no mask

    @classmethod
    def of(cls, leaves: Sequence[Leaf], itemsize: int, legal: int = -1) -> "SparseFeatures | None":
        """Return the map if most features are zeros, as those of choices and bits are; else None."""
        shown = tuple(leaf for leaf in leaves if width_of(leaf))
        width = sum(width_of(leaf) for leaf in shown)
        known = all(leaf.dtype.lstrip("<|").replace("b1", "u1") in TYPES for leaf in shown)
        full = sum(leaf.count for leaf in shown if leaf.kind in ("real", "pixels"))
        return cls(shown, itemsize, legal) if known and width >= max(FEWEST, SHARE * full) else None

    @cached_property
    def numbers(self) -> Array:
        """Return the offset and the feature of each number, in the order of the features."""
        found, first = [], 0
        for leaf in self.leaves:
            each = np.dtype(leaf.dtype).itemsize
            type_ = TYPES.index(leaf.dtype.lstrip("<|").replace("b1", "u1"))
            for k in range(leaf.count):
                offset = leaf.offset + k * each
                if leaf.kind in ("choice", "choices"):
                    own = k % len(leaf.sizes)
                    found.append((leaf.starts[own], offset, first, leaf.sizes[own], 0, type_, 1))
                    first += leaf.sizes[own]
                elif leaf.kind == "length":
                    found.append((0, offset, first, leaf.sizes[0], 2, type_, 1))
                    first += leaf.sizes[0]
                else:
                    found.append((0, offset, first, 1, 1, type_, divisor_of(leaf)))
                    first += 1
        return np.array(found, NUMBER)

    @cached_property
    def most(self) -> int:
        """Return the largest number of nonzero features in a row."""
        return int(np.where(self.numbers["kind"] == KINDS.index("length"), self.numbers["size"], 1).sum())

    @cached_property
    def ones(self) -> bool:
        """Return whether all nonzero features are 1."""
        return not (self.numbers["kind"] == KINDS.index("scaled")).any()

    def spread(self, octets: Array) -> Array:
        """Map rows of bytes [B, itemsize] to dense features [B, F]."""
        return self._features(octets)

    @cached_property
    def _features(self) -> Features:
        return Features(self.leaves, self.itemsize)
