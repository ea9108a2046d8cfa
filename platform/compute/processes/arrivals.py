"""What comes of a `multiprocess.Pool`'s tasks: who waits for it, and the one thread that tells them.

Everything that changes a result runs in that thread, in the order of arrival; so callbacks never overlap.
"""

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from algos.pool.protocol import Batch, Done, End, PoolError

log = logging.getLogger(__name__)

Outcome = tuple[Any, BaseException | None]  # the values of a chunk, or what went wrong


class Result(Protocol):
    """Something that somebody waits for."""

    def abandon(self, error: BaseException) -> None: ...


class ResultThread:
    """Ends results and calls callbacks; once nothing can come any more, it lets the pool go."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._open: set[Result] = set()
        self._closing = False
        self._terminated = False
        self._thread = threading.Thread(target=self._run, name="Pool results", daemon=True)
        self._release: Callable[[], None] = lambda: None

    def start(self, release: Callable[[], None]) -> None:
        """Begin.

        Args:
            release: lets the pool go; called in the thread, at its end.
        """
        self._release = release
        self._thread.start()

    def do(self, work: Callable[[], None]) -> None:
        """Have something done in the thread, after what came before it."""
        self._work.put(work)

    def expect(self, result: Result) -> None:
        """Stay until this result has ended."""
        self._open.add(result)

    def over(self, result: Result) -> None:
        """This result has ended, or will never."""
        self._open.discard(result)

    def close(self) -> None:
        """End after the last open result."""
        self._closing = True
        self._work.put(lambda: None)

    def terminate(self) -> None:
        """End now; what is open ends with a PoolError."""
        self._terminated = True
        self._work.put(lambda: None)

    def join(self, timeout_s: float | None = None) -> None:
        """Wait for the end of the thread; from within it, do not."""
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._terminated and not (self._closing and not self._open):
            work = self._work.get()
            try:
                work()
            except Exception:
                log.exception("a result could not be handled")
            # What it refers to, such as a result, may go while the thread waits for more.
            del work
        for result in list(self._open):
            result.abandon(PoolError("the pool was terminated before this task ended; close() and join() wait for all"))
        self._release()


class Dispatch:
    """A batch of the pool whose ends find who waits for them."""

    def __init__(self, open_batch: Callable[[Callable[[Sequence[End]], None]], Batch], thread: ResultThread) -> None:
        self._thread = thread
        self._waiting: dict[int, Callable[[Outcome], None]] = {}
        # Held while a task is put, so that no end is looked up before its index is known. A pool in this process runs
        # the task meanwhile, which may put another.
        self._lock = threading.RLock()
        self._batch: Batch | None = None
        self._failure: Exception | None = None
        try:
            self._batch = open_batch(lambda ends: thread.do(lambda: self._take(ends)))
        except PoolError:
            raise
        except Exception as error:  # the function cannot be pickled
            self._failure = error

    def put(self, task: Any, then: Callable[[Outcome], None]) -> None:
        """Add a task; `then` is called with what comes of it, in the results' thread.

        Where it cannot be pickled, or the function could not, that error is its end.

        Raises:
            PoolError: the pool is closed, or the batch was cancelled.
        """
        try:
            if self._batch is None:
                assert self._failure is not None
                raise self._failure
            with self._lock:
                self._waiting[self._batch.put(task)] = then
        except PoolError:
            raise
        except Exception as error:
            outcome = None, error
            self._thread.do(lambda: then(outcome))

    def cancel(self) -> None:
        """Give up what has not ended."""
        if self._batch is not None:
            self._batch.cancel()

    def _take(self, ends: Sequence[End]) -> None:
        for end in ends:
            done: Done = end()
            with self._lock:
                then = self._waiting.pop(done.index)
            then((done.value, done.error))
