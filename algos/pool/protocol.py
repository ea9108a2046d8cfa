"""The seam between algorithms and compute: what a pool promises, and how a lost task arrives."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Protocol, TypedDict, TypeVar, Unpack, runtime_checkable

from paddock.algos.pool.broadcast import Broadcast
from paddock.envs.errors import PaddockError, require

Task = TypeVar("Task")
Value = TypeVar("Value")


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


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What one task occupies on its worker, of what Dask's workers declare.

    Attributes:
        cpu: of the worker's threads (`--nthreads`).
        memory_gb: of its memory limit (`--memory-limit`).
        gpu: of the resource GPU (`--resources GPU=1`).
    """

    cpu: int = 1
    memory_gb: float = 0.0
    gpu: int = 0

    def __post_init__(self) -> None:
        require(self.cpu >= 1, f"cpu={self.cpu} must be at least 1 thread")
        require(self.memory_gb >= 0, f"memory_gb={self.memory_gb} must not be negative")
        require(self.gpu >= 0, f"gpu={self.gpu} must not be negative")


ONE_CPU = Needs()


class TaskOptions(TypedDict, total=False):
    """How tasks are run; each may be left out."""

    needs: Needs  # what each task occupies on its worker; else ONE_CPU
    retry_errors: int  # how often a task that raises is run again before its error is its end; else 0
    renew_after: int | None  # a worker process that ran so many of these tasks is replaced by a new one; else never


def check_options(options: TaskOptions) -> None:
    """Check how tasks are to be run.

    Raises:
        ConfigError: an option is not of its kind, or out of its range.
    """
    needs, retry_errors = options.get("needs", ONE_CPU), options.get("retry_errors", 0)
    renew_after = options.get("renew_after")
    require(isinstance(needs, Needs), f"needs={needs!r} says no needs; write Needs(cpu=2)")
    whole = isinstance(retry_errors, Integral) and retry_errors >= 0
    require(whole, f"retry_errors={retry_errors!r} must be a whole number, 0 or more; 0 for no other try")
    positive = renew_after is None or (isinstance(renew_after, Integral) and renew_after >= 1)
    require(positive, f"renew_after={renew_after!r} must be a whole number, 1 or more, or None for never")


End = Callable[[], Done]  # unpickles when it is called, which is done once


class TaskBatch(Protocol):
    """Tasks of one function that come in as they arise."""

    def put(self, task: Any) -> int:
        """Add a task; returns its index, which its `Done` will carry.

        Raises:
            PoolError: the pool is closed, or the batch was cancelled.
        """
        ...

    def cancel(self) -> None:
        """Give up what has not ended; nothing of it is delivered any more. May be called twice."""
        ...


@runtime_checkable
class Closes(Protocol):
    """An object that has something to let go of: one on a worker is closed there when it is done with."""

    def close(self) -> None:
        """Let go of it."""
        ...


class Stateful(Protocol):
    """An object that lives on one worker. Its methods are called there, one at a time, in the order of the calls."""

    def call(self, method: str, *args: Any, **kwargs: Any) -> Callable[[], Any]:
        """Start a call; calling what is returned waits for its value, or raises its error.

        A call whose worker is lost is made again on the object's replacement, as often as the pool retries tasks.

        Raises:
            PoolError: the pool or the object is closed.
        """
        ...

    def close(self) -> None:
        """Let the object go, and close it if it `Closes`; may be called twice."""
        ...


@runtime_checkable
class Pool(Protocol):
    """Workers that run functions. A task's result may depend on its arguments alone."""

    @property
    def size(self) -> int:
        """Workers alive now; may change from call to call."""
        ...

    @property
    def threads(self) -> int:
        """Theirs altogether: so many tasks run at once that need one CPU each."""
        ...

    @property
    def in_process(self) -> bool:
        """Whether tasks run in this process, one after the other, when they are asked for."""
        ...

    @property
    def task_timeout_s(self) -> float | None:
        """Seconds after which a task that runs is given up; None: never."""
        ...

    def imap_unordered(
        self, fn: Callable[[Task], Any], tasks: Iterable[Task], **options: Unpack[TaskOptions]
    ) -> Iterator[Done]:
        """Run fn on every task and yield each end as it comes; no exception of a task is raised here.

        May be called from several threads at once.

        Raises:
            ConfigError: an option is not of its kind, or out of its range.
            PoolError: the pool is closed, its workers are out of reach, or none could ever hold such a task.
        """
        ...

    def open_batch(
        self, fn: Callable[[Any], Any], deliver: Callable[[Sequence[End]], None], **options: Unpack[TaskOptions]
    ) -> TaskBatch:
        """Run fn on tasks that are put in one by one.

        Args:
            deliver: called with some ends, in any thread, soon after they came; must return at once. When the pool
                fails as a whole, every task still open ends with that `PoolError`.
        """
        ...

    def broadcast(self, value: Value) -> Broadcast[Value]:
        """Make a value known to every worker that needs it: it travels to each at most once, however many tasks use it.

        Tasks and functions carry the handle and read `handle.value`; workers forget it once the handle is gone here.
        """
        ...

    def stateful(self, factory: Callable[[], Any], needs: Needs = ONE_CPU) -> Stateful:
        """Make an object on the worker that holds the fewest, by calling factory there.

        It is made anew on another worker where its own is lost, falls silent or leaves, or where one that comes has
        fewer: what it keeps may save its calls work, and must change none of their values.

        Args:
            needs: what a call of it occupies on its worker.
        """
        ...

    def ask(self, workers: int) -> None:
        """Say how many workers would have work from now on; an elastic pool follows, within its bounds."""
        ...

    def describe(self) -> str:
        """Say in one line where the work happens."""
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


class RemoteError(PaddockError):
    """A task's own exception, told in words because it could not travel."""


def as_exception(error: BaseException) -> Exception:
    """Return a task's error as one to raise: a SystemExit, which was the task's own, would end this process too."""
    if isinstance(error, Exception):
        return error
    told = RemoteError(f"{type(error).__name__}: {error}")
    told.__cause__ = error.__cause__
    return told
