"""Randomness keyed by (seed, stream, iteration, index): the same draw on every worker, in any order.

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
    """What a draw is for; draws of different streams never meet."""

    INITIAL = 0
    NOISE = 1
    EPISODE = 2
    OBSERVE = 3
    EVALUATION = 4
    TABLE = 5
    FRESH = 6  # episodes played after the run, by `python -m paddock.evaluate`
    ROLLOUT = 7  # episodes of rollouts
    ACTION = 8
    SHUFFLE = 9  # of minibatches
    MUTATION = 10  # of environments
    GROUND = 11  # what stays the same in all episodes of one environment
    MEMBER = 12  # seeds and hyperparameters of a population's members
    REPLAY = 13  # which transitions are learned from
    UPDATE = 14  # noise of updates: of actions that are drawn there, and of noisy networks
    OPPONENT = 15  # who plays against whom


def keyed_generator(seed: int, stream: Stream, iteration: int = 0, index: int = 0) -> np.random.Generator:
    """A generator that depends on its key alone; each key has 2^128 blocks of its own."""
    return np.random.Generator(np.random.Philox(key=[seed, stream], counter=[0, 0, index, iteration]))


def episode_seed(seed: int, stream: Stream, iteration: int, index: int) -> int:
    """A seed in [0, 2^31) for `env.reset`."""
    return int(keyed_generator(seed, stream, iteration, index).integers(2**31))


class Noise(Protocol):
    """Standard normal vectors [P] float32 by (iteration, index)."""

    def __call__(self, iteration: int, index: int) -> NDArray[np.float32]: ...


@dataclass(frozen=True)
class PhiloxNoise:
    """Noise drawn afresh from its key: no memory, no traffic."""

    seed: int
    size: int

    def __call__(self, iteration: int, index: int) -> NDArray[np.float32]:
        generator = keyed_generator(self.seed, Stream.NOISE, iteration, index)
        return generator.standard_normal(self.size, dtype=np.float32)


class TableNoise:
    """Noise cut from one table that all processes of a machine share: a look-up in place of P draws.

    Slices of different keys may overlap; with a table a thousand times longer than P that hardly matters.
    """

    def __init__(self, seed: int, size: int, table_size: int) -> None:
        """Map the table, building its file (4 bytes an entry, in the user's cache folder) where it is missing."""
        self.seed = seed
        self.size = size
        self.table = np.load(_table_file(seed, table_size), mmap_mode="r")

    def __call__(self, iteration: int, index: int) -> NDArray[np.float32]:
        generator = keyed_generator(self.seed, Stream.NOISE, iteration, index)
        start = int(generator.integers(len(self.table) - self.size + 1))
        return self.table[start : start + self.size]


def _table_file(seed: int, table_size: int) -> Path:
    # A container's user may have no home, and need none.
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paddock"
    path = cache / f"noise-{seed}-{table_size}-numpy{np.__version__}.npy"
    if path.exists():
        return path
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / ".noise.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one process builds it, and the others of its machine wait
        if path.exists():
            return path
        temporary = cache / f".noise.{os.uname().nodename}.tmp"  # what a killed process left of it is written over
        try:
            with open(temporary, "wb") as file:
                np.save(file, keyed_generator(seed, Stream.TABLE).standard_normal(table_size, dtype=np.float32))
                file.flush()
                os.fsync(file.fileno())  # or a power loss could leave the name on an empty file, for good
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)  # of a full disk it is what fills it
            raise
    return path
