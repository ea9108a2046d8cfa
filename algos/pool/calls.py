"""Calls as `multiprocessing.Pool` makes them, on the worker: an initializer before the first, then the function."""

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from paddock.algos.pool.broadcast import Broadcast

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]

_initialized: set[str] = set()  # the initializers that have run in this process, by id
_initializing = threading.RLock()


@dataclass(frozen=True)
class Initializer:
    """What a pool runs once in each of its worker processes."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    id: str = field(default_factory=lambda: uuid.uuid4().hex)


def call_shared(function: Broadcast[Callable[..., Any]], *arguments: Any) -> Any:
    """Call a function that travels to each worker once, however many chunks call it."""
    return function.value(*arguments)


def call(setup: Broadcast[Initializer] | None, task: Call) -> Any:
    """Make one call, in a process that has been initialized.

    An exception of the initializer is the task's; the next task tries again, since what failed may have been a busy
    disk.
    """
    if setup is not None and setup.value.id not in _initialized:
        with _initializing:
            if setup.value.id not in _initialized:
                setup.value.function(*setup.value.arguments)
                _initialized.add(setup.value.id)
    function, arguments, keywords = task
    return function(*arguments, **keywords)
