"""The seam between algorithms and compute: what a pool promises, and how a lost task arrives."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from envs.errors import PaddockError

Task = TypeVar("Task")


@dataclass(frozen=True)
class Done:
    """The end of one task, good or bad.

    Attributes:
        index: position of the task in the iterable that was given.
        value: what the function returned; None where `error` is set.
        error: what went wrong: the task's own exception, `WorkerLost` or `TaskTimeout`; None where all is well.
        attempts: how often it was started; more than 1 after a lost worker.
        seconds: the time the last attempt computed, on its worker.
    """

    index: int
    value: Any = None
    error: BaseException | None = None
    attempts: int = 1
    seconds: float = 0.0


class Pool(Protocol):
    """Workers that run functions. A task's result may depend on its arguments alone."""

    @property
    def size(self) -> int:
        """Workers alive now; may change from call to call."""
        ...

    def imap_unordered(
        self,
        fn: Callable[[Task], Any],
        tasks: Iterable[Task],
        *,
        urgent: bool = False,
    ) -> Iterator[Done]:
        """Run fn on every task and yield each end as it comes; no exception of a task is raised here.

        May be called from several threads at once.

        Args:
            urgent: go before waiting tasks that are not.
        """
        ...

    def close(self) -> None:
        """Let the workers go; may be called twice."""
        ...


class PoolError(PaddockError):
    """The pool as a whole cannot work: scheduler out of reach, or workers that do not match this process."""


class WorkerLost(PaddockError):
    """The workers that ran the task died, once more than the bound on retries allows."""


class TaskTimeout(PaddockError):
    """The task ran longer than it may; its worker was replaced."""
