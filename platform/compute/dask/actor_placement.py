"""Where objects live: each on one worker, moved to another when that one is lost, falls silent or leaves."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Protocol

from algos.pool.protocol import PoolError

from .actor_handle import ActorHandle
from .connection import WorkerConnection, as_tuple
from .tasks import Ended, Item


class Workers(Protocol):
    """What the placement of objects asks of the dispatcher."""

    workers: dict[str, WorkerConnection]  # by address
    failure: PoolError | None
    timeout_s: float | None  # of a call

    def hold(self, worker: WorkerConnection, item: Item, seconds: float | None) -> int:
        """Note that a worker has an item; returns the number under which it knows it."""
        ...

    def place(self, worker: WorkerConnection) -> None:
        """Note whether a worker may be given work, and wants some."""
        ...

    def finish(self, ends: Iterable[tuple[Item, Ended | None]]) -> None:
        """Tell each source what of its own has ended."""
        ...

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run a coroutine beside everything else."""
        ...


class ActorPlacement:
    """The objects of a dispatcher's workers. All of it belongs to the client's event loop."""

    def __init__(self, dispatcher: Workers) -> None:
        self._dispatcher = dispatcher
        self._actors: list[ActorHandle] = []

    def add(self, actor: ActorHandle) -> None:
        """Give a new object a worker."""
        self._actors.append(actor)
        self._move([actor])

    def remove(self, actor: ActorHandle) -> None:
        """Let an object go."""
        if actor not in self._actors:
            return
        self._actors.remove(actor)
        if actor.worker is not None:
            actor.worker.send("drop", actor.key)
        error = PoolError("the object was closed while a call of it was open")
        self._dispatcher.finish([(item, Ended(item, error=error)) for item in actor.items.values()])

    def call(self, actor: ActorHandle, item: Item) -> None:
        """Send a call to its object."""
        failure = self._dispatcher.failure
        if failure is not None:
            self._dispatcher.finish([(item, Ended(item, error=failure))])
            return
        actor.items[item.index] = item
        if actor.worker is None:
            self._move([actor])
        elif actor.made:
            self._send(actor, item)

    def settle(self) -> None:
        """Find a worker for the objects that have none."""
        self._move([actor for actor in self._actors if actor.worker is None])

    def leave(self, worker: WorkerConnection) -> None:
        """Move a worker's objects elsewhere."""
        self._move([actor for actor in self._actors if actor.worker is worker])

    def open_calls(self) -> list[Item]:
        """Calls that have not ended, on a worker or not."""
        return [item for actor in self._actors for item in actor.items.values()]

    def _move(self, actors: Iterable[ActorHandle]) -> None:
        """Find each object a worker: the one with the fewest objects for its threads."""
        workers = self._dispatcher.workers
        for actor in actors:
            if actor.worker is not None and actor.worker.address in workers:
                actor.worker.send("drop", actor.key)
            others = [other.worker for other in self._actors if other is not actor]
            fitting = [worker for worker in workers.values() if worker.usable and worker.parallel(actor.needs)]
            actor.worker = min(fitting, key=lambda worker: others.count(worker) / worker.threads, default=None)
            actor.made = False
            if actor.worker is None:
                continue
            self._make(actor, actor.worker)

    def _make(self, actor: ActorHandle, worker: WorkerConnection) -> None:
        actor.made = True
        actor.rename()
        worker.share(actor.blobs)
        worker.send("make", actor.key, actor.data)
        for item in list(actor.items.values()):
            self._send(actor, item)

    def _send(self, actor: ActorHandle, item: Item) -> None:
        assert actor.worker is not None
        number = self._dispatcher.hold(actor.worker, item, None)
        actor.worker.share(item.blobs)
        actor.worker.send("call", actor.key, number, item.data, as_tuple(actor.needs), self._dispatcher.timeout_s)
        self._dispatcher.place(actor.worker)
