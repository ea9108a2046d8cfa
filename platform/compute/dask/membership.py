"""Membership of the pool: finds workers through the scheduler, examines each, and watches the scheduler.

A worker with another NumPy or Box2D computes other numbers, and one that cannot import the project fails at its first
task. So each is compared with this process before it gets work, also one that joins later.
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
ANSWER_S = 3.5  # a scheduler that does not answer for so long, twice, is lost
GREETED = 32  # workers at a time, or each would have to wait for the answers of all
CANCEL_S = 0.2  # before a task that continues is cancelled again
STUCK_S = 300.0  # a worker of a cluster of ours that has been silent for so long is replaced
REFUSED_S = 30.0  # tasks for which there are refused workers alone wait for others for so long
AGAIN_S = 2.0  # before a worker that could not be reached is tried again


class Membership:
    """Keeps the dispatcher's workers those of the scheduler. All of it belongs to the client's event loop."""

    def __init__(
        self,
        client: Client,
        dispatcher: Dispatcher,
        fleet: WorkerFleet | None,
        imports: Collection[str],
        where: str,
    ) -> None:
        """Begin without workers.

        Args:
            imports: packages that tasks need.
            where: the scheduler, in words.
        """
        self._client = client
        self._dispatcher = dispatcher
        self._fleet = fleet
        self._imports = imports
        self._where = where
        self._known: dict[str, asyncio.Task[None]] = {}  # a task for each worker, by address
        self._refused: dict[str, str] = {}  # what is wrong with a worker, by address
        self._announced: int | None = None
        self._seen = 0
        self._watching: asyncio.Task[None] | None = None
        self._following: asyncio.Task[None] | None = None  # changes the number of workers
        self._refused_s = 0.0  # for which tasks have waited while all workers there were had been refused
        self._greeting = asyncio.Semaphore(GREETED)

    async def open(self, workers: int, timeout_s: float) -> None:
        """Wait for workers, and watch from then on.

        Raises:
            PoolError: one of them does not match this process.
            TimeoutError: none came for so long.
        """
        self._watching = self._dispatcher.spawn(self._watch())
        come = 0
        async with asyncio.timeout(timeout_s) as limit:
            while len(self._dispatcher.workers) < workers or not self._known.keys() <= self._dispatcher.workers.keys():
                await asyncio.sleep(0.02)
                if len(self._dispatcher.workers) > come:
                    come = len(self._dispatcher.workers)
                    limit.reschedule(asyncio.get_running_loop().time() + timeout_s)
                if self._refused:
                    address, fault = next(iter(self._refused.items()))
                    raise PoolError(f"worker {address} {fault}")
                if self._dispatcher.failure is not None:
                    raise self._dispatcher.failure
        self._announced = len(self._dispatcher.workers)

    async def close(self) -> None:
        """Watch no more."""
        tasks = [task for task in (*self._known.values(), self._watching, self._following) if task is not None]
        while tasks := [task for task in tasks if not task.done()]:
            for task in tasks:
                task.cancel()
            # Before Python 3.12 `asyncio.wait_for`, which Dask uses, loses a cancellation that comes with the answer.
            await asyncio.wait(tasks, timeout=CANCEL_S)

    async def _watch(self) -> None:
        passed_s = 0.0
        while self._dispatcher.failure is None:
            begun = time.monotonic()
            try:
                present = await self._ask_scheduler()
            except (OSError, TimeoutError, AttributeError) as error:
                remedy = "start it again, and continue the run by run.dir= of its folder"
                self._dispatcher.fail(PoolError(f"lost {self._where} ({error or type(error).__name__}); {remedy}"))
                return
            for address in present:
                if address not in self._known and address not in self._refused:
                    self._known[address] = asyncio.ensure_future(self._join(address))
            for address in set(self._refused) - set(present):
                del self._refused[address]
            self._refused_s = self._refused_s + passed_s if self._only_refused(present) else 0.0
            if self._refused_s > REFUSED_S:
                address, fault = next(iter(self._refused.items()))
                remedy = "fix that, and continue the run by run.dir= of its folder"
                self._dispatcher.fail(PoolError(f"all workers that are left get no work: {address} {fault}; {remedy}"))
                return
            self._give_up_stuck(passed_s)
            self._dispatcher.watch(passed_s)
            self._announce()
            try:
                await self._follow()
            except PoolError as error:
                self._dispatcher.fail(error)
                return
            except Exception as error:  # of whatever starts and ends workers; those present continue
                log.warning("the number of workers could not be changed: %s", error)
            await asyncio.sleep(TICK_S if self._dispatcher.workers else TICK_S / 10)
            # A process that was stopped for an hour has not missed an hour of signs of life.
            passed_s = min(time.monotonic() - begun, 2 * TICK_S)

    async def _ask_scheduler(self) -> Mapping[str, int]:
        """Return the workers that the scheduler has.

        Raises:
            OSError, TimeoutError: it does not answer, also when asked again: this process may have been stopped.
        """
        scheduler: Any = self._client.scheduler
        try:
            present: Mapping[str, int] = await asyncio.wait_for(scheduler.ncores(), ANSWER_S)
        except TimeoutError:
            present = await asyncio.wait_for(scheduler.ncores(), ANSWER_S)
        if self._client.status not in ("running", "newly-created"):
            raise OSError("connection lost")
        return present

    def _only_refused(self, present: Mapping[str, int]) -> bool:
        """Whether something waits, and all workers there are were refused, with no other on its way."""
        if not present or self._dispatcher.workers or not self._refused.keys() >= present.keys():
            return False
        return self._dispatcher.waits and not (self._fleet is not None and self._fleet.awaits(len(present)))

    async def _follow(self) -> None:
        """Have the fleet follow the tasks; a change that takes longer than a tick continues meanwhile."""
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
        """Give up workers of ours that have been silent for long, whether they are connected or not."""
        if self._fleet is not None:
            for worker in self._fleet.connections.values():
                if self._dispatcher.workers.get(worker.address) is not worker:  # else the dispatcher adds it
                    worker.quiet_s += passed_s
                if worker.quiet_s > STUCK_S:
                    worker.give_up()

    async def _join(self, address: str) -> None:
        try:
            async with self._greeting:
                worker = await self._welcome(address)
            if self._fleet is not None:
                self._fleet.note(worker)
            await self._dispatcher.serve(worker)
        except PoolError as error:
            self._refused[address] = str(error)
            if self._announced is not None:
                log.warning("worker %s gets no work: it %s", address, error)
        except (OSError, TimeoutError):
            await asyncio.sleep(AGAIN_S)
        except Exception as error:
            self._refused[address] = f"could not be greeted ({type(error).__name__}: {error})"
            log.exception("worker %s %s", address, self._refused[address])
        finally:
            self._known.pop(address, None)

    async def _welcome(self, address: str) -> WorkerConnection:
        """Greet a worker and examine it.

        Raises:
            PoolError: it is not to get work, and why.
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
        """Do in a worker what `--preload paddock.algos.pool.worker` does, which it was started without.

        Raises:
            PoolError: it cannot import the project.
            OSError: it has gone.
        """
        ends = await asyncio.to_thread(self._client.run, dask_setup, workers=[address], on_error="return")
        error = ends.get(address)
        if isinstance(error, OSError):
            raise error
        if isinstance(error, Exception):
            remedy = "install the project there (pip install -e .) or start the worker in its root"
            raise PoolError(f"cannot import the project ({error}); {remedy}")

    def _announce(self) -> None:
        """Log a new number of workers, once it has held for two looks."""
        size = sum(worker.usable for worker in self._dispatcher.workers.values())
        if self._announced is not None and size != self._announced and size == self._seen:
            log.info("workers: %d, were %d", size, self._announced)
            self._announced = size
        self._seen = size


def examine(worker: WorkerConnection, imports: Collection[str]) -> str | None:
    """Return what keeps a worker from computing what this process would, and the fix; None where nothing does."""
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
