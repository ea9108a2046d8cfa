"""Calls of `multiprocessing.Pool` on a worker: the initializer before the first call, then the function."""

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
    """Function that runs once in each worker process."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    id: str = field(default_factory=lambda: uuid.uuid4().hex)


def call_shared(function: Broadcast[Callable[..., Any]], *arguments: Any) -> Any:
    """Call a function that is sent to each worker once, for any number of chunks."""
    return function.value(*arguments)


def call(setup: Broadcast[Initializer] | None, task: Call) -> Any:
    """Make one call, after the process's initialization, whose exception becomes the task's error and is retried."""
    if setup is not None and setup.value.id not in _initialized:
        with _initializing:
            if setup.value.id not in _initialized:
                setup.value.function(*setup.value.arguments)
                _initialized.add(setup.value.id)
    function, arguments, keywords = task
    return function(*arguments, **keywords)
