"""Dispatcher of tasks to workers: the driver's half of the pool, in the client's event loop.

Dask's scheduler provides the list of workers; tasks are sent to them directly, in chunks that shrink towards the end of
a batch. Tasks of a lost worker run again elsewhere, alone, so that a task that kills its workers is identified.

A task, or `Item`:

    put ---> waiting ---> held ---- result, or an error without retries left --------------> over
               ^           |  |  |
               |           |  |  +-- overdue ------------------------------------------> over: TaskTimeout
               |           |  |
               |           |  +----- lost too often, the last time alone ---> given up ---> over: WorkerLost
               |           |                                      until the cause of the exit is known
               |           +-- its worker returns it, leaves, or is silent (and may still finish this copy)
               |           +-- an error with retries left: errors + 1
               |           +-- its worker is lost: losses + 1, and it runs alone from then on; the same if its worker
               |           |   leaves although the task had its full lifetime
               +-----------+

No task is given up while a responsive worker has a copy. A task is also over when its batch is cancelled, which is not
delivered, or when the pool fails with PoolError. Calls of objects have the same states; they wait with their object,
which moves, and never run alone.
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

SILENCE_S = 10.0  # a worker without messages for so long counts as silent
REBALANCE_S = 0.02  # between checks for tasks that wait behind a long one while other workers are idle
COPIES = 3  # of a task at most, on workers that became silent one after the other


class Dispatcher:
    """Workers and their tasks. Methods run in the event loop, unless they are documented as thread-safe.

    Attributes:
        failure: error of a pool that accepts no more tasks.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        retries: int,
        timeout_s: float | None,
        read_exit: Callable[[WorkerConnection], Awaitable[str]],
    ) -> None:
        """Start without workers; `read_exit` returns why a worker exited."""
        self.workers = Workers()
        self._lock = threading.Lock()  # held while tasks are added to a batch or failed
        self.failure: PoolError | None = None
        self.timeout_s = timeout_s
        self._read_exit = read_exit
        self._loop = loop
        self._retries = retries
        self._batches: list[DaskBatch] = []
        self.placement = ActorPlacement(self.workers, timeout_s, self.call, lambda: self.failure)
        self._forgotten: deque[str] = deque()  # ids of broadcasts; finalizers append from any thread
        self._woken = False
        self._rebalancing = False
        self._given_up: set[Item] = set()  # waiting for the cause of their last worker's exit
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself keeps only weak references

    # Thread-safe

    def wake(self) -> None:
        """Schedule a search for work (thread-safe)."""
        if not self._woken:
            self._woken = True
            self.call(self._feed)

    def call(self, fn: Callable[..., None], *arguments: Any) -> None:
        """Run fn in the loop, unless the loop has stopped (thread-safe)."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._run, fn, *arguments)

    def open(self, fn: Callable[[Any], Any], deliver: Callable[[Sequence[End]], None], **settings: Any) -> DaskBatch:
        """Open a batch (thread-safe)."""
        batch = DaskBatch(fn, deliver, self._add, partial(self.call, self._drop), **settings)
        weakref.finalize(batch.function, self._forgotten.append, batch.function.id)
        with self._lock:
            if self.failure is not None:
                raise self.failure
            self._batches.append(batch)
        return batch

    def _add(self, batch: DaskBatch, items: Sequence[Item]) -> None:
        """Add tasks to a batch (thread-safe)."""
        with self._lock:  # a failing or cancelling loop sees the tasks, or this raises
            if error := batch.cancelled or self.failure:
                raise error
            batch.waiting.extend(items)
            batch.unseen = max(batch.unseen - len(items), 0)
        self.wake()

    def broadcast(self, value: Any) -> Broadcast[Any]:
        """Return a handle whose value workers delete when the handle is deleted here (thread-safe)."""
        handle = Broadcast(value)
        handle.data  # noqa: B018  pickles here, so that the caller gets the error
        weakref.finalize(handle, self._forgotten.append, handle.id)
        return handle

    @property
    def backlog(self) -> int:
        """Return the number of tasks that no worker has."""
        return sum(batch.remaining for batch in self._batches)

    # Workers come and go

    async def serve(self, worker: WorkerConnection) -> None:
        """Send work to a worker until its connection ends."""
        self.workers[worker.address] = worker
        self.workers.place(worker)
        try:
            self.placement.rebalance()
            self._feed()
            await worker.talk(self._handle)
        finally:
            self._run(self._lose, worker)

    def watch(self, passed_s: float) -> None:
        """Reassign tasks of silent workers; called about once a second.

        Args:
            passed_s: time since the last call, counting only time in which this process ran.
        """
        for worker in list(self.workers.values()):
            worker.quiet_s += passed_s
            if worker.items and not worker.silent and worker.quiet_s > SILENCE_S:
                worker.silent = True
                log.warning("worker %s has been silent for %.0f s; reassigning its tasks", worker.address, SILENCE_S)
                self.workers.place(worker)
                self._requeue(item for item in worker.items.values() if len(item.holders) < COPIES)
                self.placement.leave(worker)
            # A worker cannot time out a task that holds the GIL.
            if worker.silent and self.timeout_s is not None and worker.quiet_s > self.timeout_s + SILENCE_S:
                running = list(worker.items.items())[: worker.threads]
                # A copy elsewhere has its own time limit. The first time, the worker may just have been stopped.
                late = [n for n, item in running if not item.held and (item.losses or not self._retries)]
                if late:
                    self._overdue(worker, late)
                worker.give_up()
        self._feed()

    def fail(self, error: PoolError) -> None:
        """Fail all unfinished tasks with this error, or with the pool's earlier failure."""
        with self._lock:
            failure = self.failure = self.failure or error
            waiting = [item for batch in self._batches for item in batch.waiting]
            for batch in self._batches:
                batch.waiting.clear()
        items = [item for worker in self.workers.values() for item in worker.items.values()]
        items += [*waiting, *self.placement.open_calls(), *self._given_up]
        finish((item, Ended(item, error=failure)) for item in items)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run a coroutine concurrently; its exception fails the pool."""
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._reap)
        return task

    def close(self) -> None:
        """Disconnect from all workers."""
        for worker in list(self.workers.values()):
            worker.leaving = True
            worker.items.clear()
            worker.abort()

    def _reap(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(_internal_error(error))

    def _run(self, fn: Callable[..., None], *arguments: Any) -> None:
        """Call fn; its exception fails the pool, whereas the loop would only log it."""
        try:
            fn(*arguments)
        except Exception as error:
            self.fail(_internal_error(error))

    # Sending work

    def _feed(self) -> None:
        """Send tasks while workers want some, in the order of the batches."""
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
            self._schedule_rebalance()

    def _schedule_rebalance(self) -> None:
        if not self._rebalancing:
            self._rebalancing = True
            self._loop.call_later(REBALANCE_S, self._run, self._rebalance)

    def _rebalance(self) -> None:
        self._rebalancing = False
        if self.workers.idle and not any(batch.waiting for batch in self._batches) and rebalance(self.workers):
            self._schedule_rebalance()

    # Receiving results

    def _handle(self, worker: WorkerConnection, messages: Sequence[tuple[Any, ...]]) -> None:
        was_silent, worker.silent = worker.silent, False
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
        if was_silent:
            self.placement.rebalance()
        self._feed()
        if worker.retired and not worker.items:
            worker.abort()  # tells the worker that all its messages have arrived

    def _end(
        self, worker: WorkerConnection, number: int, seconds: float, good: bool, data: bytes
    ) -> tuple[Item, Ended | None]:
        item = self.workers.release(worker, number)
        if item is None or item.over:
            return _UNKNOWN, None
        item.source.record_duration(seconds)
        if good or item.errors >= item.source.retry_errors:
            return item, Ended(item, good, data, seconds)
        item.errors += 1
        self._requeue([item])
        return item, None

    def _overdue(self, worker: WorkerConnection, numbers: Sequence[int]) -> None:
        worker.leaving = True  # its other tasks did not cause its exit
        limit = f"compute.task_timeout_s={self.timeout_s}"
        ends = []
        for number in numbers:
            item = self.workers.release(worker, number)
            if item is not None and not item.over:
                text = f"task {item.index} ran longer than {limit}; increase it, or check whether the task hangs"
                ends.append((item, Ended(item, error=TaskTimeout(text), seconds=self.timeout_s or 0.0)))
        finish(ends)

    def _requeue(self, items: Iterable[Item]) -> None:
        """Queue tasks again, each once, unless they are over or a responsive worker has a copy."""
        for item in reversed(list(items)):
            if isinstance(item.source, DaskBatch) and not (item.over or item.waits or item.held):
                item.waits = True
                item.source.waiting.appendleft(item)

    def _drop(self, batch: DaskBatch) -> None:
        """Remove a cancelled batch."""
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


def _internal_error(error: BaseException) -> PoolError:
    """Return the pool's failure for an unexpected exception in this process."""
    log.error("internal error of the worker pool", exc_info=error)
    failure = PoolError(f"internal error of the worker pool ({type(error).__name__}: {error}); see the log")
    failure.__cause__ = error
    return failure


_UNKNOWN = Item(None, -1, b"", ())
