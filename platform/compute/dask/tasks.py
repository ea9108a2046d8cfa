"""Tasks on their way through the pool."""

import contextlib
import itertools
import logging
import pickle
import pickletools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.pool import RemoteTraceback  # type: ignore[attr-defined]
from typing import Any, Protocol, TypeVar

from paddock.algos.pool.broadcast import Broadcast, collecting
from paddock.algos.pool.protocol import ONE_CPU, Done, End, Needs, PoolError, RemoteError, TaskTimeout
from paddock.envs.errors import one_line

log = logging.getLogger(__name__)

Thing = TypeVar("Thing")

AHEAD_S = 0.1  # of work that should wait on a worker behind what it runs
TAKE_S = 0.001  # between two looks of the workers at tasks that are being pickled
HOLD_S = 0.1  # for which ends that have come may wait while more tasks are taken


class Driver(Protocol):
    """What tasks and calls ask of the dispatcher; any thread may ask."""

    failure: PoolError | None  # why nothing can be added any more

    def dump(self, value: Any) -> bytes:
        """Pickle something for the workers."""
        ...

    def wake(self) -> None:
        """Look for work soon."""
        ...

    def call(self, fn: Callable[..., None], *arguments: Any) -> None:
        """Run fn in the loop, if it has not ended."""
        ...

    def drop(self, batch: "DaskBatch") -> None:
        """Let go of a batch that was cancelled; this belongs to the loop."""
        ...


class Item:
    """One task, or one call of an object, until its end."""

    __slots__ = (
        *("alone", "blobs", "data", "errors", "holders", "index", "losses", "over", "seconds", "since", "source"),
        "waits",
    )

    def __init__(self, source: "DaskBatch | Any", index: int, data: bytes, blobs: Sequence[Broadcast[Any]]) -> None:
        self.source = source  # the batch or the object that is told of its end
        self.index = index
        self.data = data
        self.blobs = blobs
        self.holders: list[Any] = []  # the connections to workers that have it now
        self.losses = 0  # workers lost with it
        self.errors = 0  # ends with an error, of which it was given another try
        self.alone = False  # after a loss it runs by itself, which tells whether it was to blame
        self.over = False
        self.waits = True  # for a worker, among those of its batch
        self.seconds = 0.0  # what it was expected to take when it was last sent
        self.since = 0.0  # when that was

    @property
    def held(self) -> bool:
        """Whether a worker has it that gives signs of life, and may end it."""
        return any(not holder.silent for holder in self.holders)


class DaskBatch:
    """Tasks of one function; see `paddock.algos.pool.protocol.TaskBatch`. `put` and `cancel` may be called in any thread."""

    def __init__(
        self,
        name: str,
        fn: Callable[[Any], Any],
        deliver: Callable[[Sequence[End]], None],
        dispatcher: Driver,
        *,
        needs: Needs = ONE_CPU,
        retry_errors: int = 0,
        renew_after: int | None = None,
        mean_s: float | None,
    ) -> None:
        with collecting() as met:
            data = dispatcher.dump(fn)
        self.name = name  # of the function, under which the length of its tasks is remembered
        self.function = Shared(data)
        self.blobs = [*met.values(), self.function]
        self.deliver = deliver
        self.needs = needs
        self.retry_errors = retry_errors
        self.renew_after = renew_after
        self.mean_s = mean_s  # of a task, as far as it is known
        self.unseen = 0  # tasks that will follow those put so far, where that is known
        self.waiting: deque[Item] = deque()  # appended to in any thread, taken from in the loop
        self._dispatcher = dispatcher
        self._cancelled: PoolError | None = None
        self._count = 0
        self._lock = threading.Lock()

    def put(self, task: Any) -> int:
        """Add a task; returns its index."""
        self._check()
        item = self._item(task)
        self.waiting.append(item)
        if self._cancelled is not None:
            raise self._cancelled  # the loop lets go of it with the batch
        if self.failure is not None:
            # What was waiting may have been ended before this came, which nobody would see then.
            with contextlib.suppress(ValueError):
                self.waiting.remove(item)
                raise self.failure
        self._dispatcher.wake()
        return item.index

    def take(self, tasks: Iterator[Any], most: int, ended: Callable[[], bool]) -> tuple[int, bool]:
        """Add tasks until there are no more, or so many, or ends have waited for HOLD_S and the last task's making.

        Workers see what there is every TAKE_S, so that long tasks do not wait for the last to be pickled, and short
        ones do not travel one by one.

        Args:
            ended: says whether ends wait for this to return.

        Returns:
            how many were added, and whether there were no more.
        """
        taken, begun = 0, time.monotonic()
        told = begun
        fresh: list[Item] = []

        def tell() -> None:
            self.waiting.extend(fresh)
            self.unseen = max(self.unseen - len(fresh), 0)
            fresh.clear()
            self._dispatcher.wake()

        for task in itertools.islice(tasks, most):
            self._check()
            fresh.append(self._item(task))
            taken += 1
            if time.monotonic() - told > TAKE_S:
                tell()
                time.sleep(0)  # or the loop's thread would get the interpreter 5 ms later
                told = time.monotonic()
                if told - begun > HOLD_S and ended():
                    return taken, False
        tell()
        self._check()  # nobody may be left who would see what came in meanwhile
        return taken, taken < most

    def _item(self, task: Any) -> Item:
        with collecting() as met:
            data = self._dispatcher.dump(task)
        with self._lock:
            index, self._count = self._count, self._count + 1
        return Item(self, index, data, [*met.values()] if met else ())

    def cancel(self) -> None:
        """Give up what has not ended."""
        self._cancelled = self._cancelled or PoolError("the batch was cancelled; open another one")
        self.deliver = _forget  # what the loop has in hand
        self._dispatcher.call(self._dispatcher.drop, self)

    @property
    def failure(self) -> PoolError | None:
        """Why no task can be added any more; None where one can."""
        return self._cancelled or self._dispatcher.failure

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure

    @property
    def remaining(self) -> int:
        """Tasks not yet on a worker, as far as is known."""
        return len(self.waiting) + self.unseen

    def learn(self, seconds: float) -> None:
        """Take a task's time into the mean, in which the last twenty or so count."""
        self.mean_s = seconds if self.mean_s is None else self.mean_s + 0.05 * (seconds - self.mean_s)


def _forget(ends: Sequence[End]) -> None:
    """Receive the ends of a batch that was cancelled."""


class Shared(Broadcast[Any]):
    """A broadcast that is there as bytes alone."""

    def __init__(self, data: bytes) -> None:
        super().__init__(None)
        self._data = data


class Ended:
    """An end as it came from the worker; unpickled where it is asked for."""

    __slots__ = ("_attempts", "_data", "_error", "_good", "_seconds", "index")

    def __init__(
        self,
        item: Item,
        good: bool = False,
        data: bytes = b"",
        seconds: float = 0.0,
        error: BaseException | None = None,
    ) -> None:
        self.index = item.index
        ran = error is None or isinstance(error, TaskTimeout)  # once more than it was lost or raised
        self._attempts = max(item.losses + item.errors + ran, 1)
        self._good = good
        self._data = data
        self._seconds = seconds
        self._error = error

    def __call__(self) -> Done:
        """The end itself, whose error has the worker's traceback as its cause."""
        value, error = None, self._error
        try:
            if self._good:
                value = pickle.loads(self._data)
            elif error is None:
                error, text = pickle.loads(self._data)
                error.__cause__ = RemoteTraceback(text)
        except BaseException as broken:  # even one that leaves as it is loaded
            if isinstance(broken, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                raise  # Ctrl-C, which comes there alone, and is no task's
            error = broken if self._good else _in_words(self._data, broken)
        return Done(self.index, value, error, self._attempts, self._seconds)


def _in_words(data: bytes, broken: BaseException) -> BaseException:
    """Tell a task's error, pickled with its traceback, that cannot be loaded in this process."""
    try:
        # The traceback ends the pickle, and is read without loading what comes before.
        text = [value for _, value, _ in pickletools.genops(data) if isinstance(value, str)][-1]
    except Exception:
        return broken
    line = text.strip().rpartition("\n")[2]
    error = RemoteError(f"{line}; here it cannot be loaded ({type(broken).__name__}: {one_line(broken)})")
    error.__cause__ = RemoteTraceback(text)
    return error


def finish(ends: Iterable[tuple[Item, Ended | None]]) -> None:
    """Tell each source what of its own has ended; None: it goes on."""
    told: dict[Any, list[Ended]] = {}
    try:
        for item, end in ends:
            if end is not None and not item.over:
                item.over = True
                told.setdefault(item.source, []).append(end)
    finally:  # nobody else will tell of those that were over before one could not be judged
        for source, its in told.items():
            try:
                source.deliver(its)
            except Exception:
                log.exception("what receives the ends of tasks raised; %d of them are lost to it", len(its))


def drain(things: deque[Thing]) -> list[Thing]:
    """Take out what is in a deque now, to which other threads append, and from which they may take their own."""
    taken: list[Thing] = []
    with contextlib.suppress(IndexError):
        for _ in range(len(things)):
            taken.append(things.popleft())
    return taken
