"""Memory and semaphores that processes share, and that leave nothing behind however they end (Linux)."""

import ctypes
import mmap
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.envs.errors import ConfigError, require
from paddock.envs.vector.multiprocess.interrupts import Uninterrupted, waits
from paddock.envs.vector.storage import Layouts, NewArray
from paddock.envs.vector.table import Arrays

SPIN_S = 400e-6  # a core that has fallen idle takes a tenth of a millisecond and more to wake, in a virtual machine
CACHE_LINE = 64  # bytes; what different processes write lies on different lines

# Of a block: what its worker is to do, and what came of it.
STEP, STEP_CHOSEN, LISTEN, CLOSE = range(4)
WORKING, DONE, SAID, FAILED, CLOSING = range(5)  # CLOSING its environments, and of a worker's first block only


@dataclass(frozen=True)
class SharedBuffers:
    """What the parent and W workers share: the arrays of N environments, and the orders for their B blocks.

    A worker does them in the order in which they are given, of which `turns` tells.
    """

    arrays: Arrays
    chosen: NDArray[np.bool_]  # [N], which environments STEP_CHOSEN steps
    order: memoryview  # [B] bytes, STEP and so on
    state: memoryview  # [B] bytes, WORKING and so on
    turns: memoryview  # [W, B / W] int64, which of its blocks a worker's n-th order is for, at n modulo B / W
    at_work: memoryview  # [W] int64, the environment at work
    go: "list[Semaphore]"  # [W], one token for each order
    ready: "Semaphore"  # a token whenever a block's state changed

    @classmethod
    def lay_out(cls, layouts: Layouts, num_envs: int, workers: int, blocks: int, new: NewArray) -> "SharedBuffers":
        """Arrays from `new`, always in the same order; whoever lays it out on the same memory sees the same buffers."""
        lines = new((workers + 1, CACHE_LINE), np.dtype(np.uint8))
        semaphores = [Semaphore(lines[k]) for k in range(workers + 1)]
        return cls(
            arrays=Arrays.allocate(layouts, num_envs, new),
            chosen=new((num_envs,), np.dtype(np.bool_)),
            order=new((blocks,), np.dtype(np.uint8)).data,
            state=new((blocks,), np.dtype(np.uint8)).data,
            turns=new((workers, blocks // workers), np.dtype(np.int64)).data,
            at_work=new((workers,), np.dtype(np.int64)).data,
            go=semaphores[1:],
            ready=semaphores[0],
        )


class MappedMemory:
    """Arrays one after another in one piece of memory that has no name, so that it goes with its last process."""

    def __init__(self, fd: int, size: int) -> None:
        """Map a file of `os.memfd_create`."""
        self._memory = mmap.mmap(fd, size)
        self._used = 0

    def new(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """The next array."""
        start, self._used = self._used, self._used + footprint(shape, dtype)
        return np.frombuffer(self._memory, dtype, int(np.prod(shape)), start).reshape(shape)


def footprint(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Bytes that an array takes, to the end of its cache line."""
    return -(-int(np.prod(shape)) * dtype.itemsize // CACHE_LINE) * CACHE_LINE


def size_of(layouts: Layouts, num_envs: int, workers: int, blocks: int) -> int:
    """Return the bytes that the buffers of a vector take.

    Raises:
        ConfigError: observations or actions are of no known size, so that no array can hold them.
    """
    try:
        layouts.check_sized()
    except ConfigError as error:
        raise ConfigError(f"{error}; or choose vec=serial") from None
    sizes: list[int] = []

    def measure(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        sizes.append(footprint(shape, dtype))
        return np.empty(shape, dtype)

    SharedBuffers.lay_out(layouts, num_envs, workers, blocks, measure)
    return sum(sizes)


def check_platform() -> None:
    """Raise ConfigError where the system has not what is used here."""
    require(sys.platform == "linux", f"vec=multiprocess needs Linux, and this is {sys.platform}; choose vec=serial")


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class Semaphore:
    """A POSIX semaphore in shared memory (sem_overview(7)): no system call unless somebody sleeps on it."""

    def __init__(self, memory: NDArray[np.uint8]) -> None:
        """Use the semaphore in this memory [CACHE_LINE]; `initialize` makes it one."""
        self._memory = memory
        self._address = ctypes.c_void_p(memory.ctypes.data)
        self._init, self._post, self._try, self._wait, self._yield, self._now = _library()
        self._usual_s = 0.0  # how long this process has waited of late

    def initialize(self) -> None:
        """Set it up without tokens, once for all processes."""
        if self._init(self._address, 1, 0) != 0:
            raise ConfigError(
                "this system has no semaphores in shared memory, as vec=multiprocess needs; choose vec=serial"
            )

    def post(self) -> None:
        """Put in a token, and wake a process that sleeps on it."""
        self._post(self._address)

    @waits(throughout=True)
    def wait(self, timeout_s: float, spin: bool = True) -> bool:
        """Take a token: at once, or after spinning for a moment, or after a sleep; False where none came in time."""
        if Uninterrupted.came:
            Uninterrupted.let_come()
        take, address = self._try, self._address
        if take(address) == 0:
            return True
        begun = time.perf_counter()
        if spin and self._usual_s < SPIN_S:
            give_up = begun + SPIN_S
            while time.perf_counter() < give_up:
                # Whoever else wants this core gets it, another thread of this process too: a token may come from there.
                self._yield()
                if take(address) == 0:
                    self._note(begun)
                    return True
        until = self._now() + timeout_s
        deadline = _Timespec(int(until), int(until % 1 * 1e9))
        taken = self._wait(address, ctypes.byref(deadline)) == 0
        self._note(begun)
        return taken

    def _note(self, begun: float) -> None:
        """Learn how long tokens take, so as to spin only where they usually come while spinning."""
        waited = min(time.perf_counter() - begun, 4 * SPIN_S)
        self._usual_s += 0.1 * (waited - self._usual_s)


def _library() -> tuple[Any, Any, Any, Any, Any, Callable[[], float]]:
    # PyDLL keeps the interpreter's lock, which is right for what returns at once; CDLL lets other threads run.
    quick, slow = ctypes.PyDLL(None), ctypes.CDLL(None)
    quick.sem_init.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint]
    quick.sem_post.argtypes = quick.sem_trywait.argtypes = [ctypes.c_void_p]
    common = quick.sem_init, quick.sem_post, quick.sem_trywait
    try:
        sleep = slow.sem_clockwait
    except AttributeError:  # before glibc 2.30, and in musl
        slow.sem_timedwait.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        return *common, slow.sem_timedwait, slow.sched_yield, time.time
    sleep.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]

    def wait(address: Any, deadline: Any) -> Any:
        # By a clock that nobody sets: one that jumps would end waits at once, or make them last for hours.
        return sleep(address, time.CLOCK_MONOTONIC, deadline)

    return *common, wait, slow.sched_yield, time.monotonic
