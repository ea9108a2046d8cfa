"""A stateful worker, as its driver sees it: an object's handle, its calls in flight, and how it is made again."""

import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from algos.pool.broadcast import Broadcast, collecting
from algos.pool.protocol import Needs, PoolError

from .connection import WorkerConnection
from .tasks import Driver, Ended, Item


class Placement(Protocol):
    """Where objects live; all of it belongs to the loop."""

    def add(self, actor: "ActorHandle") -> None:
        """Give a new object a worker."""
        ...

    def remove(self, actor: "ActorHandle") -> None:
        """Let an object go."""
        ...

    def call(self, actor: "ActorHandle", item: Item) -> None:
        """Send a call to its object."""
        ...


class ActorDriver(Driver, Protocol):
    """What objects ask of the dispatcher."""

    @property
    def placement(self) -> Placement:
        """Where they live."""
        ...


class ActorHandle:
    """See `algos.pool.protocol.Stateful`. Any thread may use `call` and `close`; the rest belongs to the loop."""

    retry_errors = 0

    def __init__(
        self,
        dispatcher: ActorDriver,
        factory: Callable[[], Any],
        needs: Needs,
    ) -> None:
        self.id = uuid.uuid4().hex
        self.key = self.id  # of the object now alive; another for each replacement
        self.needs = needs
        self.worker: WorkerConnection | None = None
        self.made = False
        self.items: dict[int, Item] = {}  # calls not ended, in their order
        self.data = b""
        self.blobs: Sequence[Broadcast[Any]] = ()
        self._dispatcher = dispatcher
        self._futures: dict[int, Future[Ended]] = {}
        self._count = 0
        self._lives = 0
        self._lock = threading.Lock()
        self._closed = False
        self.set_factory(factory)
        dispatcher.call(dispatcher.placement.add, self)

    def rename(self) -> None:
        """Take the key of a new life."""
        self._lives += 1
        self.key = f"{self.id}-{self._lives}"

    def set_factory(self, factory: Callable[[], Any]) -> None:
        """Take what makes the object."""
        with collecting() as met:
            self.data = self._dispatcher.dump(factory)
        self.blobs = [*met.values()]

    def call(self, method: str, *args: Any, **kwargs: Any) -> Callable[[], Any]:
        """Start a call; what is returned waits for its value, or raises its error."""
        if self._closed:
            raise PoolError("the object is closed; make another one")
        if self._dispatcher.failure is not None:
            raise self._dispatcher.failure
        with collecting() as met:
            data = self._dispatcher.dump((method, args, kwargs))
        future: Future[Ended] = Future()
        with self._lock:
            index, self._count = self._count, self._count + 1
            self._futures[index] = future
            self._dispatcher.call(self._dispatcher.placement.call, self, Item(self, index, data, [*met.values()]))

        def value() -> Any:
            done = future.result()()
            if done.error is not None:
                raise done.error
            return done.value

        return value

    def close(self) -> None:
        """Let the object go; calls still open are not waited for."""
        if not self._closed:
            self._closed = True
            self._dispatcher.call(self._dispatcher.placement.remove, self)

    def learn(self, seconds: float) -> None:
        """Calls are sent one by one, so their lengths are of no use."""

    def deliver(self, ends: Sequence[Ended]) -> None:
        """Give calls their ends."""
        for end in ends:
            self.items.pop(end.index, None)
            self._futures.pop(end.index).set_result(end)
