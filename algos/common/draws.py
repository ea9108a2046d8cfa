"""Draws by number that are made many at a time: a generator for each would cost more than what is drawn."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.common.keys import Stream, keyed_generator

BLOCK = 64  # draws that one generator makes


class DrawBlocks:
    """Draw number u depends on the seed, the stream and u alone, in whatever portions draws are taken."""

    def __init__(self, seed: int, stream: Stream, draw: Callable[[np.random.Generator], NDArray[Any]]) -> None:
        """Args:
        draw: makes BLOCK draws, [BLOCK, ...].
        """
        self._seed, self._stream, self._draw = seed, stream, draw
        self._number, self._block = -1, np.zeros(0)

    def take(self, first: int, count: int) -> NDArray[Any]:
        """Return draws first .. first + count - 1, [count, ...]."""
        parts, end = [], first + count
        while first < end:
            number, start = divmod(first, BLOCK)
            if number != self._number:
                self._block, self._number = self._draw(keyed_generator(self._seed, self._stream, number)), number
            parts.append(self._block[start : start + end - first])
            first += len(parts[-1])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


class NormalBlocks:
    """Standard normal draws of a shape, by number like those of `DrawBlocks`."""

    def __init__(self, seed: int, stream: Stream) -> None:
        self._seed, self._stream = seed, stream
        self._made: tuple[tuple[int, ...], DrawBlocks] | None = None  # of the shape asked for last

    def take(self, shape: tuple[int, ...], first: int, count: int) -> NDArray[np.float32]:
        """Return draws first .. first + count - 1, [count, *shape]."""
        if self._made is None or self._made[0] != shape:
            lead = BLOCK, *shape
            drawn = DrawBlocks(self._seed, self._stream, lambda generator: generator.standard_normal(lead, np.float32))
            self._made = shape, drawn
        return self._made[1].take(first, count)
