"""The pool on Dask distributed: workers on this machine, or those of a scheduler that already runs.

Dask places tasks, watches workers and reruns what a dead one held; this file turns what it reports into `Done`s.
"""

import asyncio
import contextlib
import logging
import os
import queue
import uuid
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any

import dask
import distributed.comm
from distributed import Client, Future, LocalCluster, Security
from distributed.client import ClosedClientError
from distributed.scheduler import KilledWorker
from distributed.versions import VersionMismatchWarning

from algos.pool import Done, PoolError, Task, TaskTimeout, WorkerLost
from algos.worker import TOPIC, run_task

from .preflight import check_workers

log = logging.getLogger(__name__)

CONNECT_S = 5.0  # a scheduler that has not answered by then is out of reach
WORKERS_S = 15.0  # a scheduler that has no worker by then is not given one
IN_FLIGHT = 3  # tasks given to Dask for each worker: one runs, the others hide the way there


def local(workers: int | None, retries: int, task_timeout_s: float | None) -> "DaskPool":
    """Open a pool of worker processes on this machine, reachable from this machine alone."""
    _quieten()
    workers = workers or os.cpu_count() or 1
    settings = {
        "distributed.scheduler.allowed-failures": retries,
        "distributed.worker.preload": ["algos.worker"],
        "distributed.comm.timeouts.connect": CONNECT_S,
        # Watching itself costs Dask a tenth of a core on two idle workers, and it shares the tasks' cores here.
        "distributed.worker.profile.enabled": False,
        "distributed.admin.tick.interval": "1s",
        "distributed.admin.system-monitor.interval": "10s",
    }
    with dask.config.set(settings):
        cluster = LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            memory_limit=None,
            silence_logs=logging.CRITICAL,
        )
        try:
            client = Client(cluster)
            return DaskPool(client, cluster, task_timeout_s, f"{workers} processes on this machine")
        except BaseException:
            cluster.close()
            raise


def connect(
    address: str | None,
    workers: int | None,
    retries: int,
    task_timeout_s: float | None,
    imports: Collection[str] = ("algos", "envs"),
) -> "DaskPool":
    """Open a pool on the workers of a running scheduler; without an address, start a cluster here and say so.

    Raises:
        PoolError: the scheduler does not answer, has no worker, or a worker does not match this process.
    """
    if address is None:
        pool = local(workers, retries, task_timeout_s)
        log.info("compute.address is not set: started a Dask cluster here with %d workers", pool.size)
        return pool
    _quieten()
    try:
        # A client would wait for ever for a listener that is no scheduler.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, _greet(address)).result()
        client = Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        remedy = "is it running there? `dask scheduler` prints its address"
        raise PoolError(f"compute.address={address} does not answer ({type(error).__name__}); {remedy}") from error
    try:
        try:
            client.wait_for_workers(1, timeout=WORKERS_S)
        except TimeoutError as error:
            remedy = f"start one: dask worker {address} --nthreads 1 --preload algos.worker"
            raise PoolError(f"the scheduler at {address} has no workers; {remedy}") from error
        check_workers(client, imports)
    except BaseException:
        client.close()
        raise
    return DaskPool(client, None, task_timeout_s, f"the scheduler at {address}")


class DaskPool:
    """Tasks run on Dask workers; a worker may die at any time, and its tasks run again elsewhere."""

    def __init__(self, client: Client, cluster: LocalCluster | None, task_timeout_s: float | None, where: str) -> None:
        self._client = client
        self._cluster = cluster
        self._timeout_s = task_timeout_s
        self._where = where
        self._closed = False
        self._starts: dict[str, int] = {}  # how often each task in flight was started
        self._ends: dict[str, queue.SimpleQueue[tuple[str, Future | None]]] = {}  # of each batch in flight
        client.subscribe_topic(TOPIC, self._heed)

    @property
    def size(self) -> int:
        """Workers that the scheduler knows now."""
        return len(self._client.scheduler_info(n_workers=-1)["workers"])

    def imap_unordered(
        self,
        fn: Callable[[Task], Any],
        tasks: Iterable[Task],
        *,
        urgent: bool = False,
    ) -> Iterator[Done]:
        """Run fn on every task and yield each end as it comes; few tasks are in flight at a time.

        Raises:
            PoolError: the pool is closed, or the scheduler is gone.
        """
        if self._closed:
            raise PoolError("the pool is closed; open another one")
        batch = f"paddock-{uuid.uuid4().hex}"
        ends = self._ends[batch] = queue.SimpleQueue()
        waiting = enumerate(tasks)
        flying: dict[str, tuple[int, Future]] = {}
        try:
            try:
                bound = IN_FLIGHT * max(self.size, 1)
            except (OSError, ClosedClientError, CancelledError) as error:
                raise self._scheduler_gone() from error
            while True:
                while len(flying) < bound and (following := next(waiting, None)) is not None:
                    index, task = following
                    key = f"{batch}-{index}"
                    self._starts[key] = 0
                    try:
                        future = self._client.submit(
                            run_task, fn, task, self._timeout_s, key=key, pure=False, priority=int(urgent)
                        )
                    except ClosedClientError as error:
                        raise self._scheduler_gone() from error
                    flying[key] = (index, future)
                    future.add_done_callback(lambda future: ends.put((future.key, future)))
                if not flying:
                    return
                key, ended = ends.get()
                if key not in flying:
                    continue  # of a task that was ended by its time-out
                index, future = flying.pop(key)
                attempts = max(self._starts.pop(key), 1)
                yield self._done(index, future, attempts, timed_out=ended is None)
        finally:
            del self._ends[batch]
            if flying:
                with contextlib.suppress(ClosedClientError):
                    self._client.cancel([future for _, future in flying.values()])
                for key in flying:
                    self._starts.pop(key, None)

    def close(self) -> None:
        """Let the workers go; those of somebody else's scheduler stay."""
        if self._closed:
            return
        self._closed = True
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()

    def describe(self) -> str:
        """One line on where the work happens."""
        return f"{self.size}, {self._where}"

    def _heed(self, event: tuple[float, dict[str, str]]) -> None:
        """Take a worker's notice; called in the client's event loop, in the order of the notices."""
        _, notice = event
        key = notice["key"]
        if key not in self._starts:
            return
        if notice["event"] == "timeout":
            ends = self._ends.get("-".join(key.split("-")[:2]))
            if ends is not None:
                ends.put((key, None))
            return
        self._starts[key] += 1
        if self._starts[key] > 1:
            log.warning(
                "a worker was lost; its task runs again (attempt %d) on %s", self._starts[key], notice["worker"]
            )

    def _done(self, index: int, future: Future, attempts: int, timed_out: bool) -> Done:
        if timed_out:
            self._client.cancel(future)
            limit = f"compute.task_timeout_s={self._timeout_s}"
            error: BaseException = TaskTimeout(f"task {index} ran longer than {limit}; raise it or look for a hang")
            return Done(index, None, error, attempts, self._timeout_s or 0.0)
        try:
            # Waits where the result was lost with its worker and is computed again.
            value, seconds = future.result()
        except CancelledError as error:
            raise self._scheduler_gone() from error
        except KilledWorker as error:
            deaths, last = error.allowed_failures + 1, error.last_worker.address
            text = f"task {index} lost its worker {deaths} times, the last at {last}; it may be what kills them"
            return Done(index, None, WorkerLost(text), deaths)
        except Exception as error:
            return Done(index, None, error, attempts)
        return Done(index, value, None, attempts, seconds)

    def _scheduler_gone(self) -> PoolError:
        remedy = "start it again and repeat the command with run.dir= of this run's folder"
        return PoolError(f"lost {self._where}; {remedy}")


def _quieten() -> None:
    """What Dask and the libraries below it would log of workers and schedulers, the pool says itself, in one line."""
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] in ("distributed", "tornado", "asyncio"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", category=VersionMismatchWarning)


async def _greet(address: str) -> None:
    """Connect to a scheduler and shake hands, within CONNECT_S."""
    connection = Security().get_connection_args("client")
    comm = await asyncio.wait_for(distributed.comm.connect(address, CONNECT_S, **connection), CONNECT_S)
    await comm.close()
