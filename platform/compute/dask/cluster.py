"""Opens pools of Dask workers: on this machine, at a running scheduler, or as Slurm jobs."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import warnings
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import dask
import distributed.comm
from distributed import Client, LocalCluster, Nanny, Security
from distributed.core import Status
from distributed.versions import VersionMismatchWarning

from paddock.algos.common.disk import open_temporary
from paddock.algos.pool import exit_report
from paddock.algos.pool.main_guard import UNGUARDED_EXIT_CODE, Unguarded
from paddock.algos.pool.protocol import PoolError
from paddock.envs.errors import one_line

from .autoscale import Bounds, NoneCame, WorkerFleet
from .dispatcher import Dispatcher
from .lost_workers import read_exit
from .membership import Membership
from .pool import DaskPool

log = logging.getLogger(__name__)

CONNECT_S = 5.0  # a scheduler that has not answered by then is out of reach
HOST = "127.0.0.1"  # where the processes of this machine reach each other
WORKERS_S = 15.0  # a scheduler that has no worker by then is not given one
TRIES = 4  # times that a worker is started which ends at once
START_S = 60.0  # where no worker process of this machine has started for so long, none will
EACH_S = 3.0  # further, for each worker that starts beside others
UNGUARDED = f"exited with status {UNGUARDED_EXIT_CODE}"

# Dask reads its settings at any time, so these stay once a pool has been opened.
LEAN = {
    "distributed.comm.timeouts.connect": CONNECT_S,
    # Watching itself costs Dask a tenth of a core on two idle workers, and it shares the tasks' cores.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.worker.preload": ["paddock.algos.pool.worker"],
    "distributed.nanny.preload": ["paddock.algos.pool.worker"],
    # Dask closes a nanny whose worker was lost so long ago and is not there now, though it may be starting a third, and
    # forgets lost jobs of one worker alone. The fleet replaces those that ended.
    "distributed.deploy.lost-worker-timeout": "1000 days",
    # And it ends workers that were silent for five minutes: all of them, where this process was stopped for so long.
    # The fleet replaces what is stuck.
    "distributed.scheduler.worker-ttl": "1000 days",
}


def local(
    bounds: Bounds,
    retries: int,
    task_timeout_s: float | None,
    imports: Collection[str] = ("paddock",),
    security: Security | None = None,
) -> DaskPool:
    """Open a pool of worker processes on this machine, reachable from this machine and with its certificates alone.

    Args:
        security: certificates of the cluster; None makes some that only its processes know.

    Raises:
        PoolError: they cannot be reached, or do not start.
        Unguarded: because the script opens workers when it is imported.
    """
    configure_dask()
    with contextlib.ExitStack() as undo:
        try:
            crashes = undo.enter_context(open_temporary("paddock-crashes-"))
            cluster = LocalCluster(
                n_workers=0,  # the fleet starts them, and again those that end while they start
                threads_per_worker=1,
                processes=True,
                worker_class=OneTimeNanny,
                host=HOST,
                dashboard_address=f"{HOST}:0",
                memory_limit=None,
                # Until then one that hangs keeps the cluster from starting and ending others.
                death_timeout=START_S + EACH_S * bounds.max,
                silence_logs=logging.CRITICAL,
                security=security or Security.temporary(),
                protocol="tls://",
                env={exit_report.FOLDER: crashes},
            )
        except (OSError, RuntimeError) as error:  # Dask's own is a RuntimeError
            remedy = "where a disk is full make room, or name a folder elsewhere by TMPDIR; or take compute=serial"
            raise PoolError(f"no worker processes can be started here ({one_line(error)}); {remedy}") from error
        undo.callback(cluster.close)
        client = Client(cluster, set_as_default=False)
        client.sync(_hold_interrupts)
        where = "processes on this machine" if bounds.min == bounds.max else f"of {bounds} processes on this machine"
        cause = exit_report.last_cause

        async def ended(names: Collection[Any]) -> list[Any]:
            over = [name for name in names if cluster.workers[name].status in (Status.failed, Status.closed)]
            if over and not fleet.came and cause() == UNGUARDED:
                raise NoneCame(UNGUARDED)
            return over

        fleet = WorkerFleet(cluster, bounds, ended, tries=TRIES, again_s=0.5, look_s=0.0, cause=cause)
        try:
            return open_pool(undo, client, fleet, retries, task_timeout_s, imports, where, bounds.min, START_S, True)
        except NoneCame as error:
            if str(error) == UNGUARDED:
                raise Unguarded from error
            why = cause() or "its errors are above"
            raise PoolError(f"no worker process starts here, in {TRIES} tries: {why}") from None
        except TimeoutError as error:
            remedy = "this machine is too busy, or short of memory; ask for fewer by compute.workers"
            raise PoolError(f"{bounds.min} worker processes did not start within {START_S:g} s; {remedy}") from error


def connect(
    address: str,
    retries: int,
    task_timeout_s: float | None,
    imports: Collection[str] = ("paddock",),
    security: Security | None = None,
) -> DaskPool:
    """Open a pool on the workers of a running scheduler.

    Raises:
        PoolError: the scheduler does not answer, has no worker, or a worker does not match this process.
    """
    configure_dask()
    try:
        # A client would wait for ever for a listener that is no scheduler.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, _greet(address, security or Security())).result()
        client = Client(address, timeout=CONNECT_S, set_as_default=False, security=security)
    except (OSError, TimeoutError, ValueError, TypeError, RuntimeError) as error:
        remedy = "is it running there? `dask scheduler` prints its address"
        raise PoolError(f"compute.address={address} does not answer ({type(error).__name__}); {remedy}") from error
    where = f"the scheduler at {address}"
    with contextlib.ExitStack() as undo:
        try:
            pool = open_pool(undo, client, None, retries, task_timeout_s, imports, where, 1, WORKERS_S)
        except TimeoutError as error:
            remedy = f"start one: dask worker {address} --nthreads 1 --preload paddock.algos.pool.worker"
            raise PoolError(f"{where} has no workers; {remedy}") from error
    if security is None:
        remedy = "start it with certificates, and name them by compute.tls"
        log.warning("%s is not encrypted: anyone who reaches it can run code as you; %s", where, remedy)
    return pool


def open_pool(
    undo: contextlib.ExitStack,
    client: Client,
    fleet: WorkerFleet | None,
    retries: int,
    task_timeout_s: float | None,
    imports: Collection[str],
    where: str,
    workers: int,
    timeout_s: float,
    nannies_here: bool = False,
) -> DaskPool:
    """Wait for so many workers and examine them.

    Args:
        undo: what is closed after the pool, from now on with the pool, and the client with it.
        nannies_here: whether the workers' nannies are in this process.

    Raises:
        PoolError: one of them does not match this process.
        TimeoutError: they did not come in time.
    """
    undo.callback(client.close)
    loop: Any = client.loop
    read = partial(read_exit, None if nannies_here else client.connection_args)
    dispatcher = Dispatcher(loop.asyncio_loop, retries, task_timeout_s, read)
    membership = Membership(client, dispatcher, fleet, imports, where)
    try:
        client.sync(membership.open, workers, timeout_s)
    except BaseException:
        client.sync(membership.close)
        raise
    return DaskPool(client, dispatcher, membership, fleet, where, undo.pop_all())


def read_scheduler_file(path: Path) -> str:
    """Return the address in a file that a scheduler wrote.

    Raises:
        PoolError: there is no such file, or no address in it.
    """
    try:
        return str(json.loads(path.read_text())["address"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        remedy = "start `dask scheduler --scheduler-file FILE` first"
        raise PoolError(f"compute.scheduler_file={path} gives no address ({error}); {remedy}") from error


def configure_dask() -> None:
    """Set Dask's settings, and silence its logs: the pool reports workers and schedulers itself, in one line."""
    dask.config.set(LEAN)
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] in ("distributed", "tornado", "asyncio") and name != "distributed.nanny":
            logging.getLogger(name).setLevel(logging.CRITICAL)
    exit_report.listen()
    warnings.filterwarnings("ignore", category=VersionMismatchWarning)


async def _hold_interrupts() -> None:
    """Have workers, which the loop's thread starts, begin without Ctrl-C: it would end them while they import."""
    resource_tracker.ensure_running()  # otherwise it is started before the first of them, and unblocks Ctrl-C
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])


class OneTimeNanny(Nanny):
    """Nanny that closes when its worker has ended; the fleet starts another, where Dask's own tries for ever."""

    _closing: "asyncio.Future[Any] | None" = None

    async def instantiate(self) -> Status:
        """See `Nanny.instantiate`."""
        if self.process is None:
            return await super().instantiate()
        self._closing = asyncio.ensure_future(self.close(reason="its worker has ended"))
        return Status.failed

    async def kill(self, timeout: float = 5, reason: str = "nanny-kill") -> None:
        """See `Nanny.kill`; a worker that has not started, and may hang, is killed at once."""
        process = self.process
        if process is not None and process.status is Status.starting and process.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            await asyncio.wait_for(process.stopped.wait(), timeout)
        await super().kill(timeout, reason)


async def _greet(address: str, security: Security) -> None:
    """Connect to a scheduler and shake hands, within CONNECT_S."""
    connection = security.get_connection_args("client")
    comm = await asyncio.wait_for(distributed.comm.connect(address, CONNECT_S, **connection), CONNECT_S)
    await comm.close()
