"""The pool that is this process: no workers, no traffic, and every traceback at hand."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from algos.pool import Done, Task


class SerialPool:
    """Runs each task when its result is asked for."""

    size = 1

    def open(self, imports: Collection[str]) -> "SerialPool":
        """This pool needs no opening."""
        return self

    def imap_unordered(
        self,
        fn: Callable[[Task], Any],
        tasks: Iterable[Task],
        *,
        urgent: bool = False,
    ) -> Iterator[Done]:
        """Run fn on every task in order; an exception becomes a `Done` with an error."""
        for index, task in enumerate(tasks):
            started = time.perf_counter()
            try:
                value, error = fn(task), None
            except Exception as exception:
                value, error = None, exception
            yield Done(index, value, error, attempts=1, seconds=time.perf_counter() - started)

    def close(self) -> None:
        """Nothing to let go."""

    def describe(self) -> str:
        """One line on where the work happens."""
        return "1, this process"
