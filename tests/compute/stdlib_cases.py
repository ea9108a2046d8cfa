"""CPython's own cases for processes, queues, pipes, managers and locks, run on `paddock.compute`.

Cases that need shared memory or a fork are skipped. Those that use names of `multiprocessing` directly find ours there.
"""

import contextlib
import importlib
import multiprocessing.connection
import unittest
from collections.abc import Iterator
from typing import Any
from unittest import mock

from paddock import compute

cases: Any = importlib.import_module("test._test_multiprocessing")
NAMES = [name for name in dir(compute) if name in multiprocessing.__all__ and name != "Pool"]
SHARED_MEMORY = ("test_rawvalue", "test_getobj_getlock")
FORKSERVER = ("test_forkserver_sigint", "test_forkserver_sigkill")


@contextlib.contextmanager
def ours() -> Iterator[None]:
    """Put our classes and functions in the place of those of `multiprocessing`, with its start method spawn."""
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method("spawn", force=True)
    names = {name: getattr(compute, name) for name in NAMES}
    managers: dict[str, Any] = {"MyManager": FooManager, "QueueManager": QueueManager, "QueueManager2": QueueClient}
    with mock.patch.multiple(multiprocessing, **names), mock.patch.multiple(cases, _UpperCaser=UpperCaser, **managers):
        yield
    multiprocessing.set_start_method(before, force=True)


class UpperCaser(compute.Process):
    """Process with a pipe among its attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = compute.Pipe()

    def run(self) -> None:
        self.outer.close()
        while (text := self.inner.recv()) is not None:
            self.inner.send(text.upper())

    def submit(self, text: str) -> str:
        self.outer.send(text)
        return str(self.outer.recv())

    def stop(self) -> None:
        self.outer.send(None)


class FooManager(compute.BaseManager):
    """Registered as in the cases."""


FooManager.register("Foo", callable=cases.FooBar)
FooManager.register("Bar", callable=cases.FooBar, exposed=("f", "_h"))
FooManager.register("baz", callable=cases.baz, proxytype=cases.IteratorProxy)


class QueueManager(compute.BaseManager):
    """Registered as in the cases."""


class QueueClient(compute.BaseManager):
    """Registered as in the cases."""


QueueManager.register("get_queue", callable=cases.get_queue)
QueueClient.register("get_queue")


class Counter:
    """What a barrier's cases need of a list; theirs is in shared memory."""

    def __init__(self) -> None:
        self._count = compute.Value("i", 0)

    def append(self, _: object) -> None:
        with self._count.get_lock():
            self._count.value += 1

    def __len__(self) -> int:
        return int(self._count.value)


class Names(cases.BaseMixin):
    TYPE = "processes"
    Process = compute.Process
    connection = multiprocessing.connection
    current_process = staticmethod(compute.current_process)
    parent_process = staticmethod(compute.parent_process)
    active_children = staticmethod(compute.active_children)
    set_executable = staticmethod(multiprocessing.set_executable)
    Pipe = staticmethod(compute.Pipe)
    Queue = staticmethod(compute.Queue)
    JoinableQueue = staticmethod(compute.JoinableQueue)
    Lock = staticmethod(compute.Lock)
    RLock = staticmethod(compute.RLock)
    Semaphore = staticmethod(compute.Semaphore)
    BoundedSemaphore = staticmethod(compute.BoundedSemaphore)
    Condition = staticmethod(compute.Condition)
    Event = staticmethod(compute.Event)
    Barrier = staticmethod(compute.Barrier)
    Value = staticmethod(compute.Value)
    DummyList = Counter

    def check_invariant(self, cond: object) -> None:
        """Skip the counters of processes that wait, which are private there."""


class ManagerNames(cases.ManagerMixin):
    Process = compute.Process


def _define(group: str, base: type, kind: str) -> Any:
    mixin = {"processes": (Names,), "manager": (ManagerNames,), "": ()}[kind]
    body: dict[str, Any] = {"group": group, "__module__": __name__}
    for name in (*SHARED_MEMORY, *FORKSERVER):
        if hasattr(base, name):
            body[name] = unittest.skip("needs shared memory or a fork server")(lambda self: None)
    if hasattr(base, "manager_class"):
        body["manager_class"] = compute.SyncManager
    name = f"{base.__name__.removeprefix('_')}{kind.capitalize()}"
    bases = (*mixin, base, unittest.TestCase) if kind else (base,)
    return type(name, bases, {**body, "__qualname__": name})


BY_GROUP = {
    "Process": ["_TestProcess", "_TestSubclassingProcess"],
    "Queue": ["_TestQueue", "TestSimpleQueue"],
    "Pipe": ["_TestConnection", "_TestPoll", "TestWait"],
    "Manager": [
        "_TestContainers",
        "_TestMyManager",
        "_TestRemoteManager",
        "_TestManagerRestart",
        "TestSyncManagerTypes",
    ],
    "Lock": ["_TestLock"],
    "Semaphore": ["_TestSemaphore"],
    "Condition": ["_TestCondition"],
    "Event": ["_TestEvent"],
    "Barrier": ["_TestBarrier"],
    "Value": ["_TestValue"],
}
CASES: list[Any] = [
    _define(group, getattr(cases, name), kind)
    for group, names in BY_GROUP.items()
    for name in names
    for kind in getattr(getattr(cases, name), "ALLOWED_TYPES", [""])
    if kind != "threads"
]
globals().update({case.__name__: case for case in CASES})
