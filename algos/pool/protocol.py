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
    """Outcome of one task.

    Attributes:
        index: position of the task in the iterable that was given.
        value: what the function returned; None where `error` is set.
        error: the task's own exception, `WorkerLost` or `TaskTimeout`; None on success.
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
    """Resources that a task occupies on its worker, as Dask's workers declare them.

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
    """Options of a batch of tasks."""

    needs: Needs  # default: ONE_CPU
    retry_errors: int  # tries after an exception before it is the task's error; default: 0
    renew_after: int | None  # tasks after which a worker process is replaced; default: None, never


def check_options(options: TaskOptions) -> None:
    """Check the options of a batch.

    Raises:
        ConfigError: an option has the wrong type or is out of range.
    """
    needs, retry_errors = options.get("needs", ONE_CPU), options.get("retry_errors", 0)
    renew_after = options.get("renew_after")
    require(isinstance(needs, Needs), f"needs={needs!r} is not a Needs, such as Needs(cpu=2)")
    whole = isinstance(retry_errors, Integral) and retry_errors >= 0
    require(whole, f"retry_errors={retry_errors!r} must be a whole number, 0 or more")
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
    """Object with resources to release; one on a worker is closed there."""

    def close(self) -> None:
        """Release them."""
        ...


class Stateful(Protocol):
    """Object on one worker, whose methods are called there one at a time, in the order of the calls."""

    def call(self, method: str, *args: Any, **kwargs: Any) -> Callable[[], Any]:
        """Start a call; calling what is returned waits for its value, or raises its error.

        A call whose worker is lost is made again on the object's replacement, as often as the pool retries tasks.

        Raises:
            PoolError: the pool or the object is closed.
        """
        ...

    def close(self) -> None:
        """Drop the object, and close it if it `Closes`; may be called twice."""
        ...


@runtime_checkable
class Pool(Protocol):
    """Workers that run functions. A task's result depends on its arguments alone."""

    @property
    def size(self) -> int:
        """Workers alive now; may change from call to call."""
        ...

    @property
    def threads(self) -> int:
        """Threads of all workers, each of which runs one task of one CPU at a time."""
        ...

    @property
    def in_process(self) -> bool:
        """Whether tasks run in this process, one after the other, when their results are asked for."""
        ...

    @property
    def task_timeout_s(self) -> float | None:
        """Seconds after which a running task is given up; None: never."""
        ...

    def imap_unordered(
        self, fn: Callable[[Task], Any], tasks: Iterable[Task], **options: Unpack[TaskOptions]
    ) -> Iterator[Done]:
        """Run fn on every task and yield each end as it comes; a task's exception is not raised here.

        May be called from several threads at once.

        Raises:
            ConfigError: an option has the wrong type or is out of range.
            PoolError: the pool is closed, its workers are out of reach, or no worker has the resources.
        """
        ...

    def open_batch(
        self, fn: Callable[[Any], Any], deliver: Callable[[Sequence[End]], None], **options: Unpack[TaskOptions]
    ) -> TaskBatch:
        """Run fn on tasks that are put in one by one.

        Args:
            deliver: called with some ends, in any thread; must return at once. When the pool fails as a whole, every
                open task ends with that `PoolError`.
        """
        ...

    def broadcast(self, value: Value) -> Broadcast[Value]:
        """Share a value, which travels to each worker at most once; tasks and functions read `handle.value`.

        Workers forget it once the handle is gone here.
        """
        ...

    def stateful(self, factory: Callable[[], Any], needs: Needs = ONE_CPU) -> Stateful:
        """Make an object by calling factory on the worker that holds the fewest.

        It is made again on another worker when its own is lost, silent or leaves, or when one that joins has fewer. So
        its state may save its calls work, but must not change their values.

        Args:
            needs: resources that a call occupies.
        """
        ...

    def ask(self, workers: int) -> None:
        """Set how many workers have work from now on; an elastic pool follows, within its bounds."""
        ...

    def describe(self) -> str:
        """Describe in one line where the work happens."""
        ...

    def close(self) -> None:
        """Release the workers; may be called twice."""
        ...


class PoolError(PaddockError):
    """The pool as a whole failed: its scheduler is out of reach, or a worker does not match this process."""


class WorkerLost(PaddockError):
    """The workers that ran the task died more often than it may be retried."""


class TaskTimeout(PaddockError):
    """The task exceeded its time limit; its worker was replaced."""


class RemoteError(PaddockError):
    """A task's own exception as text, because it could not be pickled."""


def value_of(done: Done) -> Any:
    """Return a task's value, or raise its error; a SystemExit of it as a `RemoteError`, or it would end this process."""
    error = done.error
    if error is None:
        return done.value
    if isinstance(error, Exception):
        raise error
    raise RemoteError(f"{type(error).__name__}: {error}") from error.__cause__
