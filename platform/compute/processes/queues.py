"""Queues between processes on any machine, with the semantics of `multiprocessing`.

A queue lives in the process that creates it, which stores pickled items. `put` returns when the queue has the item, so
there is no feeder thread: items of all processes are in the order in which `put` was called, and an item that cannot be
pickled is an error of `put`.
"""

import pickle
import queue
from typing import Any

from paddock.algos.pool.pickling import dump

from .hosting import OwnedProxy, caller_ended, serve


class _Items(queue.Queue[bytes]):
    """Pickled items."""

    def _get(self) -> bytes:
        if caller_ended():  # killed while it waited; the next one gets the item
            self.not_empty.notify()
            raise EOFError
        return super()._get()


class QueueProxy(OwnedProxy):
    """Queue, also with the methods of `multiprocessing.JoinableQueue` and `SimpleQueue`.

    Its methods raise ConnectionError if the process that created it has ended.
    """

    _exposed_ = ("put", "get", "qsize", "full", "empty", "task_done", "join")
    _closed = False

    def put(self, obj: Any, block: bool = True, timeout: float | None = None) -> None:
        """Add an item, or raise queue.Full if there is no free slot, or none within the timeout."""
        self._check_open()
        self._callmethod("put", (dump(obj), block, timeout))

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Remove and return an item, or raise queue.Empty if there is none, or none within the timeout."""
        self._check_open()
        return pickle.loads(self._callmethod("get", (block, timeout)))

    def put_nowait(self, obj: Any) -> None:
        """Add an item, or raise queue.Full."""
        self.put(obj, False)

    def get_nowait(self) -> Any:
        """Remove and return an item, or raise queue.Empty."""
        return self.get(False)

    def close(self) -> None:
        """Stop using the queue in this process."""
        self._closed = True

    def join_thread(self) -> None:
        """Do nothing: items are in the queue when `put` returns."""

    cancel_join_thread = join_thread

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"Queue {self!r} is closed")


def Queue(maxsize: int = 0) -> Any:  # noqa: N802
    """Create a queue, as `multiprocessing.Queue`."""
    return serve(QueueProxy, _Items(maxsize))


def JoinableQueue(maxsize: int = 0) -> Any:  # noqa: N802
    """Create a queue that counts unfinished items, as `multiprocessing.JoinableQueue`."""
    return Queue(maxsize)


def SimpleQueue() -> Any:  # noqa: N802
    """Create an unbounded queue, as `multiprocessing.SimpleQueue`."""
    return Queue()
