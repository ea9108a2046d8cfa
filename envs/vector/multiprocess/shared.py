"""Memory and events that processes share, and that leave nothing behind however the processes end (Linux)."""

import contextlib
import mmap
import os
import select
import sys
import time
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.envs.errors import require
from paddock.envs.vector.storage import Layouts, NewArray
from paddock.envs.vector.table import Arrays

SPIN_S = 400e-6  # a core that has fallen idle takes a tenth of a millisecond and more to wake, in a virtual machine
CACHE_LINE = 64  # bytes; what different processes write lies on different lines

# State of a block. The parent writes the orders, and IDLE once it has read the answer; the worker writes the answers.
IDLE, STEP, STEP_CHOSEN, CALL, DONE, REPLIED, FAILED = range(7)
ORDERS, ANSWERS = (STEP, STEP_CHOSEN, CALL), (DONE, REPLIED, FAILED)


@dataclass(frozen=True)
class SharedBuffers:
    """The memory that the parent and W workers share: arrays of N environments, and the states of their B blocks."""

    arrays: Arrays
    chosen: NDArray[np.bool_]  # [N], environments that STEP_CHOSEN steps
    state: memoryview  # [B] bytes, IDLE and so on
    active_env: memoryview  # [W] int64, the environment at work
    closed: memoryview  # [1] byte, whether the parent closes the vector

    @classmethod
    def lay_out(cls, layouts: Layouts, num_envs: int, workers: int, blocks: int, new: NewArray) -> "SharedBuffers":
        """Arrays from `new`, always in the same order: on the same memory every process sees the same buffers."""
        return cls(
            arrays=Arrays.allocate(layouts, num_envs, new),
            chosen=new((num_envs,), np.dtype(np.bool_)),
            state=new((blocks,), np.dtype(np.uint8)).data,
            active_env=new((workers,), np.dtype(np.int64)).data,
            closed=new((1,), np.dtype(np.uint8)).data,
        )


class Arena:
    """Arrays one after another in a file's memory; without a file, how much memory they take.

    Attributes:
        used: bytes.
    """

    def __init__(self, fd: int | None = None) -> None:
        """Map a file of `os.memfd_create`, whose memory has no name and goes with its last process."""
        self._memory = None if fd is None else mmap.mmap(fd, 0)
        self.used = 0

    def new(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return the next array, on cache lines of its own."""
        start, count = self.used, int(np.prod(shape))
        self.used += -(-count * dtype.itemsize // CACHE_LINE) * CACHE_LINE
        if self._memory is None:
            return np.empty(shape, dtype)
        return np.frombuffer(self._memory, dtype, count, start).reshape(shape)


def check_platform() -> None:
    """Raise ConfigError on systems without eventfd and memfd."""
    require(sys.platform == "linux", f"vec=multiprocess needs Linux, and this is {sys.platform}; choose vec=serial")


class EventFd:
    """An eventfd by which one process wakes another. Rings add up until they are heard, so none is lost."""

    def __init__(self, fd: int) -> None:
        """Own the eventfd, which must not block."""
        self.fd = fd
        weakref.finalize(self, os.close, fd)  # not earlier: another thread may ring
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)
        self._soon = True  # the last ring came, or might have come, while spinning

    def notify(self) -> None:
        """Wake the process that waits."""
        os.eventfd_write(self.fd, 1)

    def wait(self, timeout_s: float, spin: bool = True) -> bool:
        """Wait for a ring, spinning first where rings come soon; False where none came in time."""
        poll, begun = self._poll.poll, time.perf_counter()
        came = poll(0)
        if not came and spin and self._soon:
            while not came and time.perf_counter() < begun + SPIN_S:
                os.sched_yield()  # whoever else wants this core gets it
                came = poll(0)
        if not came:
            came = poll(timeout_s * 1000)
            self._soon = time.perf_counter() < begun + 2 * SPIN_S
        if came:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self.fd)
        return bool(came)
