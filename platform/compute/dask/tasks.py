"""Tasks and results in the pool."""

import itertools
import pickle
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.pool import RemoteTraceback  # type: ignore[attr-defined]
from typing import Any

from paddock.algos.pool.broadcast import Broadcast, collecting
from paddock.algos.pool.pickling import dump
from paddock.algos.pool.protocol import ONE_CPU, Done, End, Needs, PoolError, RemoteError, TaskTimeout
from paddock.envs.errors import one_line

AHEAD_S = 0.1  # work that should wait on a worker behind the running tasks
TAKE_S = 0.001  # interval at which freshly pickled tasks are queued
HOLD_S = 0.1  # for which results may wait while more tasks are taken


@dataclass(eq=False, slots=True)
class Item:
    """Unfinished task, or unfinished call of an object.

    Attributes:
        source: its batch or object.
        holders: connections to workers that have it.
        losses: number of workers lost while they had it.
        errors: number of errors after which it was retried.
        alone: it must run alone, which shows whether it caused a loss.
        waits: it is queued in its batch.
        seconds: expected duration when it was last sent.
        since: time at which it was last sent.
    """

    source: Any
    index: int
    data: bytes
    blobs: Sequence[Broadcast[Any]]
    holders: list[Any] = field(default_factory=list)
    losses: int = 0
    errors: int = 0
    alone: bool = False
    over: bool = False
    waits: bool = True
    seconds: float = 0.0
    since: float = 0.0

    @property
    def held(self) -> bool:
        """Return whether a responsive worker has it."""
        return any(not holder.silent for holder in self.holders)


class DaskBatch:
    """Tasks of one function. `put` and `cancel` are thread-safe."""

    def __init__(
        self,
        fn: Callable[[Any], Any],
        deliver: Callable[[Sequence[End]], None],
        add: Callable[["DaskBatch", Sequence[Item]], None],
        drop: Callable[["DaskBatch"], None],
        *,
        needs: Needs = ONE_CPU,
        retry_errors: int = 0,
        renew_after: int | None = None,
    ) -> None:
        """Start without tasks; `add` passes tasks to the dispatcher, and `drop` removes the batch from it."""
        with collecting() as met:
            data = dump(fn)
        self.function = Broadcast(None, data)
        self.blobs = [*met.values(), self.function]
        self.deliver = deliver
        self.needs = needs
        self.retry_errors = retry_errors
        self.renew_after = renew_after
        self.mean_s: float | None = None  # mean duration of a task, if known
        self.unseen = 0  # tasks that will follow, if known
        self.waiting: deque[Item] = deque()
        self.cancelled: PoolError | None = None
        self._add, self._drop = add, drop
        self._numbers = itertools.count()

    def put(self, task: Any) -> int:
        """Add a task and return its index."""
        item = self._item(task)
        self._add(self, [item])
        return item.index

    def take(self, tasks: Iterator[Any], most: int, ended: Callable[[], bool]) -> tuple[int, bool]:
        """Add tasks until the iterator is exhausted, `most` are added, or results (`ended`) have waited for HOLD_S.

        Tasks are queued every TAKE_S, so that long tasks start early and short ones are sent in chunks.

        Returns:
            The number of tasks added, and whether the iterator is exhausted.
        """
        taken, begun = 0, time.monotonic()
        added = begun
        fresh: list[Item] = []
        for task in itertools.islice(tasks, most):
            fresh.append(self._item(task))
            taken += 1
            if time.monotonic() - added > TAKE_S:
                self._add(self, fresh)
                fresh = []
                time.sleep(0)  # releases the GIL to the loop's thread, which would otherwise wait 5 ms
                added = time.monotonic()
                if added - begun > HOLD_S and ended():
                    return taken, False
        self._add(self, fresh)
        return taken, taken < most

    def cancel(self) -> None:
        """Abandon unfinished tasks."""
        self.cancelled = self.cancelled or PoolError("the batch was cancelled; open another one")
        self.deliver = lambda ends: None
        self._drop(self)

    @property
    def remaining(self) -> int:
        """Return the number of tasks not yet on a worker, as far as known."""
        return len(self.waiting) + self.unseen

    def record_duration(self, seconds: float) -> None:
        """Update the moving average of task durations."""
        self.mean_s = seconds if self.mean_s is None else self.mean_s + 0.05 * (seconds - self.mean_s)

    def _item(self, task: Any) -> Item:
        with collecting() as met:
            data = dump(task)
        return Item(self, next(self._numbers), data, [*met.values()] if met else ())


class Ended:
    """Result of an item, unpickled when it is called."""

    __slots__ = ("_attempts", "_data", "_error", "_good", "_seconds", "index")

    def __init__(
        self,
        item: Item,
        good: bool = False,
        data: bytes = b"",
        seconds: float = 0.0,
        error: BaseException | None = None,
    ) -> None:
        """Take a pickled value (`good`) or exception, or an error of the pool."""
        self.index = item.index
        ran = error is None or isinstance(error, TaskTimeout)  # adds the final attempt
        self._attempts = max(item.losses + item.errors + ran, 1)
        self._good = good
        self._data = data
        self._seconds = seconds
        self._error = error

    def __call__(self) -> Done:
        """Return the result, whose error has the worker's traceback as its cause."""
        value, error = None, self._error
        if self._good:
            try:
                value = pickle.loads(self._data)
            except Exception as broken:
                error = broken
        elif error is None:
            error = _load_error(self._data)
        return Done(self.index, value, error, self._attempts, self._seconds)


def _load_error(data: bytes) -> BaseException:
    """Load an exception pickled by `dump_error`, or a `RemoteError` if it cannot be unpickled."""
    text, pickled = pickle.loads(data)
    line = text.strip().rpartition("\n")[2]
    try:
        error: BaseException = pickle.loads(pickled) if pickled else RemoteError(line)
    except Exception as broken:
        error = RemoteError(f"{line}; it cannot be unpickled here ({type(broken).__name__}: {one_line(broken)})")
    error.__cause__ = RemoteTraceback(text)
    return error


def finish(ends: Iterable[tuple[Item, Ended | None]]) -> None:
    """Deliver results to the sources of their items; None: the item is retried."""
    by_source: dict[Any, list[Ended]] = {}
    for item, end in ends:
        if end is not None and not item.over:
            item.over = True
            by_source.setdefault(item.source, []).append(end)
    for source, its in by_source.items():
        source.deliver(its)
