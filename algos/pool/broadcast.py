"""A value that many tasks share: pickled where it is made, sent to each worker once, unpickled there once.

A `Broadcast` in a task's arguments travels as its number alone while a pool pickles them (`collecting`), and the pool
sees to it that the worker has the bytes by then. Pickled anywhere else it travels whole.
"""

import contextlib
import pickle
import threading
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

from paddock.algos.pool.pickling import dump

Value = TypeVar("Value")

# .met: the broadcasts pickled in this thread, by id, while a pool collects them
# .received: on a worker, what the driver has sent whose task this thread runs, by id
_local = threading.local()
_unpickling = threading.RLock()  # a value may carry another broadcast


class Broadcast(Generic[Value]):
    """A handle on a shared value; cheap to send any number of times."""

    def __init__(self, value: Value, data: bytes | None = None) -> None:
        """Take a value, and its pickle if there is one."""
        self.value = value
        self.id = uuid.uuid4().hex
        self._data = data

    @property
    def data(self) -> bytes:
        """The value, pickled when it is first needed."""
        if self._data is None:
            self._data = dump(self.value)
        return self._data

    def __reduce__(self) -> Any:
        met = getattr(_local, "met", None)
        if met is None:
            return Broadcast, (self.value,)
        met[self.id] = self
        return received, (self.id,)


class Blob:
    """A broadcast value on a worker, as bytes until it is asked for."""

    def __init__(self, data: bytes) -> None:
        self._data: bytes | None = data
        self._handle: Broadcast[Any] | None = None

    def handle(self) -> "Broadcast[Any]":
        """The value in a handle of this process, the same each time."""
        with _unpickling:
            if self._handle is None:
                assert self._data is not None
                self._handle, self._data = Broadcast(pickle.loads(self._data)), None
            return self._handle


@contextlib.contextmanager
def collecting() -> Iterator[dict[str, Broadcast[Any]]]:
    """Let broadcasts pickled in this thread travel as their ids; gives those that were met."""
    met: dict[str, Broadcast[Any]] = {}
    _local.met = met
    try:
        yield met
    finally:
        _local.met = None
    for broadcast in met.values():
        broadcast.data  # noqa: B018  pickled here, so that the caller gets the error


def received(id: str) -> Broadcast[Any]:
    """The broadcast of this id, on a worker that was sent it."""
    return _local.received[id].handle()


def read_from(blobs: Mapping[str, Blob]) -> None:
    """Let tasks of this thread find their broadcasts here from now on."""
    _local.received = blobs
