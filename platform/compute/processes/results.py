"""What a `multiprocessing.Pool` hands out for tasks that have not ended, and the one thread that ends it.

Everything that changes a result runs in that thread, in the order of arrival; so callbacks never overlap.
"""

import atexit
import functools
import itertools
import logging
import multiprocessing.pool
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from paddock.algos.pool.calls import Call
from paddock.algos.pool.protocol import Done, End, PoolError, TaskBatch

log = logging.getLogger(__name__)

AHEAD = 32  # chunks of an iterator given out for each worker: short tasks never wait, endless iterables are not drained
EXIT_S = 10.0  # what the end of the program, or of a pool that nobody closed, waits for its workers to go

Callback = Callable[[Any], object]
Taker = Callable[[Any, BaseException | None], object]  # is told the value of a task, or its error


class AsyncResult(multiprocessing.pool.AsyncResult[Any]):
    """The result of a call, or of a map: all its chunks end before the first error among them is raised."""

    _cache: dict[int, Any]
    _job: int

    def __init__(
        self,
        pool: Any,
        chunks: int,
        join: Callable[[list[Any]], Any],
        callback: Callback | None,
        error_callback: Callback | None,
    ) -> None:
        unkept: Any = SimpleNamespace(_cache={})  # the base class would have it kept before it is whole
        super().__init__(unkept, callback and _guarded(callback), error_callback and _guarded(error_callback))
        self._pool, self._cache = pool, pool._cache
        self._values: list[Any] = [None] * chunks  # of each chunk
        self._errors: dict[int, BaseException] = {}
        self._left = chunks
        self._join = join

    def keep(self) -> None:
        """Be among those that the pool waits for, until the end."""
        self._cache[self._job] = self

    def take(self, chunk: int, value: Any, error: BaseException | None) -> None:
        """Take what came of a chunk; the last one ends the result."""
        self._values[chunk] = value
        if error is not None:
            self._errors[chunk] = error
        self._left -= 1
        if self._left == 0:
            self.end()

    def end(self) -> None:
        """Settle the value, and tell those who asked, unless it was abandoned before."""
        if self._job not in self._cache:
            return
        values, self._values = self._values, []
        outcome = (False, self._errors[min(self._errors)]) if self._errors else (True, self._join(values))
        self._set(0, outcome)  # type: ignore[attr-defined]

    def abandon(self, error: BaseException) -> None:
        """End with an error of the pool; callbacks hear nothing of it, as in `multiprocessing`."""
        if self._job in self._cache:
            self._callback = self._error_callback = None
            self._set(0, (False, error))  # type: ignore[attr-defined]


class ResultIterator:
    """The results of `imap` and `imap_unordered`, as `multiprocessing.pool.IMapIterator`."""

    def __init__(self, pool: Any, ordered: bool) -> None:
        self._pool = pool
        self._ordered = ordered
        # Taken by itself: an interrupt within the condition's own methods for it would leave it taken.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._arrived: dict[int, tuple[Any, BaseException | None]] = {}
        self._arrivals = 0
        self._next = 0  # the chunk that is given out next
        self._length: int | None = None  # chunks in all, once known
        self._items: deque[Any] = deque()  # of the chunk that is being given out
        self._abandoned: BaseException | None = None
        self._results: dict[int, Any] = pool._cache
        self._job = next(multiprocessing.pool.job_counter)  # type: ignore[attr-defined]

    def keep(self) -> None:
        """Be among those that the pool waits for, until the last chunk has come."""
        self._results[self._job] = self

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self.next()

    def next(self, timeout: float | None = None) -> Any:
        """The next result, or its exception.

        Raises:
            StopIteration: there was none left.
            multiprocessing.TimeoutError: it has not come after `timeout` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            while not self._items:
                if self._next in self._arrived:
                    values, error = self._arrived[self._next]
                    items = deque(() if error is not None else values)
                    # By one statement without a call, in which no interrupt comes: half of it would lose the chunk.
                    self._items, self._next = items, self._next + 1
                    del self._arrived[self._next - 1]
                    if error is not None:
                        raise error
                elif self._next == self._length:
                    raise StopIteration
                elif self._abandoned is not None:
                    raise self._abandoned
                elif not self._changed.wait(None if deadline is None else deadline - time.monotonic()):
                    raise multiprocessing.TimeoutError
            return self._items.popleft()

    def has_room(self, given: int, size: Callable[[], int]) -> bool:
        """Wait until another chunk may follow those given; False once nobody wants it."""
        with self._lock:
            while self._abandoned is None and given - self._arrivals >= AHEAD * max(size(), 1):
                self._changed.wait()
            return self._abandoned is None

    def take(self, chunk: int, value: Any, error: BaseException | None) -> None:
        """Take what came of a chunk."""
        with self._lock:
            self._arrived[chunk if self._ordered else self._arrivals] = value, error
            self._arrivals += 1
            self._notify()

    def bound(self, length: int, error: BaseException | None) -> None:
        """No chunk follows these; an error of the iterable comes after them."""
        with self._lock:
            self._length = length if error is None else length + 1
        if error is not None:
            self.take(length, None, error)
        with self._lock:
            self._notify()

    def abandon(self, error: BaseException) -> None:
        """Raise an error of the pool once what has arrived is given out."""
        with self._lock:
            self._abandoned = error
            self._notify()

    def _notify(self) -> None:
        if self._arrivals == self._length or self._abandoned is not None:
            self._results.pop(self._job, None)
            self._pool = None  # which may go when nobody else has it
        self._changed.notify_all()


class ResultThread(threading.Thread):
    """Sends calls to workers, ends results and calls callbacks; once nothing can come any more, it lets the pool go."""

    def __init__(
        self,
        open_batch: Callable[[Callable[[Sequence[End]], None]], TaskBatch],
        results: dict[int, Any],
        release: Callable[[], object],
    ) -> None:
        """Take what to serve.

        Args:
            results: those that have not ended; they come and go in it by themselves, as `multiprocessing`'s do.
            release: called in the thread, at its end.
        """
        super().__init__(name="Pool results", daemon=True)
        self._work: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._results = results
        self._release = release
        self._takers: dict[int, Taker] = {}  # of the tasks on their way, by their index
        self._early: dict[int, Done] = {}  # ends that came before it was known who takes them
        self._closing = self._terminated = False
        self._ended = threading.Event()
        self._batch = open_batch(self._deliver)
        atexit.register(
            self.let_go
        )  # runs before Dask's own, which was registered earlier and would take the loop away

    def put(self, call: Call, taker: Taker) -> None:
        """Start a call; the taker is told its end in the thread. Where it cannot be pickled, that error is its end.

        Raises:
            PoolError: the pool is closed, or has failed.
        """
        try:
            index = self._batch.put(call)
        except PoolError:
            raise
        except Exception as error:
            self.do(functools.partial(taker, None, error))
        else:
            self.do(functools.partial(self._expect, index, taker))

    def feed(self, calls: Iterable[Call], results: ResultIterator, size: Callable[[], int]) -> None:
        """Put the calls of an iterable, no more than AHEAD for each worker ahead of their ends."""
        count, failure = 0, None
        try:
            coming = iter(calls)
            while results.has_room(count, size) and (call := next(coming, None)):
                self.put(call, functools.partial(results.take, count))
                count += 1
        except BaseException as error:  # the consumer's thread raises it
            failure = error
        self.do(functools.partial(results.bound, count, failure))

    def do(self, work: Callable[[], object]) -> None:
        """Have something done in the thread, after what came before it."""
        self._work.put(work)

    def close(self) -> None:
        """End after the last open result."""
        self._closing = True
        self.do(_nothing)

    def terminate(self) -> None:
        """End now; what is open ends with a PoolError."""
        self._terminated = True
        self.do(_nothing)

    def let_go(self) -> None:
        """Terminate at the program's end, or as nobody has the pool; the collector may ask in a thread of anybody."""
        self.terminate()
        if threading.current_thread() is threading.main_thread():
            self.join(EXIT_S)

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end of the thread; from within it, do not."""
        if self.is_alive() and threading.current_thread() is not self:
            # Of a join that Ctrl-C interrupts, Thread's own takes the thread for ended, before Python 3.13.
            self._ended.wait(timeout)

    def run(self) -> None:
        """Serve until nothing can come any more."""
        try:
            while not self._terminated and not (self._closing and not self._results):
                work = self._work.get()
                try:
                    work()
                except Exception:
                    log.exception("a result could not be handled")
                # What it refers to, such as a result, may go while the thread waits for more.
                del work
            why = "the pool was terminated before this task ended; close() and join() wait for all"
            for result in list(self._results.values()):
                result.abandon(PoolError(why))
            self._batch.cancel()
            self._release()
        finally:  # not before: a program that ends meanwhile waits for it
            atexit.unregister(self.let_go)
            self._ended.set()

    def _expect(self, index: int, taker: Taker) -> None:
        if index in self._early:
            done = self._early.pop(index)
            taker(done.value, done.error)
        else:
            self._takers[index] = taker

    def _deliver(self, ends: Sequence[End]) -> None:
        for end in ends:  # one by one: a taker that raises keeps no other from its end
            self.do(functools.partial(self._hand_out, end))

    def _hand_out(self, end: End) -> None:
        done = end()
        if done.index in self._takers:
            self._takers.pop(done.index)(done.value, done.error)
        else:
            self._early[done.index] = done


def chain(chunks: list[list[Any]]) -> list[Any]:
    """The values of a map, of those of its chunks."""
    return list(itertools.chain.from_iterable(chunks))


def _guarded(callback: Callback) -> Callback:
    """A callback that harms nobody else when it raises."""

    def call(given: Any) -> None:
        try:
            callback(given)
        except BaseException:  # not even SystemExit may end the thread that others wait for
            log.exception("a callback raised; its result is there all the same")

    return call


def _nothing() -> None:
    pass
