"""The generator functions that plans are made of: lazy, composable, and ended by closing them."""

import asyncio
import collections
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from paddock.algos.pool.protocol import Done, End, Pool, PoolError

Item = TypeVar("Item")


def prefetch(
    source: Generator[Item, None, None], depth: int, waited: Callable[[float], None] = lambda seconds: None
) -> Generator[Item, None, None]:
    """Pull from source in a thread, at most `depth` items ahead; its exception is raised where its item would be.

    Closing this generator ends the thread, once the source has given the item it is at.

    Args:
        waited: is told, in that thread, for how long an item waited until there was room for it.
    """
    thread = PullThread(source, depth, waited)
    try:
        yield from thread
    finally:
        thread.stop()
        thread.join()


class PullThread(Generic[Item]):
    """A thread that pulls from a source, from now on and at most `depth` items ahead; see `prefetch`."""

    def __init__(self, source: Generator[Item, None, None], depth: int, waited: Callable[[float], None]) -> None:
        self._source, self._waited = source, waited
        self._ready: queue.Queue[tuple[bool, Any]] = queue.Queue(depth)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._pull, name="prefetch", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Item]:
        while True:
            more, item = self._ready.get()
            if more:
                yield item
            elif item is None:
                return
            else:
                raise item

    def stop(self) -> None:
        """Ask it to end, once the source has given the item it is at."""
        self._stop.set()

    def join(self) -> None:
        """Wait until it has ended."""
        self._thread.join()

    def _pull(self) -> None:
        asyncio.set_event_loop(asyncio.new_event_loop())  # environments may ask for one
        try:
            for item in self._source:
                if not self._offer(True, item):
                    return
            self._offer(False, None)
        except BaseException as error:
            self._offer(False, error)
        finally:
            self._source.close()

    def _offer(self, more: bool, item: Any) -> bool:
        asked = time.perf_counter()
        while not self._stop.is_set():
            try:
                self._ready.put((more, item), timeout=0.1)
            except queue.Full:
                continue
            self._waited(time.perf_counter() - asked)
            return True
        return False


def minibatches(size: int, batch: int, generator: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """Shuffled indices of range(size) in parts of `batch`; the last part may be smaller."""
    order = generator.permutation(size)
    for start in range(0, size, batch):
        yield order[start : start + batch]


Key = TypeVar("Key")
Result = TypeVar("Result")
Job = Generator[list[Any], list[Done], Result]  # yields tasks, is sent their ends in that order, returns a result


def run_job(pool: Pool, fn: Callable[[Any], Any], job: Job[Result]) -> Result:
    """Run one job on a pool with nothing beside it, and return its result."""
    try:
        tasks = next(job)
        while True:
            tasks = job.send(sorted(pool.imap_unordered(fn, tasks), key=lambda done: done.index))
    except StopIteration as stop:
        return stop.value


class ConcurrentJobs(Generic[Key, Result]):
    """Jobs in flight together on one pool: each goes on as soon as its own tasks have ended, whoever else waits.

    Jobs may be added while it is iterated; it gives (key, result) of each as it ends, in no order that may matter, and
    stops when none is left.
    """

    def __init__(self, pool: Pool, fn: Callable[[Any], Any]) -> None:
        self.worker_s = 0.0  # time spent computing, summed over workers
        self.retries = 0  # tasks started again after a lost worker
        self._arrived: queue.SimpleQueue[End] = queue.SimpleQueue()
        self._batch = pool.open_batch(fn, self._deliver)
        self._waiting: dict[int, tuple[_Running[Key, Result], int]] = {}  # task -> its job, and its place there
        self._ended: collections.deque[tuple[Key, Result]] = collections.deque()

    def add(self, key: Key, job: Job[Result]) -> None:
        """Start a job; its first tasks are put in before this returns."""
        self._advance(_Running(key, job), None)

    def __iter__(self) -> Iterator[tuple[Key, Result]]:
        while self._ended or self._waiting:
            while not self._ended:
                self._take(self._arrived.get()())
            yield self._ended.popleft()

    def gather(self, jobs: Mapping[Key, Job[Result]]) -> dict[Key, Result]:
        """Start jobs, and wait for the results of all; nothing else may be in flight."""
        for key, job in jobs.items():
            self.add(key, job)
        ends = dict(self)
        return {key: ends[key] for key in jobs}

    def close(self) -> None:
        """Give up what is in flight; may be called twice."""
        self._batch.cancel()
        for running, _ in self._waiting.values():
            running.job.close()
        self._waiting.clear()

    def _deliver(self, ends: Sequence[End]) -> None:
        for end in ends:
            self._arrived.put(end)

    def _take(self, done: Done) -> None:
        if isinstance(done.error, PoolError):
            raise done.error
        self.worker_s += done.seconds
        self.retries += done.attempts - 1
        running, place = self._waiting.pop(done.index)
        running.ends[place] = done
        running.missing -= 1
        if not running.missing:
            self._advance(running, running.ends)

    def _advance(self, running: "_Running[Key, Result]", ends: list[Done] | None) -> None:
        try:
            tasks = next(running.job) if ends is None else running.job.send(ends)
            while not tasks:
                tasks = running.job.send([])
        except StopIteration as stop:
            self._ended.append((running.key, stop.value))
            return
        running.missing, running.ends = len(tasks), [_NOT_YET] * len(tasks)
        for place, task in enumerate(tasks):
            self._waiting[self._batch.put(task)] = running, place


@dataclass(eq=False)
class _Running(Generic[Key, Result]):
    key: Key
    job: Job[Result]
    ends: list[Done] = field(default_factory=list)
    missing: int = 0


_NOT_YET = Done(-1)
