"""Stateful workers, as their driver sees them: an object's handle, and where it lives.

Each object is on one worker, and moves to another when that one is lost, falls silent or leaves; its calls that have
not ended are made again there.
"""

import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any

from paddock.algos.pool.broadcast import collecting
from paddock.algos.pool.protocol import Needs, PoolError, as_exception

from .connection import WorkerConnection, as_tuple
from .tasks import Driver, Ended, Item, finish
from .workers import Workers


class ActorHandle:
    """See `paddock.algos.pool.protocol.Stateful`. Any thread may use `call` and `close`; the rest belongs to the loop."""

    retry_errors = 0

    def __init__(self, driver: Driver, placement: "ActorPlacement", factory: Callable[[], Any], needs: Needs) -> None:
        self.key = ""  # of the object now alive; another for each replacement
        self.needs = needs
        self.worker: WorkerConnection | None = None
        self.items: dict[int, Item] = {}  # calls not ended, in their order
        with collecting() as met:
            self.data = driver.dump(factory)
        self.blobs = [*met.values()]
        self._driver = driver
        self._placement = placement
        self._futures: dict[int, Future[Ended]] = {}
        self._count = 0
        self._lock = threading.Lock()
        self._closed = False
        driver.call(placement.add, self)

    def call(self, method: str, *args: Any, **kwargs: Any) -> Callable[[], Any]:
        """Start a call; what is returned waits for its value, or raises its error."""
        if self._closed:
            raise PoolError("the object is closed; make another one")
        if self._driver.failure is not None:
            raise self._driver.failure
        with collecting() as met:
            data = self._driver.dump((method, args, kwargs))
        future: Future[Ended] = Future()
        with self._lock:
            index, self._count = self._count, self._count + 1
            self._futures[index] = future
            self._driver.call(self._placement.call, self, Item(self, index, data, [*met.values()]))
        failure = self._driver.failure
        if failure is not None and self._futures.pop(index, None) is not None:
            raise failure  # the loop may have gone while this was pickled, and with it whoever would end the call

        def value() -> Any:
            done = future.result()()
            if done.error is not None:
                raise as_exception(done.error)
            return done.value

        return value

    def close(self) -> None:
        """Let the object go; calls still open are not waited for."""
        if not self._closed:
            self._closed = True
            self._driver.call(self._placement.remove, self)

    @property
    def failure(self) -> PoolError | None:
        """Why no call can be made any more; None where one can."""
        return self._driver.failure

    def learn(self, seconds: float) -> None:
        """Calls are sent one by one, so their lengths are of no use."""

    def deliver(self, ends: Sequence[Ended]) -> None:
        """Give calls their ends."""
        for end in ends:
            self.items.pop(end.index, None)
            if (future := self._futures.pop(end.index, None)) is not None:
                future.set_result(end)


class ActorPlacement:
    """The objects of a dispatcher's workers. All of it belongs to the client's event loop."""

    def __init__(self, workers: Workers, timeout_s: float | None) -> None:
        self._workers = workers
        self._timeout_s = timeout_s  # of a call
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
            actor.worker.objects -= 1
        finish((item, Ended(item, error=_closed())) for item in list(actor.items.values()))

    def call(self, actor: ActorHandle, item: Item) -> None:
        """Send a call to its object."""
        if actor.failure is not None:
            finish([(item, Ended(item, error=actor.failure))])
            return
        if actor not in self._actors:  # another thread closed it meanwhile
            finish([(item, Ended(item, error=_closed()))])
            return
        actor.items[item.index] = item
        if actor.worker is None:
            self._move([actor])
        else:
            self._send(actor, actor.worker, item)

    def settle(self) -> None:
        """Find a worker for the objects that have none, and let others move to workers that have fewer objects."""
        self._move([actor for actor in self._actors if actor.worker is None])
        while (actor := self._crowded()) is not None:
            self._move([actor])

    def _crowded(self) -> ActorHandle | None:
        """An object that would have more of a worker elsewhere; of such, one without an open call if there is one."""
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

    def leave(self, worker: WorkerConnection) -> None:
        """Move a worker's objects elsewhere."""
        self._move([actor for actor in self._actors if actor.worker is worker])

    def open_calls(self) -> list[Item]:
        """Calls that have not ended, on a worker or not."""
        return [item for actor in self._actors for item in actor.items.values()]

    def _move(self, actors: Iterable[ActorHandle]) -> None:
        """Make each object on a worker: the one that will have the fewest objects for its threads."""
        for actor in actors:
            if actor.worker is not None:
                actor.worker.objects -= 1
                if actor.worker.address in self._workers:
                    actor.worker.send("drop", actor.key)
            others = [other.worker for other in self._actors if other is not actor]
            fitting = self._fitting(actor.needs)
            # With this one counted, as `_crowded` does: `settle` would move it for ever to where it should not stay.
            worker = min(fitting, key=lambda worker: (others.count(worker) + 1) / worker.threads, default=None)
            actor.worker = worker
            if worker is not None:
                actor.key = uuid.uuid4().hex
                worker.objects += 1
                worker.share(actor.blobs)
                worker.send("make", actor.key, actor.data)
                for item in list(actor.items.values()):
                    self._send(actor, worker, item)

    def _send(self, actor: ActorHandle, worker: WorkerConnection, item: Item) -> None:
        number = self._workers.hold(worker, item, None)
        worker.share(item.blobs)
        worker.send("call", actor.key, number, item.data, as_tuple(actor.needs), self._timeout_s)
        self._workers.place(worker)


def _closed() -> PoolError:
    return PoolError("the object was closed while a call of it was open")
