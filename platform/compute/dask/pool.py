"""Pool of Dask workers, with the interface that algorithms use."""

import contextlib
import queue
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Unpack
from urllib.parse import urlsplit

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
from .connection import WorkerConnection
from .dispatcher import Dispatcher
from .distribution import CHUNK_S
from .membership import Membership
from .tasks import AHEAD_S

MOST_AHEAD = 1 << 16  # unfinished tasks taken from an iterable, at most


class DaskPool:
    """Pool of Dask workers, which may join or die at any time; tasks of a dead worker run again elsewhere."""

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
        """Take the components from `open_pool`; `undo` is closed after the pool."""
        self._client = client
        self._dispatcher = dispatcher
        self._membership = membership
        self._fleet = fleet
        self._where = where
        self._undo = undo
        self._closed = False

    @property
    def size(self) -> int:
        """Return the number of workers that may receive work."""
        return sum(worker.usable for worker in list(self._dispatcher.workers.values()))

    @property
    def threads(self) -> int:
        """Return the number of threads of these workers: that many tasks of one CPU run at once."""
        return self._dispatcher.workers.slots

    @property
    def task_timeout_s(self) -> float | None:
        """Return the time limit of a task; None: no limit."""
        return self._dispatcher.timeout_s

    def imap_unordered(
        self, fn: Callable[[Task], Any], tasks: Iterable[Task], **options: Unpack[TaskOptions]
    ) -> Iterator[Done]:
        """Run fn on every task and yield results as they finish; tasks are taken as workers need them.

        The iterable advances in the calling thread, so a slow one delays results.

        Raises:
            ConfigError: an option has the wrong type or is out of range.
            PoolError: the pool is closed, the scheduler is lost, or no worker meets the needs of a task.
        """
        ends: queue.SimpleQueue[Sequence[End]] = queue.SimpleQueue()
        self._check(options)
        batch = self._dispatcher.open(fn, ends.put, **options)
        remaining = iter(tasks)
        total = len(tasks) if isinstance(tasks, Sequence) else None
        batch.unseen = total or 0
        put = ended = 0
        exhausted = False
        try:
            while True:
                count = self._ahead(batch.mean_s, ended, total) - (put - ended)
                if not exhausted and count > 0:
                    taken, exhausted = batch.take(remaining, count, lambda: not ends.empty())
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
        """Open a batch whose results are delivered in the event loop's thread."""
        self._check(options)
        return self._dispatcher.open(fn, deliver, **options)

    def broadcast(self, value: Value) -> Broadcast[Value]:
        """Return a handle of a value that is sent to each worker once."""
        return self._dispatcher.broadcast(value)

    def stateful(self, factory: Callable[[], Any], needs: Needs = ONE_CPU) -> Stateful:
        """Create an object on a worker, and return its handle."""
        self._check({"needs": needs})
        return ActorHandle(self._dispatcher.placement, factory, needs)

    def occupy_worker(self) -> tuple[str, Callable[[], None]]:
        """Choose the worker with the fewest objects per thread for a process, and count the process as an object.

        Returns:
            The worker's address, and a function that ends the counting.

        Raises:
            PoolError: there is no worker, or the pool has failed.
        """

        async def occupy() -> WorkerConnection:
            usable = [worker for worker in self._dispatcher.workers.values() if worker.usable]
            if not usable:
                raise PoolError(f"no worker is available ({self._where}); start one, and try again")
            worker = min(usable, key=lambda one: (one.objects + 1) / one.threads)
            worker.objects += 1
            return worker

        def release(worker: WorkerConnection) -> None:
            worker.objects -= 1

        self._check({})
        worker = self._client.sync(occupy)
        return worker.address, partial(self._dispatcher.call, release, worker)

    def submit(self, fn: Callable[..., Any], worker: str, key: str, *arguments: Any) -> Any:
        """Start fn(key, *arguments) as a Dask task with this key on a worker, and return its future."""
        return self._client.submit(fn, key, *arguments, key=key, workers=[worker], pure=False)

    @property
    def local_address(self) -> str:
        """Return the IP address by which this process reaches the scheduler, and workers reach this process."""
        scheduler = urlsplit(self._client.scheduler.address)  # type: ignore[union-attr]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect((scheduler.hostname, scheduler.port))
            return str(sock.getsockname()[0])

    def ask(self, workers: int) -> None:
        """Tell the autoscaler how many workers can be used."""
        if self._fleet is not None:
            self._fleet.asked = workers

    def close(self) -> None:
        """Disconnect; workers of an external scheduler keep running."""
        if self._closed:
            return
        self._closed = True
        error = PoolError("the pool is closed; open another one")

        async def leave() -> None:
            self._dispatcher.fail(error)  # first, otherwise open tasks would be reported as lost
            await self._membership.close()
            self._dispatcher.close()

        try:
            self._client.sync(leave)
        finally:
            self._undo.close()

    def describe(self) -> str:
        """Return one line about the workers."""
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
            raise PoolError(f"no worker meets the needs of a task ({needs}); largest available: {most}; {remedy}")

    def _ahead(self, mean_s: float | None, ended: int, total: int | None) -> int:
        """Return how many unfinished tasks may be taken: all of a sequence, few of an iterator."""
        if total is not None:
            return MOST_AHEAD
        slots = max(self.threads, 1)
        each = 2 if mean_s is None else 2 + 2 * (CHUNK_S + AHEAD_S) / max(mean_s, 1e-6)
        # Grows with the number of results, so that a batch that is abandoned early has taken few.
        return min(int(slots * each), 3 * slots + 2 * ended, MOST_AHEAD)
