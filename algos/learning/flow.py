"""Lazy, composable generator functions that plans are built from."""

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
    """Pull from a source in a thread, at most `depth` items ahead; its exception is raised instead of yielding an item.

    Closing this generator ends the thread after the source's current item. `waited` is called in the thread with the
    seconds that an item waited for a free slot.
    """
    thread = PullThread(source, depth, waited)
    try:
        yield from thread
    finally:
        thread.stop()
        thread.join()


class PullThread(Generic[Item]):
    """Thread that pulls from a source, at most `depth` items ahead; see `prefetch`."""

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
        """Request the end of the thread after the source's current item."""
        self._stop.set()

    def join(self) -> None:
        """Wait for the thread to end."""
        self._thread.join()

    def _pull(self) -> None:
        asyncio.set_event_loop(asyncio.new_event_loop())  # environments may need one
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
    """Yield shuffled indices of range(size) in minibatches of `batch`; the last may be smaller."""
    order = generator.permutation(size)
    for start in range(0, size, batch):
        yield order[start : start + batch]


Key = TypeVar("Key")
Result = TypeVar("Result")
Job = Generator[list[Any], list[Done], Result]  # yields tasks, receives their results in order, returns a result


def run_job(pool: Pool, fn: Callable[[Any], Any], job: Job[Result]) -> Result:
    """Run one job on a pool and return its result."""
    try:
        tasks = next(job)
        while True:
            tasks = job.send(sorted(pool.imap_unordered(fn, tasks), key=lambda done: done.index))
    except StopIteration as stop:
        return stop.value


class ConcurrentJobs(Generic[Key, Result]):
    """Concurrent jobs on one pool; each continues as soon as its own tasks have finished.

    Iteration yields (key, result) of each job as it finishes and stops when none is left; jobs may be added meanwhile.
    """

    def __init__(self, pool: Pool, fn: Callable[[Any], Any]) -> None:
        self.worker_s = 0.0  # time spent computing, summed over workers
        self.retries = 0  # tasks restarted after a lost worker
        self._arrived: queue.SimpleQueue[End] = queue.SimpleQueue()
        self._batch = pool.open_batch(fn, self._deliver)
        self._waiting: dict[int, tuple[_Running[Key, Result], int]] = {}  # task -> (its job, its index there)
        self._ended: collections.deque[tuple[Key, Result]] = collections.deque()

    def add(self, key: Key, job: Job[Result]) -> None:
        """Start a job and submit its first tasks."""
        self._advance(_Running(key, job), None)

    def __iter__(self) -> Iterator[tuple[Key, Result]]:
        while self._ended or self._waiting:
            while not self._ended:
                self._take(self._arrived.get()())
            yield self._ended.popleft()

    def gather(self, jobs: Mapping[Key, Job[Result]]) -> dict[Key, Result]:
        """Start jobs and wait for all results; no other jobs may be running."""
        for key, job in jobs.items():
            self.add(key, job)
        ends = dict(self)
        return {key: ends[key] for key in jobs}

    def close(self) -> None:
        """Cancel running jobs; idempotent."""
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
