"""Sum tree of whole numbers: leaves drawn in proportion to them, exactly, in C or in NumPy (Schaul et al. 2016).

Sums of whole numbers have no error, so a tree that was changed a million times is the tree that is built of its leaves.
"""

import numpy as np
from numpy.typing import NDArray

from paddock.algos.learning.replay import library
from paddock.algos.learning.replay.random_integers import multiply_high

LARGEST = 2**32 - 1  # that a leaf may be


def tree_bytes(capacity: int) -> int:
    """Return how much memory a tree takes."""
    return 16 << max(capacity - 1, 0).bit_length()


class SumTree:
    """Leaves 0 .. capacity - 1, whole numbers up to LARGEST; of 0 is never drawn."""

    def __init__(self, capacity: int) -> None:
        """Make all leaves 0; 16 bytes each, up to the next power of two."""
        self._capacity = capacity
        self._size = 1 << max(capacity - 1, 0).bit_length()
        self._nodes = np.zeros(2 * self._size, np.uint64)  # node k is the sum of 2 k and 2 k + 1, 1 that of all
        self._compiled = library.usable()

    @property
    def total(self) -> int:
        """The sum of all leaves."""
        return int(self._nodes[1])

    @property
    def leaves(self) -> NDArray[np.uint32]:
        """[capacity]"""
        return self._nodes[self._size : self._size + self._capacity].astype(np.uint32)

    def __getitem__(self, at: NDArray[np.int64]) -> NDArray[np.uint32]:
        """Return leaves."""
        return self._nodes[self._size + at].astype(np.uint32)

    def __setitem__(self, at: NDArray[np.int64], leaves: NDArray[np.uint32]) -> None:
        """Set leaves [M] to numbers [M]; of several for one leaf, the last one counts."""
        assert at.shape == leaves.shape, (at.shape, leaves.shape)
        if self._compiled is not None:
            at, leaves = np.ascontiguousarray(at, np.int64), np.ascontiguousarray(leaves, np.uint32)
            self._compiled.set_leaves(self._address, self._size, at.ctypes.data, leaves.ctypes.data, at.size)
            return
        nodes, node = self._nodes, self._size + at.reshape(-1)
        nodes[node] = leaves.reshape(-1)
        for _ in range(self._size.bit_length() - 1):
            node = node >> 1
            nodes[node] = nodes[2 * node] + nodes[2 * node + 1]

    def load(self, leaves: NDArray[np.uint32]) -> None:
        """Set the first leaves, and all others to 0."""
        nodes, size = self._nodes, self._size
        nodes[size : size + len(leaves)] = leaves
        nodes[size + len(leaves) :] = 0
        if self._compiled is not None:
            self._compiled.sum_leaves(self._address, size)
            return
        while size > 1:
            nodes[size // 2 : size] = nodes[size : 2 * size : 2] + nodes[size + 1 : 2 * size : 2]
            size //= 2

    def draw(self, words: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Draw leaves [U, B] by words [U, B]: number b of each row from the b-th of B equal parts of the sum."""
        assert self._nodes[1] > 0, "there is nothing to be drawn"
        words, batch = np.ascontiguousarray(words), words.shape[-1]
        if self._compiled is not None:
            out = np.empty(words.shape, np.int64)
            self._compiled.draw_leaves(self._address, self._size, words.ctypes.data, words.size, batch, out.ctypes.data)
            return out
        nodes, count, part = self._nodes, np.uint64(batch), np.arange(batch + 1, dtype=np.uint64)
        bounds = part * (nodes[1] // count) + part * (nodes[1] % count) // count
        left = bounds[:-1] + multiply_high(words, np.diff(bounds))
        node = np.ones(words.shape, np.int64)
        for _ in range(self._size.bit_length() - 1):
            first = nodes[2 * node]
            second = left >= first
            left = np.where(second, left - first, left)
            node = 2 * node + second
        return node - self._size

    @property
    def _address(self) -> int:
        return int(self._nodes.ctypes.data)
