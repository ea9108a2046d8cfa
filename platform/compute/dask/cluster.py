"""Opens pools of Dask workers: on this machine, at a running scheduler, or as Slurm jobs."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import warnings
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import distributed.comm
from distributed import Client, LocalCluster, Nanny, Security
from distributed.core import Status
from distributed.versions import VersionMismatchWarning

from paddock.algos.common.disk import open_temporary
from paddock.algos.pool import exit_report
from paddock.algos.pool.protocol import PoolError
from paddock.algos.pool.script import UNGUARDED_EXIT_CODE, Unguarded, find_script

from ..preflight import Examination, hello
from .autoscale import Bounds, NoneCame, WorkerFleet
from .dispatcher import Dispatcher
from .exit_reports import kill, read_exit
from .membership import Membership
from .pool import DaskPool
from .settings import CONNECT_S, LEAN, held
from .worker_stderr import PREFIX, Echo

log = logging.getLogger(__name__)

HOST = "127.0.0.1"  # where the processes of this machine reach each other
WORKERS_S = 15.0  # a scheduler that has no worker by then is not given one
TRIES = 4  # times that a worker is started which ends at once
START_S = 60.0  # worker processes on this machine that have not started by then will not


def local(
    bounds: Bounds,
    retries: int,
    task_timeout_s: float | None,
    imports: Collection[str] = ("paddock",),
    security: Security | None = None,
) -> DaskPool:
    """Open a pool of worker processes on this machine, reachable from this machine alone.

    Raises:
        PoolError: they cannot be reached, or do not start.
        Unguarded: because the script opens workers when it is imported.
    """
    _check_loopback()
    quieten()
    with contextlib.ExitStack() as undo:
        undo.enter_context(held(LEAN))
        try:
            errors = undo.enter_context(open_temporary(PREFIX))
            cluster = LocalCluster(
                n_workers=0,  # the fleet starts them, and again those that end while they start
                threads_per_worker=1,
                processes=True,
                worker_class=StrictNanny,
                host=HOST,
                dashboard_address=f"{HOST}:0",
                memory_limit=None,
                death_timeout=START_S,  # until then one that hangs keeps the cluster from starting and ending others
                silence_logs=logging.CRITICAL,
                security=security,
                protocol="tls://" if security else None,
                env={exit_report.FOLDER: errors},
            )
        except (OSError, RuntimeError) as error:  # Dask's own is a RuntimeError, of whatever it met
            why = " ".join(str(error).split())
            remedy = "where a disk is full make room, or name a folder elsewhere by TMPDIR; or take compute=serial"
            raise PoolError(f"no worker processes can be started here ({why}); {remedy}") from error
        echo = Echo(errors)
        undo.callback(echo.catch_up)  # once the workers have ended, whose exit handlers write, too
        undo.callback(cluster.close)
        undo.callback(cluster.sync, _end_starting, cluster)  # in the loop, where nannies hear of starts, too
        client = Client(cluster, set_as_default=False)
        client.sync(_hold_interrupts)
        where = "processes on this machine" if bounds.min == bounds.max else f"of {bounds} processes on this machine"
        cause, end = exit_report.last_cause, partial(kill, client.connection_args)

        async def ended(names: Collection[Any]) -> list[Any]:
            return _closed(cluster, fleet.came, names)

        fleet = WorkerFleet(cluster, bounds, ended, end, cause=cause, tries=TRIES, again_s=0.5, look_s=0.0)
        try:
            return open_pool(undo, client, fleet, retries, task_timeout_s, imports, where, bounds.min, START_S, echo)
        except NoneCame as error:
            if _is_unguarded(cluster):
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
    quieten()
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
            return open_pool(undo, client, None, retries, task_timeout_s, imports, where, 1, WORKERS_S)
        except TimeoutError as error:
            remedy = f"start one: dask worker {address} --nthreads 1 --preload paddock.algos.pool.worker"
            raise PoolError(f"{where} has no workers; {remedy}") from error


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
    look: Callable[[], None] = lambda: None,
) -> DaskPool:
    """Wait for so many workers and examine them.

    Args:
        undo: what is closed after the pool, from now on with the pool, and the client with it.
        look: called about once a second.

    Raises:
        PoolError: one of them does not match this process.
        TimeoutError: they did not come in time.
    """
    undo.callback(client.close)
    dispatcher = Dispatcher(client.sync(_this_loop), retries, task_timeout_s)
    dispatcher.read_exit = partial(read_exit, client.connection_args)
    membership = Membership(client, dispatcher, fleet, find_script(), hello(imports), Examination(imports), where, look)
    try:
        client.sync(membership.open, workers, timeout_s)
    except BaseException:
        client.sync(membership.close)
        raise
    return DaskPool(client, dispatcher, membership, fleet, where, undo.pop_all())


def read_scheduler_file(path: Path) -> str:
    """The address in a file that a scheduler wrote.

    Raises:
        PoolError: there is no such file, or no address in it.
    """
    try:
        address = json.loads(path.read_text())["address"]
        if isinstance(address, str):
            return address
        why: Any = f"it is {address!r}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = error
    remedy = "start `dask scheduler --scheduler-file FILE` first"
    raise PoolError(f"compute.scheduler_file={path} gives no address ({why}); {remedy}")


def quieten() -> None:
    """What Dask and the libraries below it would log of workers and schedulers, the pool says itself, in one line."""
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] in ("distributed", "tornado", "asyncio") and name != "distributed.nanny":
            logging.getLogger(name).setLevel(logging.CRITICAL)
    exit_report.listen()
    warnings.filterwarnings("ignore", category=VersionMismatchWarning)


def _check_loopback() -> None:
    """Check that processes of this machine reach each other.

    Raises:
        PoolError: they do not, as in a network namespace whose loopback is down.
    """
    try:
        with socket.create_server((HOST, 0)) as server:
            socket.create_connection(server.getsockname(), CONNECT_S).close()
    except OSError as error:
        remedy = "bring the loopback interface up (`ip link set lo up`), or take compute=serial"
        raise PoolError(
            f"this machine does not reach itself at {HOST} ({error.strerror or error}); {remedy}"
        ) from error


async def _hold_interrupts() -> None:
    """Have workers, which the loop's thread starts, begin without Ctrl-C: it would end them while they import."""
    resource_tracker.ensure_running()  # which would come before the first of them, and let Ctrl-C through again
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])


class StrictNanny(Nanny):
    """Dask's own lets go of a worker that does not start in time, and leaves its process as it is.

    And it starts one that ends as it starts at once again, for ever, and none again of which it got no process: this
    one closes itself after TRIES, or at once, and the fleet, which hears of it, waits before it starts another.
    """

    exit_code: int | None = None  # of its last process that ended
    _unstarted = 0  # tries in a row, of which no worker came
    _closing: "asyncio.Future[Any] | None" = None

    async def instantiate(self) -> Status:
        """See `Nanny.instantiate`."""
        if self._unstarted >= TRIES and self.status is Status.running:
            self._give_up()
            return Status.failed
        self._unstarted += 1  # until it has come: what Dask returns may be of another try than this
        try:
            status = await super().instantiate()
        except Exception as error:
            process = self.process
            if process is not None and process.status is Status.starting and process.pid is None:
                exit_report.note_unstarted(error)
                process.status = Status.stopped  # or closing would wait for its end
            if self.status is Status.running:
                self._give_up()
            raise
        if status is Status.running:
            self._unstarted = 0
        return status

    def _on_worker_exit_sync(self, exitcode: int) -> None:
        self.exit_code = exitcode
        super()._on_worker_exit_sync(exitcode)

    def _give_up(self) -> None:
        self._closing = asyncio.ensure_future(self.close(reason="its worker does not start"))

    async def kill(self, timeout: float = 5, reason: str = "nanny-kill") -> None:
        """See `Nanny.kill`; a worker that has not started is killed at once."""
        if (process := self.process) is not None and _kill_starting(process):
            await asyncio.wait_for(process.stopped.wait(), timeout)
        await super().kill(timeout, reason)


async def _end_starting(cluster: LocalCluster) -> None:
    """Kill workers that have not started by now: a cluster that closes would wait for them, and one may hang."""
    for nanny in list(cluster._created):
        if nanny.process is not None:
            _kill_starting(nanny.process)


def _kill_starting(process: Any) -> bool:
    """Kill a nanny's worker if it has not started; return whether it was there to be killed."""
    if process.status is not Status.starting or process.pid is None:
        return False
    said = process.init_result_q
    if said is None or not said.empty():  # it has started, and may have run tasks: its nanny looks every 50 ms
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    return True


def _closed(cluster: LocalCluster, came: bool, names: Collection[Any]) -> list[Any]:
    """Those of these workers that have ended for good: a nanny replaces its worker, unless it was the first.

    Args:
        came: whether any worker has, whose tasks may end it with any exit code.

    Raises:
        NoneCame: they ended because the script opens workers when it is imported, as the next would.
    """
    if not came and _is_unguarded(cluster):
        raise NoneCame("the script opens workers when it is imported")
    return [name for name in names if cluster.workers[name].status in (Status.failed, Status.closed)]


def _is_unguarded(cluster: LocalCluster) -> bool:
    """Whether a worker ended because the script opens workers when it is imported; asked before any worker came."""
    return any(nanny.exit_code == UNGUARDED_EXIT_CODE for nanny in list(cluster._created))


async def _this_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


async def _greet(address: str, security: Security) -> None:
    """Connect to a scheduler and shake hands, within CONNECT_S."""
    connection = security.get_connection_args("client")
    comm = await asyncio.wait_for(distributed.comm.connect(address, CONNECT_S, **connection), CONNECT_S)
    await comm.close()
