"""Driver's side of stateful objects on workers: their handles and their placement.

Each object lives on one worker and receives one call at a time. It moves to another worker when its worker is lost,
silent or leaving; unfinished calls are repeated there.
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
    """Handle of an object on a worker. `call` and `close` are thread-safe; everything else runs in the event loop."""

    retry_errors = 0

    def __init__(self, placement: "ActorPlacement", factory: Callable[[], Any], needs: Needs) -> None:
        """Create the object on a worker."""
        self.key = ""  # of the current instance; changes with each replacement
        self.needs = needs
        self.worker: WorkerConnection | None = None
        self.items: dict[int, Item] = {}  # unfinished calls in order; the worker has the first
        with collecting() as met:
            self.data = dump(factory)
        self.blobs = [*met.values()]
        self._placement = placement
        self._futures: dict[int, Future[Ended]] = {}
        self._count = 0
        self._lock = threading.Lock()
        self._closed = False
        placement.run_in_loop(placement.add, self)

    def call(self, method: str, *args: Any, **kwargs: Any) -> Callable[[], Any]:
        """Start a call, and return a function that waits for its value or raises its error."""
        if self._closed:
            raise PoolError("the object is closed; create another one")
        with collecting() as met:
            data = dump((method, args, kwargs))
        future: Future[Ended] = Future()
        with self._lock:
            index, self._count = self._count, self._count + 1
            self._futures[index] = future
            self._placement.run_in_loop(self._placement.call, self, Item(self, index, data, [*met.values()]))
        failure = self._placement.read_failure()
        if failure is not None and self._futures.pop(index, None) is not None:
            raise failure  # the loop may have stopped, and would never finish the call
        return lambda: value_of(future.result()())

    def close(self) -> None:
        """Close the object without waiting for unfinished calls."""
        if not self._closed:
            self._closed = True
            self._placement.run_in_loop(self._placement.remove, self)

    def record_duration(self, seconds: float) -> None:
        """Ignore the duration of a call, since calls are sent one by one."""

    def deliver(self, ends: Sequence[Ended]) -> None:
        """Finish calls, and send the next one."""
        for end in ends:
            self.items.pop(end.index, None)
            if (future := self._futures.pop(end.index, None)) is not None:
                future.set_result(end)
        self._placement.send_next(self)


class ActorPlacement:
    """Placement of objects on a dispatcher's workers. Everything runs in the client's event loop.

    Attributes:
        run_in_loop: runs a function in that loop; thread-safe.
        read_failure: returns the pool's failure, if any.
    """

    def __init__(
        self,
        workers: Workers,
        timeout_s: float | None,
        run_in_loop: Callable[..., None],
        read_failure: Callable[[], PoolError | None],
    ) -> None:
        """Start without objects."""
        self.run_in_loop = run_in_loop
        self.read_failure = read_failure
        self._workers = workers
        self._timeout_s = timeout_s
        self._actors: list[ActorHandle] = []

    def add(self, actor: ActorHandle) -> None:
        """Place a new object on a worker."""
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

    def rebalance(self) -> None:
        """Place objects without a worker, and move others to workers with fewer objects."""
        self._move([actor for actor in self._actors if actor.worker is None])
        while (actor := self._find_movable()) is not None:
            self._move([actor])

    def leave(self, worker: WorkerConnection) -> None:
        """Move a worker's objects to other workers."""
        self._move([actor for actor in self._actors if actor.worker is worker])

    def open_calls(self) -> list[Item]:
        """Return unfinished calls, on a worker or not."""
        return [item for actor in self._actors for item in actor.items.values()]

    def _refuse(self, items: Iterable[Item]) -> None:
        closed = self.read_failure() or PoolError("the object was closed before its call finished")
        finish([(item, Ended(item, error=closed)) for item in items])

    def _find_movable(self) -> ActorHandle | None:
        """Return an object that another worker would share with fewer objects, preferably without an open call."""
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
        """Create each object on the worker with the fewest objects per thread."""
        for actor in actors:
            if actor.worker is not None:
                actor.worker.objects -= 1
                if actor.worker.address in self._workers:
                    actor.worker.send("drop", actor.key)
            # Counts this object, as `_find_movable` does; otherwise `rebalance` would move it forever.
            worker = min(self._fitting(actor.needs), key=lambda one: (one.objects + 1) / one.threads, default=None)
            actor.worker = worker
            if worker is not None:
                actor.key = uuid.uuid4().hex
                worker.objects += 1
                worker.share(actor.blobs)
                worker.send("make", actor.key, actor.data)
                self.send_next(actor)
