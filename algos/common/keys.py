"""Randomness keyed by (seed, stream, iteration, index): the same samples on every worker, in any order.

The generator is Philox, counter-based (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
`TableNoise` is the shared table of Salimans et al. 2017 (arXiv:1703.03864), for very large networks.
"""

import enum
import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Stream(enum.IntEnum):
    """Purpose of random samples; different streams are independent."""

    INITIAL = 0
    NOISE = 1
    EPISODE = 2
    OBSERVE = 3
    EVALUATION = 4
    TABLE = 5
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


def keyed_generator(seed: int, stream: Stream, iteration: int = 0, index: int = 0) -> np.random.Generator:
    """Return a generator that depends only on its key; each key has 2^128 blocks."""
    return np.random.Generator(np.random.Philox(key=[seed, stream], counter=[0, 0, index, iteration]))


def episode_seed(seed: int, stream: Stream, iteration: int, index: int) -> int:
    """Return a seed in [0, 2^31) for `env.reset`."""
    return int(keyed_generator(seed, stream, iteration, index).integers(2**31))


class Noise(Protocol):
    """Source of standard normal vectors [P] float32."""

    def __call__(self, iteration: int, index: int) -> NDArray[np.float32]:
        """Return the vector of an iteration and index."""


@dataclass(frozen=True)
class PhiloxNoise:
    """Noise generated from its key on every call, without memory."""

    seed: int
    size: int

    def __call__(self, iteration: int, index: int) -> NDArray[np.float32]:
        """See `Noise.__call__`."""
        generator = keyed_generator(self.seed, Stream.NOISE, iteration, index)
        return generator.standard_normal(self.size, dtype=np.float32)


class TableNoise:
    """Noise read from one table that all processes of a machine share.

    Slices of different keys may overlap, which is negligible if the table is a thousand times longer than P.
    """

    def __init__(self, seed: int, size: int, table_size: int) -> None:
        """Map the table; build its file (4 bytes per entry, in the user's cache folder) if it is missing."""
        self.seed = seed
        self.size = size
        self.table = np.load(_table_file(seed, table_size), mmap_mode="r")

    def __call__(self, iteration: int, index: int) -> NDArray[np.float32]:
        """See `Noise.__call__`."""
        generator = keyed_generator(self.seed, Stream.NOISE, iteration, index)
        start = int(generator.integers(len(self.table) - self.size + 1))
        return self.table[start : start + self.size]


def _table_file(seed: int, table_size: int) -> Path:
    # With XDG_CACHE_HOME no home folder is needed, which a container's user may lack.
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paddock"
    path = cache / f"noise-{seed}-{table_size}-numpy{np.__version__}.npy"
    if path.exists():
        return path
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / ".noise.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one process per machine builds the table
        if path.exists():
            return path
        temporary = cache / f".noise.{os.uname().nodename}.tmp"  # may overwrite that of a killed process
        try:
            with open(temporary, "wb") as file:
                np.save(file, keyed_generator(seed, Stream.TABLE).standard_normal(table_size, dtype=np.float32))
                file.flush()
                os.fsync(file.fileno())  # otherwise a power failure could leave an empty file
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)  # free the space, since the disk may be full
            raise
    return path
