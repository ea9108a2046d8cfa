"""Workers that are none, for tests of the driver's half of the pool."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

from pool_tasks import Counter

from paddock.algos.pool.pickling import dump
from paddock.algos.pool.protocol import ONE_CPU, Done, End
from paddock.compute.dask.actors import ActorHandle
from paddock.compute.dask.connection import WorkerConnection
from paddock.compute.dask.dispatcher import Dispatcher

SETTINGS: dict[str, Any] = {"needs": ONE_CPU, "retry_errors": 0, "renew_after": None}


async def end_unknown(worker: WorkerConnection) -> str:
    return "its process or machine ended"


def make_dispatcher(
    retries: int = 0,
    timeout_s: float | None = None,
    loop: asyncio.AbstractEventLoop | None = None,
    read_exit: Callable[[WorkerConnection], Awaitable[str]] = end_unknown,
) -> Dispatcher:
    return Dispatcher(loop or asyncio.get_running_loop(), retries, timeout_s, read_exit)


def make_object(dispatcher: Dispatcher) -> ActorHandle:
    return ActorHandle(dispatcher.placement, Counter, ONE_CPU)


class FakeWorker(WorkerConnection):
    """A worker that says what it is told to."""

    def __init__(self, address: str, threads: int = 1) -> None:
        capacity = {"cpu": threads, "memory_gb": 1.0, "gpu": 0}
        super().__init__(address, SimpleNamespace(abort=lambda: None), {"capacity": capacity, "leaving": False})
        self.end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def talk(self, handle: Callable[[WorkerConnection, Sequence[tuple[Any, ...]]], None]) -> None:
        self.handle = handle
        await self.end

    @property
    def runs(self) -> list[int]:
        """The numbers of the tasks that it was sent."""
        return [number for operation, *rest in self._out if operation == "run" for number, _ in rest[1]]

    def answer_all(self) -> None:
        """End what it has."""
        ends = [(number, 0.001, True, dump("done")) for number in self.items]
        self.handle(self, [("ends", ends)])


class Ends:
    """Collects what a batch delivers."""

    def __init__(self) -> None:
        self.done: list[Done] = []

    def __call__(self, ends: Sequence[End]) -> None:
        self.done.extend(end() for end in ends)


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def nobody(_: Any) -> list[Any]:
    return []
