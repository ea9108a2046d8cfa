"""Tasks on their way through the pool."""

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

AHEAD_S = 0.1  # of work that should wait on a worker behind what it runs
TAKE_S = 0.001  # tasks that are being pickled are shown to workers so often
HOLD_S = 0.1  # for which ends that have come may wait while more tasks are taken


@dataclass(eq=False, slots=True)
class Item:
    """One task, or one call of an object, until its end.

    Attributes:
        source: the batch or the object whose it is.
        holders: the connections to workers that have it now.
        losses: workers lost with it.
        errors: ends with an error after which it was tried again.
        alone: after a loss it runs by itself, which shows whether it was to blame.
        waits: for a worker, among those of its batch.
        seconds: that it was expected to take when it was last sent.
        since: when that was.
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
        """Whether a worker has it that gives signs of life, and may end it."""
        return any(not holder.silent for holder in self.holders)


class DaskBatch:
    """Tasks of one function; see `paddock.algos.pool.protocol.TaskBatch`. Any thread may call `put` and `cancel`."""

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
        """Begin without tasks.

        Args:
            add: hands tasks to the dispatcher; raises its failure, or `cancelled`.
            drop: has it forget the batch.
        """
        with collecting() as met:
            data = dump(fn)
        self.function = Broadcast(None, data)
        self.blobs = [*met.values(), self.function]
        self.deliver = deliver
        self.needs = needs
        self.retry_errors = retry_errors
        self.renew_after = renew_after
        self.mean_s: float | None = None  # of a task, as far as it is known
        self.unseen = 0  # tasks that will follow those put so far, where that is known
        self.waiting: deque[Item] = deque()
        self.cancelled: PoolError | None = None
        self._add, self._drop = add, drop
        self._numbers = itertools.count()

    def put(self, task: Any) -> int:
        """Add a task; return its index."""
        item = self._item(task)
        self._add(self, [item])
        return item.index

    def take(self, tasks: Iterator[Any], most: int, ended: Callable[[], bool]) -> tuple[int, bool]:
        """Add tasks until there are no more, or so many, or ends have waited for HOLD_S.

        Tasks are added every TAKE_S, so that long tasks do not wait for the last to be pickled, and short ones do not
        travel one by one.

        Args:
            ended: returns whether ends wait for this to return.

        Returns:
            how many were added, and whether there were no more.
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
                time.sleep(0)  # or the loop's thread would get the interpreter 5 ms later
                added = time.monotonic()
                if added - begun > HOLD_S and ended():
                    return taken, False
        self._add(self, fresh)
        return taken, taken < most

    def cancel(self) -> None:
        """Give up what has not ended."""
        self.cancelled = self.cancelled or PoolError("the batch was cancelled; open another one")
        self.deliver = lambda ends: None
        self._drop(self)

    @property
    def remaining(self) -> int:
        """Tasks not yet on a worker, as far as is known."""
        return len(self.waiting) + self.unseen

    def learn(self, seconds: float) -> None:
        """Take a task's time into the mean, in which the last twenty or so count."""
        self.mean_s = seconds if self.mean_s is None else self.mean_s + 0.05 * (seconds - self.mean_s)

    def _item(self, task: Any) -> Item:
        with collecting() as met:
            data = dump(task)
        return Item(self, next(self._numbers), data, [*met.values()] if met else ())


class Ended:
    """An end as it came from the worker; unpickled when it is called."""

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
        """Return the end, whose error has the worker's traceback as its cause."""
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
    """Load what `dump_error` made; as a `RemoteError` where the exception itself cannot travel."""
    text, pickled = pickle.loads(data)
    line = text.strip().rpartition("\n")[2]
    try:
        error: BaseException = pickle.loads(pickled) if pickled else RemoteError(line)
    except Exception as broken:
        error = RemoteError(f"{line}; here it cannot be loaded ({type(broken).__name__}: {one_line(broken)})")
    error.__cause__ = RemoteTraceback(text)
    return error


def finish(ends: Iterable[tuple[Item, Ended | None]]) -> None:
    """Give each source the ends of its items; None: the item is tried again."""
    by_source: dict[Any, list[Ended]] = {}
    for item, end in ends:
        if end is not None and not item.over:
            item.over = True
            by_source.setdefault(item.source, []).append(end)
    for source, its in by_source.items():
        source.deliver(its)
