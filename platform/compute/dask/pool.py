"""The pool of Dask workers, as algorithms see it."""

import contextlib
import queue
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Unpack

from distributed import Client

from paddock.algos.pool.broadcast import Broadcast
from paddock.algos.pool.protocol import (
    ONE_CPU,
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
)

from .actors import ActorHandle
from .autoscale import WorkerFleet
from .dispatcher import Dispatcher
from .distribution import CHUNK_S
from .membership import Membership
from .tasks import AHEAD_S

MOST_AHEAD = 1 << 16  # tasks taken and not ended, at most


class DaskPool:
    """Tasks run on Dask workers; a worker may come or die at any time, and what a dead one had runs again elsewhere."""

    in_process = False

    def __init__(
        self,
        client: Client,
        dispatcher: Dispatcher,
        membership: Membership,
        fleet: WorkerFleet | None,
        where: str,
        undo: contextlib.ExitStack,
    ) -> None:
        """Take what `open_pool` made; `undo` is closed after the pool."""
        self._client = client
        self._dispatcher = dispatcher
        self._membership = membership
        self._fleet = fleet
        self._where = where
        self._undo = undo
        self._closed = False

    @property
    def size(self) -> int:
        """Workers that may be given work now."""
        return sum(worker.usable for worker in list(self._dispatcher.workers.values()))

    @property
    def threads(self) -> int:
        """Of these workers: so many tasks run at once that need one CPU each."""
        return self._dispatcher.workers.slots

    @property
    def task_timeout_s(self) -> float | None:
        """See `paddock.algos.pool.protocol.Pool`."""
        return self._dispatcher.timeout_s

    def imap_unordered(
        self, fn: Callable[[Task], Any], tasks: Iterable[Task], **options: Unpack[TaskOptions]
    ) -> Iterator[Done]:
        """Run fn on every task and yield each end as it comes; tasks are taken as workers need them.

        Tasks are made in the thread that the ends are yielded in: one that takes long to come keeps them that long.

        Raises:
            ConfigError: an option is not of its kind, or out of its range.
            PoolError: the pool is closed, the scheduler is gone, or no worker could hold such a task.
        """
        ends: queue.SimpleQueue[Sequence[End]] = queue.SimpleQueue()
        self._check(options)
        batch = self._dispatcher.open(fn, ends.put, **options)
        coming = iter(tasks)
        total = len(tasks) if isinstance(tasks, Sequence) else None
        batch.unseen = total or 0
        put = ended = 0
        exhausted = False
        try:
            while True:
                room = self._ahead(batch.mean_s, ended, total) - (put - ended)
                if not exhausted and room > 0:
                    taken, exhausted = batch.take(coming, room, lambda: not ends.empty())
                    put += taken
                if put == ended:
                    return
                for end in ends.get():
                    ended += 1
                    done = end()
                    failure = self._dispatcher.failure
                    if failure is not None and done.error is failure:
                        raise failure
                    yield done
        finally:
            batch.unseen = 0
            batch.cancel()

    def open_batch(
        self, fn: Callable[[Any], Any], deliver: Callable[[Sequence[End]], None], **options: Unpack[TaskOptions]
    ) -> TaskBatch:
        """See `paddock.algos.pool.protocol.Pool`."""
        self._check(options)
        return self._dispatcher.open(fn, deliver, **options)

    def broadcast(self, value: Value) -> Broadcast[Value]:
        """See `paddock.algos.pool.protocol.Pool`."""
        return self._dispatcher.broadcast(value)

    def stateful(self, factory: Callable[[], Any], needs: Needs = ONE_CPU) -> Stateful:
        """See `paddock.algos.pool.protocol.Pool`."""
        self._check({"needs": needs})
        return ActorHandle(self._dispatcher.placement, factory, needs)

    def ask(self, workers: int) -> None:
        """See `paddock.algos.pool.protocol.Pool`."""
        if self._fleet is not None:
            self._fleet.asked = workers

    def close(self) -> None:
        """Let the workers go; those of somebody else's scheduler stay."""
        if self._closed:
            return
        self._closed = True
        error = PoolError("the pool is closed; open another one")

        async def leave() -> None:
            self._dispatcher.fail(error)  # first, or open tasks would be reported as lost
            await self._membership.close()
            self._dispatcher.close()

        try:
            self._client.sync(leave)
        finally:
            self._undo.close()

    def describe(self) -> str:
        """One line on where the work happens."""
        return f"{self.size}, {self._where}"

    def _check(self, options: TaskOptions) -> None:
        check_options(options)
        needs = options.get("needs", ONE_CPU)
        if self._dispatcher.failure is not None:
            raise self._dispatcher.failure
        workers = list(self._dispatcher.workers.values())
        if workers and needs != ONE_CPU and not any(worker.parallel(needs) for worker in workers):
            most = {name: max(worker.capacity[name] for worker in workers) for name in ("cpu", "memory_gb", "gpu")}
            remedy = "start workers with more (`dask worker --nthreads, --memory-limit, --resources GPU=1`)"
            raise PoolError(f"no worker can hold a task of {needs}; the most there is: {most}; {remedy}")

    def _ahead(self, mean_s: float | None, ended: int, total: int | None) -> int:
        """How many tasks may be taken and not ended: all of a sequence, few of those made as they are taken."""
        if total is not None:
            return MOST_AHEAD
        slots = max(self.threads, 1)
        each = 2 if mean_s is None else 2 + 2 * (CHUNK_S + AHEAD_S) / max(mean_s, 1e-6)
        # From few to many as ends come, so that a batch that is given up early has taken little.
        return min(int(slots * each), 3 * slots + 2 * ended, MOST_AHEAD)
