"""Hands tasks to workers and takes their ends: the driver's half of the pool, in the client's event loop.

Dask's scheduler knows which workers there are; tasks go to them directly, in chunks that shrink towards the end of a
batch. What a lost worker held runs again elsewhere, alone, so that a task that kills its workers is known by it.

A task, or `Item`:

    put ---> waiting ---> held ---- its end, good or an error too many --------------------> over
               ^           |  |  |
               |           |  |  +-- overdue ------------------------------------------> over: TaskTimeout
               |           |  |
               |           |  +----- lost too often, the last time alone ---> given up ---> over: WorkerLost
               |           |                                      until it is known how the worker ended
               |           +-- its worker returns it, leaves, or is silent (and may still end this copy)
               |           +-- an error with tries left: errors + 1
               |           +-- its worker is lost: losses + 1, and it runs alone from then on; so it does if its worker
               |           |   leaves after it had all of its time
               +-----------+

No task is given up while a worker that speaks has a copy. It is also over when its batch is cancelled, which is
not delivered, or when the pool fails: PoolError. A call of an object is held, lost and over in the same way; it
waits with its object, which moves, and is never alone.
"""

import asyncio
import contextlib
import logging
import threading
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any

from paddock.algos.pool.broadcast import Broadcast
from paddock.algos.pool.protocol import End, PoolError, TaskTimeout

from .actors import ActorPlacement
from .connection import WorkerConnection
from .distribution import feed, rebalance, recall
from .lost_workers import report_loss, take_tasks
from .tasks import DaskBatch, Ended, Item, finish
from .workers import Workers

log = logging.getLogger(__name__)

SILENCE_S = 10.0  # a worker that has given no sign of life for so long is not waited for
REBALANCE_S = 0.02  # between two looks for work that waits behind a long task while others are idle
COPIES = 3  # of a task, on workers that fell silent one after the other


class Dispatcher:
    """Workers and the tasks they have. Methods belong to the loop, unless any thread may call them.

    Attributes:
        failure: why nothing can be added any more.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        retries: int,
        timeout_s: float | None,
        read_exit: Callable[[WorkerConnection], Awaitable[str]],
    ) -> None:
        """Begin without workers.

        Args:
            read_exit: finds out how a worker ended.
        """
        self.workers = Workers()
        self._lock = threading.Lock()  # held where a batch gets tasks, and where all of them are ended
        self.failure: PoolError | None = None
        self.timeout_s = timeout_s
        self._read_exit = read_exit
        self._loop = loop
        self._retries = retries
        self._batches: list[DaskBatch] = []
        self.placement = ActorPlacement(self.workers, timeout_s, self.call, lambda: self.failure)
        self._forgotten: deque[str] = deque()  # ids of broadcasts; finalizers append in any thread
        self._woken = False
        self._rebalancing = False
        self._given_up: set[Item] = set()  # whose end waits for the cause of their last worker's
        self._tasks: set[asyncio.Task[None]] = set()  # which the loop itself would let go

    # From any thread

    def wake(self) -> None:
        """Look for work soon; may be called in any thread."""
        if not self._woken:
            self._woken = True
            self.call(self._feed)

    def call(self, fn: Callable[..., None], *arguments: Any) -> None:
        """Run fn in the loop, if it has not ended; may be called in any thread."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._run, fn, *arguments)

    def open(self, fn: Callable[[Any], Any], deliver: Callable[[Sequence[End]], None], **settings: Any) -> DaskBatch:
        """Open a batch; may be called in any thread."""
        batch = DaskBatch(fn, deliver, self._add, partial(self.call, self._drop), **settings)
        weakref.finalize(batch.function, self._forgotten.append, batch.function.id)
        with self._lock:
            if self.failure is not None:
                raise self.failure
            self._batches.append(batch)
        return batch

    def _add(self, batch: DaskBatch, items: Sequence[Item]) -> None:
        """Add tasks to a batch; called in any thread."""
        with self._lock:  # either the loop sees them as it fails or cancels, or this raises
            if error := batch.cancelled or self.failure:
                raise error
            batch.waiting.extend(items)
            batch.unseen = max(batch.unseen - len(items), 0)
        self.wake()

    def broadcast(self, value: Any) -> Broadcast[Any]:
        """Make a handle that workers forget when it is gone here; may be called in any thread."""
        handle = Broadcast(value)
        handle.data  # noqa: B018  pickled here, so that the caller gets the error
        weakref.finalize(handle, self._forgotten.append, handle.id)
        return handle

    @property
    def backlog(self) -> int:
        """Tasks that no worker has begun."""
        return sum(batch.remaining for batch in self._batches)

    @property
    def waits(self) -> bool:
        """Whether a task waits for a worker, or a call has not ended."""
        return any(batch.waiting for batch in self._batches) or bool(self.placement.open_calls())

    # Workers come and go

    async def serve(self, worker: WorkerConnection) -> None:
        """Give a worker work until it is gone."""
        self.workers[worker.address] = worker
        self.workers.place(worker)
        try:
            self.placement.settle()
            self._feed()
            await worker.talk(self._handle)
        finally:
            self._run(self._lose, worker)

    def watch(self, passed_s: float) -> None:
        """Give the work of silent workers to others; called about once a second.

        Args:
            passed_s: since the last call, as far as this process ran.
        """
        for worker in list(self.workers.values()):
            worker.quiet_s += passed_s
            if worker.items and not worker.silent and worker.quiet_s > SILENCE_S:
                worker.silent = True
                log.warning("worker %s has been silent for %.0f s; others take its tasks", worker.address, SILENCE_S)
                self.workers.place(worker)
                self._requeue(item for item in worker.items.values() if len(item.holders) < COPIES)
                self.placement.leave(worker)
            # A task that holds the interpreter keeps its worker from ending it in time.
            if worker.silent and self.timeout_s is not None and worker.quiet_s > self.timeout_s + SILENCE_S:
                running = list(worker.items.items())[: worker.threads]
                # A copy on another worker has time until that one's is up; and once, the worker may have been stopped.
                late = [n for n, item in running if not item.held and (item.losses or not self._retries)]
                if late:
                    self._overdue(worker, late)
                worker.give_up()
        self._feed()

    def fail(self, error: PoolError) -> None:
        """End everything that is open with this error, or with the one that the pool failed by before."""
        with self._lock:
            failure = self.failure = self.failure or error
            waiting = [item for batch in self._batches for item in batch.waiting]
            for batch in self._batches:
                batch.waiting.clear()
        items = [item for worker in self.workers.values() for item in worker.items.values()]
        items += [*waiting, *self.placement.open_calls(), *self._given_up]
        finish((item, Ended(item, error=failure)) for item in items)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run a coroutine beside everything else; its exception fails the pool."""
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._reap)
        return task

    def close(self) -> None:
        """Let every worker go."""
        for worker in list(self.workers.values()):
            worker.leaving = True
            worker.items.clear()
            worker.abort()

    def _reap(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(_own_fault(error))

    def _run(self, fn: Callable[..., None], *arguments: Any) -> None:
        """Call fn; its exception, which the loop would only log, fails the pool."""
        try:
            fn(*arguments)
        except Exception as error:
            self.fail(_own_fault(error))

    # Work goes out

    def _feed(self) -> None:
        """Send tasks while a worker wants some, in the order of the batches."""
        self._woken = False
        if self.failure is not None:
            return
        ids: set[str] = set()
        while self._forgotten:
            ids.add(self._forgotten.popleft())
        if ids:
            for worker in self.workers.values():
                worker.forget(ids)
        feed(self.workers, self._batches, self.timeout_s)
        if self.workers.idle:
            self._look_again()

    def _look_again(self) -> None:
        if not self._rebalancing:
            self._rebalancing = True
            self._loop.call_later(REBALANCE_S, self._run, self._rebalance)

    def _rebalance(self) -> None:
        self._rebalancing = False
        if self.workers.idle and not any(batch.waiting for batch in self._batches) and rebalance(self.workers):
            self._look_again()

    # Ends come in

    def _handle(self, worker: WorkerConnection, messages: Sequence[tuple[Any, ...]]) -> None:
        spoke_again, worker.silent = worker.silent, False
        for operation, *arguments in messages:
            if operation == "ends":
                finish(self._end(worker, *end) for end in arguments[0])
            elif operation == "returned":
                worker.recalling = False
                returned = [self.workers.release(worker, number) for number in arguments[0]]
                self._requeue(item for item in returned if item is not None)
            elif operation == "overdue":
                self._overdue(worker, arguments[0])
            elif operation == "leaving":
                worker.leaving = worker.retired = True
                self.placement.leave(worker)
        self.workers.place(worker)
        if spoke_again:
            self.placement.settle()
        self._feed()
        if worker.retired and not worker.items:
            worker.abort()  # which shows it that all its messages have come

    def _end(
        self, worker: WorkerConnection, number: int, seconds: float, good: bool, data: bytes
    ) -> tuple[Item, Ended | None]:
        item = self.workers.release(worker, number)
        if item is None or item.over:
            return _NOBODYS, None
        item.source.learn(seconds)
        if good or item.errors >= item.source.retry_errors:
            return item, Ended(item, good, data, seconds)
        item.errors += 1
        self._requeue([item])
        return item, None

    def _overdue(self, worker: WorkerConnection, numbers: Sequence[int]) -> None:
        worker.leaving = True  # the others it has are not to blame for its end
        limit = f"compute.task_timeout_s={self.timeout_s}"
        ends = []
        for number in numbers:
            item = self.workers.release(worker, number)
            if item is not None and not item.over:
                text = f"task {item.index} ran longer than {limit}; raise it or look for a hang"
                ends.append((item, Ended(item, error=TaskTimeout(text), seconds=self.timeout_s or 0.0)))
        finish(ends)

    def _requeue(self, items: Iterable[Item]) -> None:
        """Have tasks wait again, each once, unless they have ended or a worker with a copy may still end it."""
        for item in reversed(list(items)):
            if isinstance(item.source, DaskBatch) and not (item.over or item.waits or item.held):
                item.waits = True
                item.source.waiting.appendleft(item)

    def _drop(self, batch: DaskBatch) -> None:
        """Let go of a batch that was cancelled."""
        if batch not in self._batches:
            return
        with self._lock:
            self._batches.remove(batch)
            batch.waiting.clear()
        for item in self._given_up:
            item.over |= item.source is batch
        for worker in self.workers.values():
            numbers = [number for number, item in worker.items.items() if item.source is batch]
            for number in numbers:
                worker.items[number].over = True
            recall(worker, numbers)

    def _lose(self, worker: WorkerConnection) -> None:
        again, given_up = take_tasks(self.workers, worker, self._retries)
        self._requeue(again)
        self.placement.leave(worker)
        if (again or given_up) and (worker.retired or not worker.leaving) and self.failure is None:
            self._given_up.update(given_up)
            reporting = self.spawn(report_loss(worker, self._read_exit, len(again), given_up))
            reporting.add_done_callback(lambda _: self._given_up.difference_update(given_up))
        self._feed()


def _own_fault(error: BaseException) -> PoolError:
    """Return the error by which an exception of this process fails the pool."""
    log.error("the pool failed by an error of its own", exc_info=error)
    failure = PoolError(f"the pool failed ({type(error).__name__}: {error}); the log has the traceback")
    failure.__cause__ = error
    return failure


_NOBODYS = Item(None, -1, b"", ())
