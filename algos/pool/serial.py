"""Pool that runs tasks in the calling process: of `compute=serial`, and of algorithms that others train on workers."""

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Unpack

from paddock.algos.pool.broadcast import Broadcast
from paddock.algos.pool.executor import run_cleanups
from paddock.algos.pool.protocol import (
    ONE_CPU,
    Closes,
    Done,
    End,
    Needs,
    PoolError,
    Stateful,
    Task,
    TaskBatch,
    TaskOptions,
    Value,
    check_options,
    value_of,
)


class SerialPool:
    """Pool that runs each task when its result is requested."""

    size = threads = 1
    in_process = True
    task_timeout_s = None

    def open(self, imports: Collection[str], folder: Path | None = None) -> "SerialPool":
        """Return the pool itself, which needs no opening."""
        return self

    def imap_unordered(
        self, fn: Callable[[Task], Any], tasks: Iterable[Task], **options: Unpack[TaskOptions]
    ) -> Iterator[Done]:
        """Run fn on every task in order; an exception becomes a `Done` with an error."""
        check_options(options)
        for index, task in enumerate(tasks):
            yield _end(fn, task, index, options.get("retry_errors", 0))

    def open_batch(
        self, fn: Callable[[Any], Any], deliver: Callable[[Sequence[End]], None], **options: Unpack[TaskOptions]
    ) -> TaskBatch:
        """Run each task within `put`; this process is never replaced."""
        check_options(options)
        return _Batch(fn, deliver, options.get("retry_errors", 0))

    def broadcast(self, value: Value) -> Broadcast[Value]:
        """Return a handle of the value itself."""
        return Broadcast(value)

    def stateful(self, factory: Callable[[], Any], needs: Needs = ONE_CPU) -> Stateful:
        """Create an object in this process."""
        return _StatefulObject(factory)

    def ask(self, workers: int) -> None:
        """Do nothing: there is one process."""

    def close(self) -> None:
        """Run the cleanups of this thread, which close environments that tasks kept open."""
        run_cleanups()

    def describe(self) -> str:
        """Describe the workers in one line."""
        return "1, this process"


class _Batch:
    def __init__(self, fn: Callable[[Any], Any], deliver: Callable[[Sequence[End]], None], retry_errors: int) -> None:
        self._fn, self._deliver, self._retry_errors = fn, deliver, retry_errors
        self._count = 0
        self._cancelled = False

    def put(self, task: Any) -> int:
        if self._cancelled:
            raise PoolError("the batch was cancelled; open another one")
        index, self._count = self._count, self._count + 1
        done = _end(self._fn, task, index, self._retry_errors)
        self._deliver([lambda: done])
        return index

    def cancel(self) -> None:
        self._cancelled = True


class _StatefulObject:
    def __init__(self, factory: Callable[[], Any]) -> None:
        self._factory: Callable[[], Any] | None = factory
        self._object: Any = None
        self._closed = False

    def call(self, method: str, *args: Any, **kwargs: Any) -> Callable[[], Any]:
        if self._closed:
            raise PoolError("the object is closed; create another one")
        done = _end(lambda _: self._run(method, args, kwargs), None, 0, 0)
        return lambda: value_of(done)

    def close(self) -> None:
        closing, self._closed, self._object = self._object, True, None
        if isinstance(closing, Closes):
            with contextlib.suppress(Exception):  # as on a worker
                closing.close()

    def _run(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._factory is not None:
            self._object, self._factory = self._factory(), None
        return getattr(self._object, method)(*args, **kwargs)


def _end(fn: Callable[[Any], Any], task: Any, index: int, retry_errors: int) -> Done:
    attempts = 0
    while True:
        attempts += 1
        started = time.perf_counter()
        try:
            return Done(index, fn(task), None, attempts, time.perf_counter() - started)
        except (Exception, SystemExit) as error:
            if attempts > retry_errors:
                return Done(index, None, error, attempts, time.perf_counter() - started)
