"""Random samples by index, generated in blocks, since one keyed generator per sample would be slow."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.common.keys import Stream, keyed_generator

BLOCK = 64  # samples per generator


class SampleBlocks:
    """Sequence of samples; sample u depends only on the seed, the stream and u."""

    def __init__(self, seed: int, stream: Stream, draw: Callable[[np.random.Generator], NDArray[Any]]) -> None:
        self._seed, self._stream, self._draw = seed, stream, draw
        self._number, self._block = -1, np.zeros(0)

    def take(self, first: int, count: int) -> NDArray[Any]:
        """Return samples first .. first + count - 1, [count, ...]."""
        pieces, end = [], first + count
        while first < end:
            number, start = divmod(first, BLOCK)
            if number != self._number:
                self._block, self._number = self._draw(keyed_generator(self._seed, self._stream, number)), number
            pieces.append(self._block[start : start + end - first])
            first += len(pieces[-1])
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


class NormalBlocks:
    """Sequence of standard normal samples of any shape."""

    def __init__(self, seed: int, stream: Stream) -> None:
        self._seed, self._stream = seed, stream
        self._cached: tuple[tuple[int, ...], SampleBlocks] | None = None  # of the last shape

    def take(self, shape: tuple[int, ...], first: int, count: int) -> NDArray[np.float32]:
        """Return samples first .. first + count - 1, [count, *shape]."""
        if self._cached is None or self._cached[0] != shape:
            size = BLOCK, *shape
            blocks = SampleBlocks(
                self._seed, self._stream, lambda generator: generator.standard_normal(size, np.float32)
            )
            self._cached = shape, blocks
        return self._cached[1].take(first, count)
