"""Hands tasks to workers and takes their ends: the driver's half of the pool, in the client's event loop.

Dask's scheduler says which workers there are; tasks go to them directly, in chunks that shrink towards the end of a
batch. What a lost worker held runs again elsewhere, alone, so that a task that kills its workers is known by it.
"""

import asyncio
import contextlib
import itertools
import logging
import time
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from algos.pool.broadcast import Broadcast
from algos.pool.protocol import End, PoolError, TaskTimeout, WorkerLost
from algos.pool.script import Script, dump

from .actor_handle import Remote
from .actor_placement import Homes
from .connection import Link, as_tuple
from .tasks import LONG_S, Batch, Ended, Item, chunk_size, drain

log = logging.getLogger(__name__)

SILENCE_S = 10.0  # a worker that has given no sign of life for so long is not waited for
COPIES = 3  # of a task, on workers that fell silent one after the other
REBALANCE_S = 0.02  # between two looks for work that waits behind a long task while others are idle


class Dispatcher:
    """Workers and the tasks they have. Methods belong to the loop, except where they say that any thread may call."""

    def __init__(self, loop: asyncio.AbstractEventLoop, retries: int, timeout_s: float | None) -> None:
        self.links: dict[str, Link] = {}
        self.slots = 0  # threads of the workers that may be given work
        self.failure: PoolError | None = None
        self.script: Script | None = None  # where every worker has it
        self.obituary: Callable[[Link], Any] = _no_obituary  # coroutine: how a worker ended, in words
        self._loop = loop
        self._retries = retries
        self.timeout_s = timeout_s
        self._numbers = itertools.count()
        self._batches: list[Batch] = []
        self.homes = Homes(self)
        self._idle: dict[Link, None] = {}  # with a thread free
        self._hungry: dict[Link, None] = {}  # whose threads are taken, with little behind them
        self._forgotten: deque[str] = deque()  # ids of broadcasts; finalizers append in any thread
        self._means: dict[str, float] = {}  # of tasks, by their function's name
        self._woken = False
        self._rebalancing = False
        self._tasks: set[asyncio.Task[None]] = set()  # which the loop itself would let go
        self._given_up: set[Item] = set()  # whose end waits for the cause of their last worker's

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

    def open(self, fn: Callable[[Any], Any], deliver: Callable[[Sequence[End]], None], **settings: Any) -> Batch:
        """Open a batch; may be called in any thread."""
        if self.failure is not None:
            raise self.failure
        name = _name(fn)
        batch = Batch(name, fn, deliver, self, mean_s=self._means.get(name), **settings)
        weakref.finalize(batch.function, self._forgotten.append, batch.function.id)
        self.call(self._batches.append, batch)
        return batch

    def broadcast(self, value: Any) -> Broadcast[Any]:
        """Make a handle that workers forget when it is gone here; may be called in any thread."""
        handle = Broadcast(value)
        handle.pickle(self.script)  # here, where whoever called hears of it if it cannot be
        weakref.finalize(handle, self._forgotten.append, handle.id)
        return handle

    def dump(self, value: Any) -> bytes:
        """Pickle something for the workers; may be called in any thread."""
        return dump(value, self.script)

    def backlog(self) -> tuple[int, float]:
        """Tasks that no worker has begun, and the work in them, in seconds, as far as is known."""
        tasks = sum(batch.remaining for batch in self._batches)
        return tasks, sum(batch.remaining * (batch.mean_s or 0.0) for batch in self._batches)

    # Workers come and go

    async def serve(self, link: Link) -> None:
        """Give a worker work until it is gone."""
        self.links[link.address] = link
        self.place(link)
        try:
            self.homes.settle()
            self._feed()
            await link.talk(self._heed)
        finally:
            self._run(self._lose, link)

    def watch(self) -> None:
        """Give the work of silent workers to others; called about once a second."""
        now = time.monotonic()
        for link in list(self.links.values()):
            quiet_s = now - link.heard
            if link.items and not link.silent and quiet_s > SILENCE_S:
                link.silent = True
                log.warning("worker %s has been silent for %.0f s; others take its tasks", link.address, quiet_s)
                self.place(link)
                held = [item for item in link.items.values() if not item.over and len(item.holders) < COPIES]
                self._requeue(item for item in held if all(holder.silent for holder in item.holders))
                self.homes.leave(link)
            # A task that holds the interpreter keeps its worker from ending it in time.
            if link.silent and self.timeout_s is not None and quiet_s > self.timeout_s + SILENCE_S:
                running = list(link.items.items())[: link.threads]
                # What another worker plays too is in time until that one's is up.
                self._overdue(link, [n for n, item in running if all(holder.silent for holder in item.holders)])
                link.abort()
        self._feed()

    def fail(self, error: PoolError) -> None:
        """End everything that is open with this error."""
        self.failure = self.failure or error
        items = [item for link in self.links.values() for item in link.items.values()]
        items += [*self.homes.open_calls(), *self._given_up]
        for batch in self._batches:
            items += drain(batch.waiting)
        self.finish((item, Ended(item, error=error)) for item in items)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run a coroutine beside everything else; its exception fails the pool."""
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._reap)
        return task

    def close(self) -> None:
        """Let every worker go."""
        for link in list(self.links.values()):
            link.leaving = True
            link.items.clear()
            link.abort()

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
        """Send tasks while a worker wants some: urgent ones first, then in the order of the batches."""
        self._woken = False
        if self.failure is not None:
            self.fail(self.failure)  # what came in while it failed
            return
        if self._forgotten:
            ids = set(drain(self._forgotten))
            for link in self.links.values():
                link.forget(ids)
        for batch in sorted(self._batches, key=lambda batch: not batch.urgent):
            while batch.waiting and (wanting := self._room(batch)) is not None:
                self._give(wanting, batch)
        if self._idle:
            self._look_again()

    def _room(self, batch: Batch) -> Link | None:
        alone = batch.waiting[0].alone
        for link in self._idle:
            if link.parallel(batch.needs) and not (alone and link.items):
                return link
        if batch.mean_s is None or batch.mean_s > LONG_S or alone:
            return None
        return next((link for link in self._hungry if link.parallel(batch.needs)), None)

    def _give(self, link: Link, batch: Batch) -> None:
        threads = link.parallel(batch.needs)
        size = chunk_size(batch.remaining, self.slots // batch.needs.cpu, threads, batch.mean_s)
        if batch.mean_s is None:
            size = max(size - len(link.items), 1)
        items: list[Item] = []
        while batch.waiting and len(items) < size and not (items and (items[-1].alone or batch.waiting[0].alone)):
            item = batch.waiting.popleft()
            if not item.over:
                items.append(item)
        if not items:
            return
        link.share(batch.blobs)
        for item in items:
            if item.blobs:
                link.share(item.blobs)
        sent = [(self.hold(link, item, batch.mean_s), item.data) for item in items]
        cpu, memory_gb, gpu = as_tuple(batch.needs)
        needs = (link.threads if items[0].alone else cpu, memory_gb, gpu)
        link.send("run", batch.function.id, sent, needs, batch.urgent, self.timeout_s, batch.renew_after)
        self.place(link)

    def hold(self, link: Link, item: Item, seconds: float | None) -> int:
        """Note that a worker has an item; returns the number under which it knows it."""
        number = next(self._numbers)
        link.items[number] = item
        item.holders.append(link)
        item.seconds = 1.0 if seconds is None else seconds
        link.expected_s += item.seconds
        link.alone |= item.alone
        return number

    def _release(self, link: Link, number: int) -> Item | None:
        item = link.items.pop(number, None)
        if item is not None:
            item.holders.remove(link)
            link.expected_s -= item.seconds
            link.alone &= not item.alone
            if not link.items:
                link.expected_s, link.alone, link.idle_since = 0.0, False, time.monotonic()
        return item

    def place(self, link: Link) -> None:
        """Note whether a worker may be given work, and wants some."""
        usable = link.usable and link.address in self.links
        if usable != link.counted:
            link.counted = usable
            self.slots += link.threads if usable else -link.threads
        self._idle.pop(link, None)
        self._hungry.pop(link, None)
        if usable and not link.alone:
            if len(link.items) < link.threads:
                self._idle[link] = None
            elif link.hungry:
                self._hungry[link] = None

    def _rebalance(self) -> None:
        """Call back what waits on one worker while another has nothing."""
        self._rebalancing = False
        if not self._idle or any(batch.waiting for batch in self._batches):
            return
        rich = [link for link in self.links.values() if len(link.items) > link.threads and not link.recalling]
        rich.sort(key=lambda link: link.expected_s, reverse=True)
        for link in rich[: len(self._idle)]:
            begun = link.threads
            tasks = [number for number, item in link.items.items() if isinstance(item.source, Batch)][begun:]
            if tasks:
                self._recall(link, tasks[len(tasks) // 2 :])
                self._look_again()

    def _look_again(self) -> None:
        if not self._rebalancing:
            self._rebalancing = True
            self._loop.call_later(REBALANCE_S, self._run, self._rebalance)

    def _recall(self, link: Link, numbers: list[int]) -> None:
        tasks = [number for number in numbers if isinstance(link.items[number].source, Batch)]
        if tasks:
            link.recalling = True
            link.send("recall", tasks)

    # Ends come in

    def _heed(self, link: Link, messages: Sequence[tuple[Any, ...]]) -> None:
        link.silent = False
        for operation, *arguments in messages:
            if operation == "ends":
                self.finish(self._judge(link, *end) for end in arguments[0])
            elif operation == "returned":
                link.recalling = False
                returned = [self._release(link, number) for number in arguments[0]]
                self._requeue(item for item in returned if item is not None)
            elif operation == "overdue":
                self._overdue(link, arguments[0])
            elif operation == "leaving":
                link.leaving = True
                self.homes.leave(link)
        self.place(link)
        self._feed()

    def _judge(self, link: Link, number: int, seconds: float, good: bool, data: bytes) -> tuple[Item, Ended | None]:
        item = self._release(link, number)
        if item is None or item.over:
            return _NOBODYS, None
        item.source.learn(seconds)
        if not good and item.errors < item.source.retry_errors:
            item.errors += 1
            self._requeue([item])
            return item, None
        return item, Ended(item, good, data, seconds)

    def _overdue(self, link: Link, numbers: Sequence[int]) -> None:
        link.leaving = True  # the others it has are not to blame for its end
        limit = f"compute.task_timeout_s={self.timeout_s}"
        ends = []
        for number in numbers:
            item = self._release(link, number)
            if item is not None and not item.over:
                text = f"task {item.index} ran longer than {limit}; raise it or look for a hang"
                ends.append((item, Ended(item, error=TaskTimeout(text), seconds=self.timeout_s or 0.0)))
        self.finish(ends)

    def finish(self, ends: Iterable[tuple[Item, Ended | None]]) -> None:
        """Tell each source what of its own has ended."""
        told: dict[Any, list[End]] = {}
        for item, end in ends:
            if end is not None and not item.over:
                item.over = True
                told.setdefault(item.source, []).append(end)
        for source, its in told.items():
            try:
                source.deliver(its)
            except Exception:
                log.exception("what receives the ends of tasks raised; %d of them are lost to it", len(its))

    def _requeue(self, items: Iterable[Item]) -> None:
        for item in reversed([item for item in items if not item.over]):
            if isinstance(item.source, Batch):
                item.source.waiting.appendleft(item)

    def drop(self, batch: Batch) -> None:
        """Let go of a batch that was cancelled."""
        if batch not in self._batches:
            return
        self._batches.remove(batch)
        if batch.mean_s is not None:
            self._means[batch.name] = batch.mean_s
        batch.waiting.clear()
        for link in self.links.values():
            numbers = [number for number, item in link.items.items() if item.source is batch]
            for number in numbers:
                link.items[number].over = True
            self._recall(link, numbers)

    # Losses

    def _lose(self, link: Link) -> None:
        self.links.pop(link.address, None)
        self.place(link)
        unended = [item for item in link.items.values() if not item.over]
        by_itself = len(link.items) == 1
        running = {item.source: item for item in reversed(unended) if isinstance(item.source, Remote)}
        given_up: list[Item] = []
        again: list[Item] = []
        for number in list(link.items):
            self._release(link, number)
        for item in unended:
            remote = item.source if isinstance(item.source, Remote) else None
            if not link.leaving and (remote is None or running[remote] is item):
                item.losses += 1
                if item.losses > self._retries and (by_itself or remote is not None):
                    given_up.append(item)
                    if remote is not None:
                        del remote.items[item.index]
                    continue
                item.alone = remote is None
            if not item.holders:
                again.append(item)
        self._requeue(again)
        self.homes.leave(link)
        if unended and not link.leaving and self.failure is None:
            self._given_up.update(given_up)
            self.spawn(self._mourn(link, given_up, len(again)))
        self._feed()

    async def _mourn(self, link: Link, given_up: list[Item], again: int) -> None:
        """Say what became of a worker's tasks, once it is known how it ended."""
        try:
            cause = await self.obituary(link)
        except Exception as error:
            log.warning("nobody can say how worker %s ended (%s: %s)", link.address, type(error).__name__, error)
            cause = await _no_obituary(link)
        if again:
            tasks = f"{again} task{'s' if again > 1 else ''}"
            log.warning("a worker was lost, %s: %s; %s of it run again", link.address, cause.partition("\n")[0], tasks)
        ends = []
        for item in given_up:
            text = f"task {item.index} lost its worker {item.losses} times, the last at {link.address}: {cause}"
            ends.append((item, Ended(item, error=WorkerLost(text))))
        self._given_up.difference_update(given_up)
        self.finish(ends)


async def _no_obituary(link: Link) -> str:
    return "its process or machine ended"


def _own_fault(error: BaseException) -> PoolError:
    """An exception that is no worker's and no task's, as what fails the pool."""
    log.error("the pool has a fault of its own", exc_info=error)
    failure = PoolError(f"the pool has a fault of its own ({type(error).__name__}: {error}); its log has the traceback")
    failure.__cause__ = error
    return failure


def _name(fn: Any) -> str:
    """What tells functions apart whose tasks take different times."""
    inner = getattr(fn, "func", fn)
    return f"{getattr(inner, '__module__', '')}.{getattr(inner, '__qualname__', type(inner).__name__)}"


_NOBODYS = Item(None, -1, b"", ())
