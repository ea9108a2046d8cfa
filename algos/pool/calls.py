"""Calls as `multiprocessing.Pool` makes them, on the worker: an initializer before the first, functions on chunks."""

import itertools
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from algos.pool.broadcast import Broadcast

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]

_initialized: set[str] = set()  # the initializers that have run in this process, by id
_initializing = threading.RLock()


@dataclass(frozen=True)
class Initializer:
    """What a pool runs once in each of its worker processes."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    id: str = field(default_factory=lambda: uuid.uuid4().hex)


Setup = Broadcast[Initializer] | None


def call(setup: Setup, task: Call) -> Any:
    """Make one call, in a process that has been initialized."""
    initialize(setup)
    function, arguments, keywords = task
    return function(*arguments, **keywords)


def map_chunk(setup: Setup, function: Callable[[Any], Any], chunk: Sequence[Any]) -> list[Any]:
    """Apply a function to every item of a chunk."""
    initialize(setup)
    return [function(item) for item in chunk]


def starmap_chunk(setup: Setup, function: Callable[..., Any], chunk: Sequence[Any]) -> list[Any]:
    """Like `map_chunk`, where each item holds the arguments of one call."""
    initialize(setup)
    return list(itertools.starmap(function, chunk))


def initialize(setup: Setup) -> None:
    """Run an initializer unless it has run in this process.

    Its exception is the task's; the next task tries again, since what failed may have been a busy disk.
    """
    if setup is None or setup.value.id in _initialized:
        return
    with _initializing:
        if setup.value.id not in _initialized:
            setup.value.function(*setup.value.arguments)
            _initialized.add(setup.value.id)


class Witness:
    """Tells of the worker process that it lives in."""

    def tell(self) -> tuple[str, int, float]:
        """Host, process id, and the time of its clock."""
        return socket.gethostname(), os.getpid(), time.time()
