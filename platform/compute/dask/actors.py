"""Stateful workers, as their driver sees them: an object's handle, and the worker it lives on.

Each object is on one worker, which gets one call at a time. It moves to another when its worker is lost, falls silent or
leaves; a call that has not ended is made again there.
"""

import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any

from paddock.algos.pool.broadcast import collecting
from paddock.algos.pool.pickling import dump
from paddock.algos.pool.protocol import Needs, PoolError, value_of

from .connection import WorkerConnection
from .tasks import Ended, Item, finish
from .workers import Workers


class ActorHandle:
    """See `paddock.algos.pool.protocol.Stateful`. Any thread may use `call` and `close`; the rest is the loop's."""

    retry_errors = 0

    def __init__(self, placement: "ActorPlacement", factory: Callable[[], Any], needs: Needs) -> None:
        self.key = ""  # of the object now alive; another for each replacement
        self.needs = needs
        self.worker: WorkerConnection | None = None
        self.items: dict[int, Item] = {}  # calls not ended, in their order; the worker has the first
        with collecting() as met:
            self.data = dump(factory)
        self.blobs = [*met.values()]
        self._placement = placement
        self._futures: dict[int, Future[Ended]] = {}
        self._count = 0
        self._lock = threading.Lock()
        self._closed = False
        placement.enter(placement.add, self)

    def call(self, method: str, *args: Any, **kwargs: Any) -> Callable[[], Any]:
        """Start a call; what is returned waits for its value, or raises its error."""
        if self._closed:
            raise PoolError("the object is closed; make another one")
        with collecting() as met:
            data = dump((method, args, kwargs))
        future: Future[Ended] = Future()
        with self._lock:
            index, self._count = self._count, self._count + 1
            self._futures[index] = future
            self._placement.enter(self._placement.call, self, Item(self, index, data, [*met.values()]))
        failure = self._placement.read_failure()
        if failure is not None and self._futures.pop(index, None) is not None:
            raise failure  # the loop may have ended, and would never end the call
        return lambda: value_of(future.result()())

    def close(self) -> None:
        """Close the object; open calls are not waited for."""
        if not self._closed:
            self._closed = True
            self._placement.enter(self._placement.remove, self)

    def learn(self, seconds: float) -> None:
        """Ignore the length of a call: calls are sent one by one."""

    def deliver(self, ends: Sequence[Ended]) -> None:
        """End calls, and send the next one."""
        for end in ends:
            self.items.pop(end.index, None)
            if (future := self._futures.pop(end.index, None)) is not None:
                future.set_result(end)
        self._placement.send_next(self)


class ActorPlacement:
    """The objects of a dispatcher's workers. All of it belongs to the client's event loop.

    Attributes:
        enter: runs a function in that loop; any thread may use it.
        read_failure: returns why the pool has failed, if it has.
    """

    def __init__(
        self,
        workers: Workers,
        timeout_s: float | None,
        enter: Callable[..., None],
        read_failure: Callable[[], PoolError | None],
    ) -> None:
        self.enter = enter
        self.read_failure = read_failure
        self._workers = workers
        self._timeout_s = timeout_s
        self._actors: list[ActorHandle] = []

    def add(self, actor: ActorHandle) -> None:
        """Give a new object a worker."""
        self._actors.append(actor)
        self._move([actor])

    def remove(self, actor: ActorHandle) -> None:
        """Close an object."""
        if actor in self._actors:
            self._actors.remove(actor)
            if actor.worker is not None:
                actor.worker.send("drop", actor.key)
                actor.worker.objects -= 1
                actor.worker = None
            self._refuse(actor.items.values())

    def call(self, actor: ActorHandle, item: Item) -> None:
        """Queue a call of an object."""
        if actor not in self._actors or self.read_failure() is not None:
            self._refuse([item])
            return
        actor.items[item.index] = item
        if actor.worker is None:
            self._move([actor])
        else:
            self.send_next(actor)

    def send_next(self, actor: ActorHandle) -> None:
        """Send the first open call of an object, unless its worker has it."""
        item, worker = next(iter(actor.items.values()), None), actor.worker
        if item is not None and worker is not None and worker not in item.holders:
            number = self._workers.hold(worker, item, None)
            worker.share(item.blobs)
            worker.send("call", actor.key, number, item.data, actor.needs, self._timeout_s)
            self._workers.place(worker)

    def settle(self) -> None:
        """Find a worker for the objects that have none, and move others to workers that have fewer objects."""
        self._move([actor for actor in self._actors if actor.worker is None])
        while (actor := self._crowded()) is not None:
            self._move([actor])

    def leave(self, worker: WorkerConnection) -> None:
        """Move a worker's objects elsewhere."""
        self._move([actor for actor in self._actors if actor.worker is worker])

    def open_calls(self) -> list[Item]:
        """Calls that have not ended, on a worker or not."""
        return [item for actor in self._actors for item in actor.items.values()]

    def _refuse(self, items: Iterable[Item]) -> None:
        closed = self.read_failure() or PoolError("the object was closed while a call of it was open")
        finish([(item, Ended(item, error=closed)) for item in items])

    def _crowded(self) -> ActorHandle | None:
        """An object that would share a worker with fewer elsewhere; one without an open call if there is one."""
        for actor in sorted(self._actors, key=lambda actor: bool(actor.items)):
            here = actor.worker
            if here is not None and any(
                (other.objects + 1) / other.threads < here.objects / here.threads
                for other in self._fitting(actor.needs)
            ):
                return actor
        return None

    def _fitting(self, needs: Needs) -> list[WorkerConnection]:
        return [worker for worker in self._workers.values() if worker.usable and worker.parallel(needs)]

    def _move(self, actors: Iterable[ActorHandle]) -> None:
        """Make each object on the worker that will have the fewest objects for its threads."""
        for actor in actors:
            if actor.worker is not None:
                actor.worker.objects -= 1
                if actor.worker.address in self._workers:
                    actor.worker.send("drop", actor.key)
            # Counted with this one, as `_crowded` does, or `settle` would move it for ever.
            worker = min(self._fitting(actor.needs), key=lambda one: (one.objects + 1) / one.threads, default=None)
            actor.worker = worker
            if worker is not None:
                actor.key = uuid.uuid4().hex
                worker.objects += 1
                worker.share(actor.blobs)
                worker.send("make", actor.key, actor.data)
                self.send_next(actor)
