"""What a `multiprocess.Pool` hands out for tasks that have not ended."""

import functools
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import TimeoutError
from typing import Any

from .arrivals import Dispatch, Outcome, ResultThread

log = logging.getLogger(__name__)

AHEAD = (
    32  # chunks of an iterator given out for each worker: short tasks never wait, an endless iterable is not drained
)

Callback = Callable[[Any], object]


class AsyncResult:
    """The result of a call, or of a map over chunks, as `multiprocessing.pool.AsyncResult`."""

    def __init__(
        self,
        chunks: int,
        join: Callable[[list[Any]], Any],
        callback: Callback | None,
        error_callback: Callback | None,
        ended: Callable[["AsyncResult"], None],
    ) -> None:
        self._values: list[Any] = [None] * chunks  # of each chunk
        self._left = chunks
        self._join = join
        self._callback = callback
        self._error_callback = error_callback
        self._ended = ended
        self._failed = chunks  # the first chunk that failed
        self._error: BaseException | None = None
        self._value: Any = None
        self._event = threading.Event()

    def ready(self) -> bool:
        """Whether the call has ended."""
        return self._event.is_set()

    def successful(self) -> bool:
        """Whether it ended without an exception.

        Raises:
            ValueError: it has not ended.
        """
        if not self.ready():
            raise ValueError(f"{self!r} not ready")
        return self._error is None

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the end, at most `timeout` seconds."""
        self._event.wait(timeout)

    def get(self, timeout: float | None = None) -> Any:
        """Wait for the value and return it, or raise the call's exception.

        Raises:
            multiprocessing.TimeoutError: it has not ended after `timeout` seconds.
        """
        self.wait(timeout)
        if not self.ready():
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._value

    def take(self, chunk: int, outcome: Outcome) -> None:
        """Take what came of a chunk; the last one ends the result."""
        self._values[chunk], error = outcome
        if error is not None and chunk < self._failed:
            self._failed, self._error = chunk, error
        self._left -= 1
        if self._left == 0:
            self.end()

    def end(self) -> None:
        """Settle the value, and tell those who asked."""
        if self._error is None:
            self._value = self._join(self._values)
        self._values = []
        self._leave()
        callback, given = self._callback, self._value
        if self._error is not None:
            callback, given = self._error_callback, self._error
        if callback is not None:
            try:
                callback(given)
            except BaseException:  # not even SystemExit may end the thread that others wait for
                log.exception("a callback raised; its result is there all the same")
        self._event.set()

    def abandon(self, error: BaseException) -> None:
        """End with an error of the pool; callbacks hear nothing of it, as in `multiprocessing`."""
        self._error = error
        self._leave()
        self._event.set()

    def _leave(self) -> None:
        ended, self._ended = self._ended, _nothing
        ended(self)


class ResultIterator:
    """The results of `imap` and `imap_unordered`, as `multiprocessing.pool.IMapIterator`."""

    def __init__(self, ordered: bool, ended: Callable[["ResultIterator"], None]) -> None:
        self._ordered = ordered
        self._ended = ended
        self._changed = threading.Condition()
        self._arrived: dict[int, Outcome] = {}
        self._arrivals = 0
        self._next = 0  # the chunk that is given out next
        self._length: int | None = None  # chunks in all, once known
        self._items: deque[Any] = deque()  # of the chunk that is being given out
        self._abandoned: BaseException | None = None

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
        with self._changed:
            while not self._items:
                if self._next in self._arrived:
                    values, error = self._arrived.pop(self._next)
                    self._next += 1
                    if error is not None:
                        raise error
                    self._items.extend(values)
                elif self._next == self._length:
                    raise StopIteration
                elif self._abandoned is not None:
                    raise self._abandoned
                elif not self._changed.wait(None if deadline is None else deadline - time.monotonic()):
                    raise TimeoutError
            return self._items.popleft()

    def has_room(self, given: int, size: Callable[[], int]) -> bool:
        """Wait until another chunk may follow those given; False once nobody wants it."""
        with self._changed:
            while self._abandoned is None and given - self._arrivals >= AHEAD * max(size(), 1):
                self._changed.wait()
            return self._abandoned is None

    def take(self, chunk: int, outcome: Outcome) -> None:
        """Take what came of a chunk."""
        with self._changed:
            self._arrived[chunk if self._ordered else self._arrivals] = outcome
            self._arrivals += 1
            self._changed.notify_all()
        self._end_if_complete()

    def bound(self, length: int, error: BaseException | None) -> None:
        """No chunk follows these; an error of the iterable comes after them."""
        if error is not None:
            self.take(length, (None, error))
            length += 1
        with self._changed:
            self._length = length
            self._changed.notify_all()
        self._end_if_complete()

    def abandon(self, error: BaseException) -> None:
        """Raise an error of the pool once what has arrived is given out."""
        with self._changed:
            self._abandoned = error
            self._changed.notify_all()
        self._leave()

    def _end_if_complete(self) -> None:
        if self._arrivals == self._length:
            self._leave()

    def _leave(self) -> None:
        ended, self._ended = self._ended, _nothing
        ended(self)


def feed(
    iterable: Iterable[Any],
    chunksize: int,
    dispatch: Dispatch,
    results: ResultIterator,
    thread: ResultThread,
    size: Callable[[], int],
) -> None:
    """Put the chunks of an iterable into a batch, no more than AHEAD for each worker ahead of their ends."""
    count, failure = 0, None
    try:
        items = iter(iterable)
        while results.has_room(count, size) and (chunk := tuple(itertools.islice(items, chunksize))):
            dispatch.put(chunk, functools.partial(results.take, count))
            count += 1
    except BaseException as error:  # the consumer's thread raises it
        failure = error
    thread.do(lambda: results.bound(count, failure))


def _nothing(*_: Any) -> None:
    pass
