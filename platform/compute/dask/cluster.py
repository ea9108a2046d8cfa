"""Opening of pools of Dask workers: on this machine, at a running scheduler, or as Slurm jobs."""

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

from .autoscale import Bounds, NoWorkersError, WorkerFleet
from .dispatcher import Dispatcher
from .lost_workers import read_exit
from .membership import Membership
from .pool import DaskPool

log = logging.getLogger(__name__)

CONNECT_S = 5.0  # timeout of connecting to a scheduler
HOST = "127.0.0.1"
WORKERS_S = 15.0  # timeout of waiting for a scheduler's first worker
TRIES = 4  # attempts to start a worker that exits at once
START_S = 60.0  # timeout of starting worker processes on this machine
EACH_S = 3.0  # additional time for each worker
UNGUARDED = f"exited with status {UNGUARDED_EXIT_CODE}"

# Dask reads its settings at any time, so they remain set after a pool was opened.
DASK_SETTINGS = {
    "distributed.comm.timeouts.connect": CONNECT_S,
    # Dask's monitoring uses a tenth of a core on two idle workers, and shares the tasks' cores.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.worker.preload": ["paddock.algos.pool.worker"],
    "distributed.nanny.preload": ["paddock.algos.pool.worker"],
    # Dask would close a nanny whose worker was lost long ago, even while it starts another, and would forget lost jobs
    # of single workers. The fleet replaces workers that exit.
    "distributed.deploy.lost-worker-timeout": "1000 days",
    # Dask would also end workers that are silent for five minutes: all of them, if this process was stopped that long.
    # The fleet replaces stuck workers.
    "distributed.scheduler.worker-ttl": "1000 days",
}


def local(
    bounds: Bounds,
    retries: int,
    task_timeout_s: float | None,
    imports: Collection[str] = ("paddock",),
    security: Security | None = None,
) -> DaskPool:
    """Open a pool of worker processes on this machine, reachable only from here and with its certificates.

    Without `security`, temporary certificates are created.

    Raises:
        PoolError: workers do not start, or cannot be reached.
        Unguarded: the script opens workers when it is imported.
    """
    configure_dask()
    with contextlib.ExitStack() as undo:
        try:
            crashes = undo.enter_context(open_temporary("paddock-crashes-"))
            cluster = LocalCluster(
                n_workers=0,  # the fleet starts them, and restarts those that exit early
                threads_per_worker=1,
                processes=True,
                worker_class=OneTimeNanny,
                host=HOST,
                dashboard_address=f"{HOST}:0",
                memory_limit=None,
                # Until then, a worker that hangs blocks the cluster from starting and ending others.
                death_timeout=START_S + EACH_S * bounds.max,
                silence_logs=logging.CRITICAL,
                security=security or Security.temporary(),
                protocol="tls://",
                env={exit_report.FOLDER: crashes},
            )
        except (OSError, RuntimeError) as error:  # Dask raises RuntimeError
            remedy = "if a disk is full, free space or set TMPDIR to another folder; or use compute=serial"
            raise PoolError(f"cannot start worker processes ({one_line(error)}); {remedy}") from error
        undo.callback(cluster.close)
        client = Client(cluster, set_as_default=False)
        client.sync(_block_interrupts)
        where = "processes on this machine" if bounds.min == bounds.max else f"of {bounds} processes on this machine"
        cause = exit_report.last_cause

        async def ended(names: Collection[Any]) -> list[Any]:
            over = [name for name in names if cluster.workers[name].status in (Status.failed, Status.closed)]
            if over and not fleet.any_joined and cause() == UNGUARDED:
                raise NoWorkersError(UNGUARDED)
            return over

        fleet = WorkerFleet(cluster, bounds, ended, tries=TRIES, retry_s=0.5, check_s=0.0, cause=cause)
        try:
            return open_pool(undo, client, fleet, retries, task_timeout_s, imports, where, bounds.min, START_S, True)
        except NoWorkersError as error:
            if str(error) == UNGUARDED:
                raise Unguarded from error
            reason = cause() or "see the errors above"
            raise PoolError(f"cannot start a worker process in {TRIES} attempts: {reason}") from None
        except TimeoutError as error:
            remedy = "this machine is overloaded or short of memory; reduce compute.workers"
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
        # A client would wait forever for a listener that is not a scheduler.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, _probe(address, security or Security())).result()
        client = Client(address, timeout=CONNECT_S, set_as_default=False, security=security)
    except (OSError, TimeoutError, ValueError, TypeError, RuntimeError) as error:
        remedy = "check that it runs there; `dask scheduler` prints its address"
        raise PoolError(f"compute.address={address} does not respond ({type(error).__name__}); {remedy}") from error
    where = f"the scheduler at {address}"
    with contextlib.ExitStack() as undo:
        try:
            pool = open_pool(undo, client, None, retries, task_timeout_s, imports, where, 1, WORKERS_S)
        except TimeoutError as error:
            remedy = f"start one: dask worker {address} --nthreads 1 --preload paddock.algos.pool.worker"
            raise PoolError(f"{where} has no workers; {remedy}") from error
    if security is None:
        remedy = "start it with certificates, and set compute.tls"
        log.warning("%s is not encrypted: anyone who can reach it can run code as you; %s", where, remedy)
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
    """Wait for workers, each at most `timeout_s` after the last, and check that they match this process.

    The pool takes over `undo`, which is closed after it, together with the client.

    Raises:
        PoolError: a worker does not match this process.
        TimeoutError: the workers did not connect in time.
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
    """Return the address in a scheduler file.

    Raises:
        PoolError: the file does not exist, or contains no address.
    """
    try:
        return str(json.loads(path.read_text())["address"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        remedy = "start `dask scheduler --scheduler-file FILE` first"
        raise PoolError(f"compute.scheduler_file={path} contains no address ({error}); {remedy}") from error


def configure_dask() -> None:
    """Set Dask's settings and silence its logs, since the pool reports workers and schedulers itself."""
    dask.config.set(DASK_SETTINGS)
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] in ("distributed", "tornado", "asyncio") and name != "distributed.nanny":
            logging.getLogger(name).setLevel(logging.CRITICAL)
    exit_report.listen()
    warnings.filterwarnings("ignore", category=VersionMismatchWarning)


async def _block_interrupts() -> None:
    """Block SIGINT in the loop's thread, so that Ctrl-C does not kill workers while they import."""
    resource_tracker.ensure_running()  # it unblocks SIGINT when it starts, so it must start first
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])


class OneTimeNanny(Nanny):
    """Nanny that closes when its worker exits, instead of restarting it forever; the fleet starts another."""

    _closing: "asyncio.Future[Any] | None" = None

    async def instantiate(self) -> Status:
        """Start the worker the first time, and close the nanny instead of restarting it."""
        if self.process is None:
            return await super().instantiate()
        self._closing = asyncio.ensure_future(self.close(reason="its worker has ended"))
        return Status.failed

    async def kill(self, timeout: float = 5, reason: str = "nanny-kill") -> None:
        """Kill the worker; one that has not started yet may hang, and gets SIGKILL at once."""
        process = self.process
        if process is not None and process.status is Status.starting and process.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            await asyncio.wait_for(process.stopped.wait(), timeout)
        await super().kill(timeout, reason)


async def _probe(address: str, security: Security) -> None:
    """Connect to a scheduler and complete the handshake, within CONNECT_S."""
    connection = security.get_connection_args("client")
    comm = await asyncio.wait_for(distributed.comm.connect(address, CONNECT_S, **connection), CONNECT_S)
    await comm.close()
