"""Membership of the pool: find workers through the scheduler, check each, and monitor the scheduler.

A worker with another version of NumPy or Box2D computes different results, and one that cannot import the project fails
at its first task. So each worker is compared with this process before it receives work.
"""

import asyncio
import logging
import time
from collections.abc import Collection, Mapping
from typing import Any

from distributed import Client

from paddock.algos.pool.protocol import PoolError
from paddock.algos.pool.worker import dask_setup, describe_process

from .autoscale import WorkerFleet
from .connection import WorkerConnection, greet
from .dispatcher import Dispatcher

log = logging.getLogger(__name__)

PACKAGES = ("numpy", "gymnasium", "box2d", "torch", "distributed", "cloudpickle")  # whose versions are compared
TICK_S = 0.5
ANSWER_S = 3.5  # a scheduler that does not answer within it, twice, is lost
MAX_HANDSHAKES = 32  # concurrent; otherwise each would wait for the answers of all
CANCEL_S = 0.2  # before a task that continues is cancelled again
STUCK_S = 300.0  # a worker of our cluster that has been silent for so long is replaced
RETRY_S = 2.0  # before an unreachable worker is tried again


class Membership:
    """Synchronization of the dispatcher's workers with the scheduler's. Everything runs in the client's event loop."""

    def __init__(
        self,
        client: Client,
        dispatcher: Dispatcher,
        fleet: WorkerFleet | None,
        imports: Collection[str],
        where: str,
    ) -> None:
        """Start without workers."""
        self._client = client
        self._dispatcher = dispatcher
        self._fleet = fleet
        self._imports = imports
        self._where = where
        self._known: dict[str, asyncio.Task[None]] = {}  # a task for each worker, by address
        self._refused: dict[str, str] = {}  # reasons by address
        self._announced: int | None = None
        self._seen = 0
        self._watching: asyncio.Task[None] | None = None
        self._following: asyncio.Task[None] | None = None  # changes the number of workers
        self._handshakes = asyncio.Semaphore(MAX_HANDSHAKES)

    async def open(self, workers: int, timeout_s: float) -> None:
        """Wait for workers, and start monitoring.

        Raises:
            PoolError: a worker does not match this process.
            TimeoutError: no worker joined within the time limit.
        """
        self._watching = self._dispatcher.spawn(self._watch())
        joined = 0
        async with asyncio.timeout(timeout_s) as limit:
            while len(self._dispatcher.workers) < workers or not self._known.keys() <= self._dispatcher.workers.keys():
                await asyncio.sleep(0.02)
                if len(self._dispatcher.workers) > joined:
                    joined = len(self._dispatcher.workers)
                    limit.reschedule(asyncio.get_running_loop().time() + timeout_s)
                if self._refused:
                    address, fault = next(iter(self._refused.items()))
                    raise PoolError(f"worker {address} {fault}")
                if self._dispatcher.failure is not None:
                    raise self._dispatcher.failure
        self._announced = len(self._dispatcher.workers)

    async def close(self) -> None:
        """Stop monitoring."""
        tasks = [task for task in (*self._known.values(), self._watching, self._following) if task is not None]
        while tasks := [task for task in tasks if not task.done()]:
            for task in tasks:
                task.cancel()
            # Before Python 3.12, `asyncio.wait_for` in Dask loses a cancellation that coincides with the answer.
            await asyncio.wait(tasks, timeout=CANCEL_S)

    async def _watch(self) -> None:
        passed_s = 0.0
        while self._dispatcher.failure is None:
            begun = time.monotonic()
            try:
                present = await self._ask_scheduler()
            except (OSError, TimeoutError, AttributeError) as error:
                remedy = "restart it, and resume the run with run.dir=FOLDER"
                self._dispatcher.fail(PoolError(f"lost {self._where} ({error or type(error).__name__}); {remedy}"))
                return
            for address in present:
                if address not in self._known and address not in self._refused:
                    self._known[address] = asyncio.ensure_future(self._join(address))
            for address in set(self._refused) - set(present):
                del self._refused[address]
            self._give_up_stuck(passed_s)
            self._dispatcher.watch(passed_s)
            self._announce()
            try:
                await self._follow()
            except PoolError as error:
                self._dispatcher.fail(error)
                return
            except Exception as error:  # of the cluster manager; connected workers continue
                log.warning("cannot change the number of workers: %s", error)
            await asyncio.sleep(TICK_S if self._dispatcher.workers else TICK_S / 10)
            # Time in which this process was stopped does not count as silence of workers.
            passed_s = min(time.monotonic() - begun, 2 * TICK_S)

    async def _ask_scheduler(self) -> Mapping[str, int]:
        """Return the scheduler's workers; retry once, since this process may have been stopped.

        Raises:
            OSError, TimeoutError: it does not answer.
        """
        scheduler: Any = self._client.scheduler
        try:
            present: Mapping[str, int] = await asyncio.wait_for(scheduler.ncores(), ANSWER_S)
        except TimeoutError:
            present = await asyncio.wait_for(scheduler.ncores(), ANSWER_S)
        if self._client.status not in ("running", "newly-created"):
            raise OSError("connection lost")
        return present

    async def _follow(self) -> None:
        """Scale the fleet; a change that takes longer than a tick continues in the background."""
        if self._fleet is None:
            return
        if self._following is None:
            usable = [worker for worker in self._dispatcher.workers.values() if worker.usable]
            self._following = asyncio.ensure_future(self._fleet.follow(self._dispatcher.backlog, usable))
        await asyncio.wait([self._following], timeout=TICK_S)
        if self._following.done():
            followed, self._following = self._following, None
            followed.result()

    def _give_up_stuck(self, passed_s: float) -> None:
        """Give up workers of the fleet that have been silent for STUCK_S, connected or not."""
        if self._fleet is not None:
            for worker in self._fleet.connections.values():
                if self._dispatcher.workers.get(worker.address) is not worker:  # otherwise the dispatcher counts
                    worker.quiet_s += passed_s
                if worker.quiet_s > STUCK_S:
                    worker.give_up()

    async def _join(self, address: str) -> None:
        try:
            async with self._handshakes:
                worker = await self._welcome(address)
            if self._fleet is not None:
                self._fleet.note(worker)
            await self._dispatcher.serve(worker)
        except PoolError as error:
            self._refused[address] = str(error)
            if self._announced is not None:
                log.warning("rejected worker %s: it %s", address, error)
        except (OSError, TimeoutError):
            await asyncio.sleep(RETRY_S)
        except Exception as error:
            self._refused[address] = f"failed the handshake ({type(error).__name__}: {error})"
            log.exception("worker %s %s", address, self._refused[address])
        finally:
            self._known.pop(address, None)

    async def _welcome(self, address: str) -> WorkerConnection:
        """Connect to a worker and check it.

        Raises:
            PoolError: the worker is refused.
        """
        question = {"packages": PACKAGES, "imports": sorted(self._imports)}
        worker = await greet(address, self._client.connection_args, question)
        if worker is None:
            await self._load(address)
            worker = await greet(address, self._client.connection_args, question)
        if worker is None:
            raise PoolError("cannot serve; restart it with `--preload paddock.algos.pool.worker`")
        fault = examine(worker, self._imports)
        if fault is not None:
            worker.abort()
            raise PoolError(fault)
        return worker

    async def _load(self, address: str) -> None:
        """Load the worker's half of the pool into a worker that was started without `--preload`.

        Raises:
            PoolError: it cannot import the project.
            OSError: it is gone.
        """
        ends = await asyncio.to_thread(self._client.run, dask_setup, workers=[address], on_error="return")
        error = ends.get(address)
        if isinstance(error, OSError):
            raise error
        if isinstance(error, Exception):
            remedy = "install the project there (pip install -e .) or start the worker in its root"
            raise PoolError(f"cannot import the project ({error}); {remedy}")

    def _announce(self) -> None:
        """Log a new number of workers once it is stable for two ticks."""
        size = sum(worker.usable for worker in self._dispatcher.workers.values())
        if self._announced is not None and size != self._announced and size == self._seen:
            log.info("workers: %d, were %d", size, self._announced)
            self._announced = size
        self._seen = size


def examine(worker: WorkerConnection, imports: Collection[str]) -> str | None:
    """Return the first difference between a worker and this process that affects results, with its fix, or None."""
    theirs: Mapping[str, str] = worker.answer["versions"]
    for name, expected in describe_process(PACKAGES, tuple(sorted(imports))).items():
        found = theirs.get(name, "unknown")
        if name == "python":
            same, remedy = found.split(".")[:2] == expected.split(".")[:2], "use one environment everywhere"
        elif name in PACKAGES:
            change = f"install {name}=={expected}" if expected != "not installed" else f"uninstall {name}"
            same, remedy = found == expected, f"make it the same there: pip {change}"
        elif name == "__main__":
            same, remedy = found == expected, "move what tasks need of the script into a module"
        else:
            same, remedy = found == expected, f"install {name} there too"
        if not same:
            return f"has {name.replace('python', 'Python')} {found}, this process {expected}; {remedy}"
    return None
