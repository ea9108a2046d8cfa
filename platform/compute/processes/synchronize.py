"""Locks, semaphores, conditions, events, barriers and values for processes on any machine.

Each lives in the process that creates it, as an object of `threading`; other processes call it there.
"""

import threading
from collections.abc import Callable
from multiprocessing import managers, sharedctypes
from typing import Any

from .hosting import OwnedProxy, caller_ended, serve


class _Acquirable:
    """Lock, semaphore or condition of `threading` with the signatures of `multiprocessing`."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        limit = {"timeout": max(timeout, 0.0)} if block and timeout is not None else {}
        taken = bool(self.inner.acquire(block, **limit))
        if taken and caller_ended():  # killed while it waited
            self.inner.release()
            raise EOFError
        return taken

    def get_value(self) -> int:
        return int(self.inner._value)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class LockProxy(OwnedProxy, managers.AcquirerProxy):  # type: ignore[name-defined]
    """Lock; a reentrant one belongs to a thread of a process."""

    _exposed_: tuple[str, ...] = ("acquire", "release")

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        """Acquire the lock; return whether it was acquired in time."""
        return bool(self._callmethod("acquire", (block, timeout)))


class SemaphoreProxy(LockProxy):
    """Semaphore."""

    _exposed_ = ("acquire", "release", "get_value")


class ConditionProxy(LockProxy, managers.ConditionProxy):  # type: ignore[name-defined]
    """Condition variable."""

    _exposed_ = managers.ConditionProxy._exposed_  # type: ignore[attr-defined]


class EventProxy(OwnedProxy, managers.EventProxy):  # type: ignore[name-defined]
    """Event."""

    _exposed_ = managers.EventProxy._exposed_  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        """Return whether it is set."""
        return f"<Event at {id(self):#x} {'set' if self.is_set() else 'unset'}>"


class BarrierProxy(OwnedProxy, managers.BarrierProxy):  # type: ignore[name-defined]
    """Barrier."""

    _exposed_ = managers.BarrierProxy._exposed_  # type: ignore[attr-defined]


class _Cell:
    """Value of a C type."""

    def __init__(self, cell: Any) -> None:
        self.cell = cell

    def get(self) -> Any:
        return self.cell.value

    def set(self, value: Any) -> None:
        self.cell.value = value


class CellProxy(OwnedProxy, managers.ValueProxy):
    """Value without a lock."""

    _exposed_ = ("get", "set")


class SharedValue(sharedctypes.Synchronized):
    """Value with a lock, for updates: `with counter.get_lock(): counter.value += 1`."""

    def __reduce__(self) -> Any:
        """Return how it is pickled."""
        return SharedValue, (self._obj, self._lock)  # type: ignore[attr-defined]


def Lock() -> Any:  # noqa: N802
    """Create a lock, as `multiprocessing.Lock`."""
    return serve(LockProxy, _Acquirable(threading.Lock()))


def RLock() -> Any:  # noqa: N802
    """Create a reentrant lock, as `multiprocessing.RLock`."""
    return serve(LockProxy, _Acquirable(threading.RLock()))


def Semaphore(value: int = 1) -> Any:  # noqa: N802
    """Create a semaphore, as `multiprocessing.Semaphore`."""
    return serve(SemaphoreProxy, _Acquirable(threading.Semaphore(value)))


def BoundedSemaphore(value: int = 1) -> Any:  # noqa: N802
    """Create a semaphore that raises ValueError if it is released too often, as `multiprocessing.BoundedSemaphore`."""
    return serve(SemaphoreProxy, _Acquirable(threading.BoundedSemaphore(value)))


def Condition(lock: Any = None) -> Any:  # noqa: N802
    """Create a condition variable, as `multiprocessing.Condition`; its lock must belong to the same process."""
    return serve(ConditionProxy, _Acquirable(threading.Condition(lock and lock.owned().inner)))


def Event() -> Any:  # noqa: N802
    """Create an event, as `multiprocessing.Event`."""
    return serve(EventProxy, threading.Event())


def Barrier(parties: int, action: Callable[[], None] | None = None, timeout: float | None = None) -> Any:  # noqa: N802
    """Create a barrier, as `multiprocessing.Barrier`; the action runs in the process that creates it."""
    return serve(BarrierProxy, threading.Barrier(parties, action, timeout))


def Value(typecode_or_type: Any, *args: Any, lock: Any = True) -> Any:  # noqa: N802
    """Create a value of a C type, as `multiprocessing.Value`; it is not in shared memory."""
    cell = serve(CellProxy, _Cell(sharedctypes.RawValue(typecode_or_type, *args)))
    if lock is False:
        return cell
    return SharedValue(cell, RLock() if lock in (True, None) else lock)
