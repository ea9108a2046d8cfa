"""Shared memory and events between processes, which the kernel releases with the last process (Linux)."""

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

SPIN_S = 400e-6  # waking an idle core takes 0.1 ms or more in a virtual machine
CACHE_LINE = 64  # bytes; arrays of different processes do not share lines

# State of a block: the parent writes commands, and IDLE after reading an answer; the worker writes answers.
IDLE, STEP, STEP_CHOSEN, CALL, DONE, REPLIED, FAILED = range(7)
COMMANDS, ANSWERS = (STEP, STEP_CHOSEN, CALL), (DONE, REPLIED, FAILED)


@dataclass(frozen=True)
class SharedBuffers:
    """Memory shared by the parent and W workers: arrays of N rows, and the states of their B blocks."""

    arrays: Arrays
    chosen: NDArray[np.bool_]  # [N], rows that STEP_CHOSEN steps
    state: memoryview  # [B] bytes, IDLE and so on
    active_env: memoryview  # [W] int64, the running environment
    closed: memoryview  # [1] byte, the parent is closing the vector

    @classmethod
    def lay_out(cls, layouts: Layouts, num_envs: int, workers: int, blocks: int, new: NewArray) -> "SharedBuffers":
        """Return buffers from `new`, always in the same order, so that all processes agree on their addresses."""
        return cls(
            arrays=Arrays.allocate(layouts, num_envs, new),
            chosen=new((num_envs,), np.dtype(np.bool_)),
            state=new((blocks,), np.dtype(np.uint8)).data,
            active_env=new((workers,), np.dtype(np.int64)).data,
            closed=new((1,), np.dtype(np.uint8)).data,
        )


class Arena:
    """Arrays one after another in a mapped file; without a file, only their size is measured.

    Attributes:
        used: bytes.
    """

    def __init__(self, fd: int | None = None) -> None:
        """Map a file of `os.memfd_create`."""
        self._memory = None if fd is None else mmap.mmap(fd, 0)
        self.used = 0

    def new(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return the next array, aligned to a cache line."""
        start, count = self.used, int(np.prod(shape))
        self.used += -(-count * dtype.itemsize // CACHE_LINE) * CACHE_LINE
        if self._memory is None:
            return np.empty(shape, dtype)
        return np.frombuffer(self._memory, dtype, count, start).reshape(shape)


def check_platform() -> None:
    """Raise ConfigError on systems without eventfd and memfd."""
    require(sys.platform == "linux", f"vec=multiprocess needs Linux, but this is {sys.platform}; use vec=serial")


class EventFd:
    """Event by which one process wakes another; notifications are counted, so none is lost."""

    def __init__(self, fd: int) -> None:
        """Take ownership of a non-blocking eventfd."""
        self.fd = fd
        weakref.finalize(self, os.close, fd)  # not earlier: another thread may notify
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)
        self._soon = True  # the last notification came about within the spinning time

    def notify(self) -> None:
        """Wake the waiting process."""
        os.eventfd_write(self.fd, 1)

    def wait(self, timeout_s: float, spin: bool = True) -> bool:
        """Wait for a notification, at first spinning if they come fast; return False after the timeout."""
        poll, begun = self._poll.poll, time.perf_counter()
        came = poll(0)
        if not came and spin and self._soon:
            while not came and time.perf_counter() < begun + SPIN_S:
                os.sched_yield()  # let other processes use this core
                came = poll(0)
        if not came:
            came = poll(timeout_s * 1000)
            self._soon = time.perf_counter() < begun + 2 * SPIN_S
        if came:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self.fd)
        return bool(came)
