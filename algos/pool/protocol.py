"""Interface between algorithms and compute backends: the pool protocol and the outcome of tasks."""

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
    """Outcome of one task."""

    index: int  # position of the task in the iterable
    value: Any = None  # return value of the function; None if `error` is set
    error: BaseException | None = None  # the task's exception, `WorkerLost` or `TaskTimeout`; None on success
    attempts: int = 1  # number of starts; more than 1 after a lost worker
    seconds: float = 0.0  # computing time of the last attempt on its worker


@dataclass(frozen=True, kw_only=True)
class Needs:
    """Resources that a task occupies on its worker, as Dask's workers declare them."""

    cpu: int = 1  # number of the worker's threads (`--nthreads`)
    memory_gb: float = 0.0  # share of its memory limit (`--memory-limit`)
    gpu: int = 0  # number of the resource GPU (`--resources GPU=1`)

    def __post_init__(self) -> None:
        require(self.cpu >= 1, f"cpu={self.cpu} must be at least 1 thread")
        require(self.memory_gb >= 0, f"memory_gb={self.memory_gb} must be at least 0")
        require(self.gpu >= 0, f"gpu={self.gpu} must be at least 0")


ONE_CPU = Needs()


class TaskOptions(TypedDict, total=False):
    """Options of a batch of tasks."""

    needs: Needs  # default: ONE_CPU
    retry_errors: int  # number of retries after an exception of the task; default: 0
    renew_after: int | None  # number of tasks after which a worker process is replaced; default: None, never


def check_options(options: TaskOptions) -> None:
    """Raise ConfigError if an option of a batch has the wrong type or is out of range."""
    needs, retry_errors = options.get("needs", ONE_CPU), options.get("retry_errors", 0)
    renew_after = options.get("renew_after")
    require(isinstance(needs, Needs), f"needs={needs!r} is not a Needs, such as Needs(cpu=2)")
    whole = isinstance(retry_errors, Integral) and retry_errors >= 0
    require(whole, f"retry_errors={retry_errors!r} must be an integer of at least 0")
    positive = renew_after is None or (isinstance(renew_after, Integral) and renew_after >= 1)
    require(positive, f"renew_after={renew_after!r} must be an integer of at least 1, or None for never")


End = Callable[[], Done]  # unpickles on call; called once


class TaskBatch(Protocol):
    """Open-ended batch of one function's tasks."""

    def put(self, task: Any) -> int:
        """Add a task; return its index, which is that of its `Done`; raise PoolError after the end of pool or batch."""

    def cancel(self) -> None:
        """Cancel all unfinished tasks and deliver no more results; may be called twice."""


@runtime_checkable
class Closes(Protocol):
    """Object with resources to release; one on a worker is closed there."""

    def close(self) -> None:
        """Release the resources."""


class Stateful(Protocol):
    """Object on one worker, whose method calls run there one at a time, in order."""

    def call(self, method: str, *args: Any, **kwargs: Any) -> Callable[[], Any]:
        """Start a call; return a function that waits for its value or raises its error.

        If the worker is lost, the call is retried on the object's replacement, as often as the pool retries tasks.
        """

    def close(self) -> None:
        """Discard the object, and close it if it `Closes`; may be called twice."""


@runtime_checkable
class Pool(Protocol):
    """Pool of workers that run functions; a task's result must depend only on its arguments."""

    @property
    def size(self) -> int:
        """Number of live workers, which may change."""

    @property
    def threads(self) -> int:
        """Number of all workers' threads; each runs one single-CPU task at a time."""

    @property
    def in_process(self) -> bool:
        """True if tasks run sequentially in this process, when their results are requested."""

    @property
    def task_timeout_s(self) -> float | None:
        """Time limit of a task in seconds; None: no limit."""

    def imap_unordered(
        self, fn: Callable[[Task], Any], tasks: Iterable[Task], **options: Unpack[TaskOptions]
    ) -> Iterator[Done]:
        """Run fn on every task and yield the outcomes as they arrive; exceptions of tasks are returned, not raised.

        May be called from several threads at once.

        Raises:
            ConfigError: an option has the wrong type or is out of range.
            PoolError: the pool is closed, its workers are unreachable, or no worker has the resources.
        """

    def open_batch(
        self, fn: Callable[[Any], Any], deliver: Callable[[Sequence[End]], None], **options: Unpack[TaskOptions]
    ) -> TaskBatch:
        """Open a batch to which tasks are added one by one.

        `deliver` is called with ends of tasks, in any thread, and must not block. If the pool fails as a whole, every
        open task ends with that `PoolError`.
        """

    def broadcast(self, value: Value) -> Broadcast[Value]:
        """Share a value, which is sent to each worker at most once; tasks and functions read `handle.value`.

        Workers release it once the handle is garbage-collected here.
        """

    def stateful(self, factory: Callable[[], Any], needs: Needs = ONE_CPU) -> Stateful:
        """Create an object by calling factory on the worker with the fewest objects; a call occupies `needs`.

        It is recreated on another worker when its worker is lost or leaves, or to balance the load. So its state may
        serve as a cache, but must not change the values of its calls.
        """

    def ask(self, workers: int) -> None:
        """Request a number of workers; an elastic pool scales to it within its bounds."""

    def describe(self) -> str:
        """Describe the workers in one line."""

    def close(self) -> None:
        """Release the workers; may be called twice."""


class PoolError(PaddockError):
    """The pool as a whole failed: its scheduler is unreachable, or a worker does not match this process."""


class WorkerLost(PaddockError):
    """The task's workers died, and its retries are used up."""


class TaskTimeout(PaddockError):
    """The task exceeded its time limit; its worker was replaced."""


class RemoteError(PaddockError):
    """A task raised an exception that could not be pickled; only its text is available."""


def value_of(done: Done) -> Any:
    """Return a task's value or raise its error; SystemExit becomes a `RemoteError`, so that this process survives."""
    error = done.error
    if error is None:
        return done.value
    if isinstance(error, Exception):
        raise error
    raise RemoteError(f"{type(error).__name__}: {error}") from error.__cause__
