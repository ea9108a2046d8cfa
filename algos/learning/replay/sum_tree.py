"""Sum tree of integers for exact proportional sampling (Schaul et al. 2016), in C or NumPy.

Integer sums have no rounding error, so a tree after any number of updates equals one rebuilt from its leaves.
"""

import numpy as np
from numpy.typing import NDArray

from paddock.algos.learning.replay import library
from paddock.algos.learning.replay.random_integers import multiply_high

LARGEST = 2**32 - 1  # possible leaf


def tree_bytes(capacity: int) -> int:
    """Return the bytes of memory of a tree."""
    return 16 << max(capacity - 1, 0).bit_length()


class SumTree:
    """Sum tree over `capacity` integer leaves from 0 to LARGEST; leaves of 0 are never sampled."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._size = 1 << max(capacity - 1, 0).bit_length()
        self._nodes = np.zeros(2 * self._size, np.uint64)  # node k is the sum of 2 k and 2 k + 1; 1 is the root
        self._compiled = library.usable()

    @property
    def total(self) -> int:
        """Sum of all leaves."""
        return int(self._nodes[1])

    @property
    def leaves(self) -> NDArray[np.uint32]:
        """Leaves [capacity]."""
        return self._nodes[self._size : self._size + self._capacity].astype(np.uint32)

    def __getitem__(self, at: NDArray[np.int64]) -> NDArray[np.uint32]:
        return self._nodes[self._size + at].astype(np.uint32)

    def __setitem__(self, at: NDArray[np.int64], leaves: NDArray[np.uint32]) -> None:
        """Set leaves [M]; the last value counts for repeated leaves."""
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
        """Set the first leaves, and the others to 0."""
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
        """Sample leaves [U, B] with random words [U, B]; column b is from the b-th of B equal ranges of the sum."""
        assert self._nodes[1] > 0, "the tree is empty"
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
