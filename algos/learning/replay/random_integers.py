"""Random integers below a bound from raw 64-bit words, identical in C and NumPy."""

import numpy as np
from numpy.typing import NDArray

from paddock.algos.common.keys import Stream
from paddock.algos.common.sample_blocks import BLOCK, SampleBlocks
from paddock.algos.learning.replay import library


def draw_words(seed: int, batch_size: int) -> SampleBlocks:
    """Return random words [batch_size] for each update, keyed by its number."""

    def draw(generator: np.random.Generator) -> NDArray[np.uint64]:
        return generator.bit_generator.random_raw(BLOCK * batch_size).reshape(BLOCK, batch_size)

    return SampleBlocks(seed, Stream.REPLAY, draw)


_HALF, _LOW = np.uint64(32), np.uint64(2**32 - 1)


def scale_words(words: NDArray[np.uint64], count: int, first: int = 0) -> NDArray[np.int64]:
    """Return first + (word * count) >> 64, exactly."""
    compiled = library.usable()
    if compiled is None:
        return np.int64(first) + multiply_high(words, np.uint64(count)).view(np.int64)
    words = np.ascontiguousarray(words)
    out = np.empty(words.shape, np.int64)
    compiled.scale_words(words.ctypes.data, words.size, count, first, out.ctypes.data)
    return out


def multiply_high(words: NDArray[np.uint64], counts: NDArray[np.uint64] | np.uint64) -> NDArray[np.uint64]:
    """Return (word * count) >> 64 of 64-bit integers, exactly."""
    high, low = words >> _HALF, words & _LOW
    count_high, count_low = counts >> _HALF, counts & _LOW
    middle = high * count_low + (low * count_low >> _HALF)
    other = low * count_high + (middle & _LOW)
    return high * count_high + (middle >> _HALF) + (other >> _HALF)
