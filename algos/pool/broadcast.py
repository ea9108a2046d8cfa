"""Values shared by many tasks: pickled once, sent to each worker once and unpickled there once.

When a pool pickles a task's arguments (`collecting`), a `Broadcast` is replaced by its id, and the pool sends its bytes
to the worker first. Anywhere else it is pickled with its value.
"""

import contextlib
import pickle
import threading
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

from paddock.algos.pool.pickling import dump

Value = TypeVar("Value")

# .collected: broadcasts pickled in this thread by id, while a pool collects them
# .received: on a worker, the blobs by id from the driver whose task this thread runs
_local = threading.local()
_unpickling = threading.RLock()  # a value may carry another broadcast


class Broadcast(Generic[Value]):
    """Handle of a shared value, which is cheap to send repeatedly."""

    def __init__(self, value: Value, data: bytes | None = None) -> None:
        self.value = value
        self.id = uuid.uuid4().hex
        self._data = data

    @property
    def data(self) -> bytes:
        """The pickled value, computed on first use."""
        if self._data is None:
            self._data = dump(self.value)
        return self._data

    def __reduce__(self) -> Any:
        """Pickle the id while a pool collects broadcasts, otherwise the value."""
        collected = getattr(_local, "collected", None)
        if collected is None:
            return Broadcast, (self.value,)
        collected[self.id] = self
        return received, (self.id,)


class Blob:
    """Broadcast value on a worker, unpickled on first use."""

    def __init__(self, data: bytes) -> None:
        self._data: bytes | None = data
        self._handle: Broadcast[Any] | None = None

    def handle(self) -> "Broadcast[Any]":
        """Return the value's handle in this process, the same on each call."""
        with _unpickling:
            if self._handle is None:
                assert self._data is not None
                self._handle, self._data = Broadcast(pickle.loads(self._data)), None
            return self._handle


@contextlib.contextmanager
def collecting() -> Iterator[dict[str, Broadcast[Any]]]:
    """Pickle broadcasts of this thread as their ids within the block; yield those that were pickled."""
    collected: dict[str, Broadcast[Any]] = {}
    _local.collected = collected
    try:
        yield collected
    finally:
        _local.collected = None
    for broadcast in collected.values():
        broadcast.data  # noqa: B018  pickled here, so that the caller gets the error


def received(id: str) -> Broadcast[Any]:
    """Return the broadcast of this id on a worker that has received it."""
    return _local.received[id].handle()


def use_received(blobs: Mapping[str, Blob]) -> None:
    """Set the received blobs in which tasks of this thread look up broadcasts."""
    _local.received = blobs
