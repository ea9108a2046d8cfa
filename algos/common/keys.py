"""Randomness keyed by (seed, stream, iteration, index): the same samples on every worker, in any order.

The generator is Philox, counter-based (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
"""

import enum
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


class Stream(enum.IntEnum):
    """Purpose of random samples; different streams are independent."""

    INITIAL = 0
    NOISE = 1
    EPISODE = 2
    OBSERVE = 3
    EVALUATION = 4
    FRESH = 6  # episodes of `python -m paddock.evaluate`, after the run
    ROLLOUT = 7  # episodes of rollouts
    ACTION = 8
    SHUFFLE = 9  # of minibatches
    MUTATION = 10  # of environments
    GROUND = 11  # terrain that all episodes of an environment share
    MEMBER = 12  # seeds and hyperparameters of a population's members
    REPLAY = 13  # sampled transitions
    UPDATE = 14  # noise of updates: sampled actions and noisy networks
    OPPONENT = 15  # self-play matchups
    EMITTER = 16  # members of quality diversity
    CENTROIDS = 17  # of a CVT archive


def keyed_generator(seed: int, stream: Stream, iteration: int = 0, index: int = 0) -> np.random.Generator:
    """Return a generator that depends only on its key; each key has 2^128 blocks."""
    return np.random.Generator(np.random.Philox(key=[seed, stream], counter=[0, 0, index, iteration]))


def episode_seed(seed: int, stream: Stream, iteration: int, index: int) -> int:
    """Return a seed in [0, 2^31) for `env.reset`."""
    return int(keyed_generator(seed, stream, iteration, index).integers(2**31))


@dataclass(frozen=True)
class PhiloxNoise:
    """Source of standard normal vectors [P] float32, generated from their keys on every call."""

    seed: int
    size: int

    def __call__(self, iteration: int, index: int) -> NDArray[np.float32]:
        """Return the vector of an iteration and index."""
        generator = keyed_generator(self.seed, Stream.NOISE, iteration, index)
        return generator.standard_normal(self.size, dtype=np.float32)
