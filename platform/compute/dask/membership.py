"""Who is in the pool: finds workers as the scheduler learns of them, examines each, and watches the scheduler."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from distributed import Client

from paddock.algos.pool.protocol import PoolError
from paddock.algos.pool.script import Script

from ..preflight import install
from .autoscale import WorkerFleet
from .connection import WorkerConnection, greet
from .dispatcher import Dispatcher, own_fault

log = logging.getLogger(__name__)

TICK_S = 0.5
ANSWER_S = 7.0  # a scheduler that does not answer for so long is lost
GREETED = 32  # workers at a time, or each would have to wait for the answers of all
CANCEL_S = 0.2  # before a task that goes on is cancelled again
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
        script: Script | None,
        hello: dict[str, Any],
        examine: Callable[[WorkerConnection], str | None],
        where: str,
        look: Callable[[], None],
    ) -> None:
        """Take what to do with a newcomer.

        Args:
            script: that this process runs.
            hello: what each worker is asked.
            examine: says what is wrong with a worker; None where it may work.
            where: the scheduler, in words.
            look: called at every look at the scheduler.
        """
        self._client = client
        self._dispatcher = dispatcher
        self._fleet = fleet
        self._script = script
        self._hello = {**hello, "script": None if script is None else script.message}
        self._examine = examine
        self._where = where
        self._look = look
        self._known: dict[str, asyncio.Task[None]] = {}  # a task for each worker, by address
        self._refused: dict[str, str] = {}  # what is wrong with a worker, by address
        self._announced: int | None = None
        self._seen = 0
        self._task: asyncio.Task[None] | None = None  # which watches
        self._following: asyncio.Task[None] | None = None  # which changes the number of workers
        self._forsaken_s = 0.0  # for which tasks have waited, and all workers there were had been refused
        self._suspended_s = 0.0  # since the last look, in which this process did not run
        self._greeting = asyncio.Semaphore(GREETED)

    async def open(self, workers: int, timeout_s: float) -> None:
        """Wait for workers, and watch from then on.

        Raises:
            PoolError: one of them does not match this process, or none came in time.
        """
        self._task = self._dispatcher.spawn(self._watch())
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self._refused:
                address, fault = next(iter(self._refused.items()))
                raise PoolError(f"worker {address} {fault}")
            if self._dispatcher.failure is not None:
                raise self._dispatcher.failure
            if len(self._dispatcher.workers) >= workers and not self._joining():
                break
            await asyncio.sleep(0.02)
        if len(self._dispatcher.workers) < workers:
            raise TimeoutError
        self.agree_on_script()
        self._announced = len(self._dispatcher.workers)  # those still on their way come later

    async def close(self) -> None:
        """Watch no more."""
        while tasks := [task for task in self._tasks() if not task.done()]:
            for task in tasks:
                task.cancel()
            # Before Python 3.12 `asyncio.wait_for`, which Dask uses, loses a cancellation that comes with the answer.
            await asyncio.wait(tasks, timeout=CANCEL_S)

    def _tasks(self) -> list[asyncio.Task[None]]:
        tasks = [*self._known.values(), self._task, self._following]
        return [task for task in tasks if task is not None]

    def _joining(self) -> bool:
        return any(address not in self._dispatcher.workers for address in self._known)

    async def _watch(self) -> None:
        ran_s = 0.0  # between two looks
        while self._dispatcher.failure is None:
            try:
                scheduler: Any = self._client.scheduler
                present = await self._wait_for(scheduler.ncores(), ANSWER_S)
                if self._client.status not in ("running", "newly-created"):
                    raise OSError("connection lost")
            except (OSError, TimeoutError, AttributeError) as error:
                self._dispatcher.fail(self._gone(error))
                return
            for address in present:
                if address not in self._known and address not in self._refused:
                    self._known[address] = asyncio.ensure_future(self._join(address))
            for address in set(self._refused) - set(present):
                del self._refused[address]
            self._forsaken_s = self._forsaken_s + ran_s if self._forsaken(present) else 0.0
            if self._forsaken_s > REFUSED_S:
                address, fault = next(iter(self._refused.items()))
                remedy = "mend that, and go on with the run by run.dir= of its folder"
                self._dispatcher.fail(PoolError(f"all workers that are left get no work: {address} {fault}; {remedy}"))
                return
            self._give_up_stuck()
            self._dispatcher.watch()
            self._look()
            self._announce()
            try:
                await self._follow()
            except PoolError as error:
                self._dispatcher.fail(error)
                return
            except Exception as error:  # of whatever starts and ends workers; those there are go on
                log.warning("the number of workers could not be changed: %s", error)
            begun = time.monotonic()
            await asyncio.sleep(TICK_S if self._dispatcher.workers else TICK_S / 10)
            ran_s = self._ran_since(begun)

    def _forsaken(self, present: Mapping[str, int]) -> bool:
        """Whether something waits, all workers that could take it were refused, and no other is there or on its way."""
        if not present or self._dispatcher.workers or not self._refused.keys() >= present.keys():
            return False
        return self._dispatcher.waits and not (self._fleet is not None and self._fleet.awaits(len(present)))

    async def _follow(self) -> None:
        """Have the fleet follow the tasks; what takes longer than a tick, such as ending a job, goes on meanwhile."""
        if self._fleet is None:
            return
        if self._following is None:
            usable = [worker for worker in self._dispatcher.workers.values() if worker.usable]
            self._following = asyncio.ensure_future(self._fleet.follow(*self._dispatcher.backlog(), usable))
        begun = time.monotonic()
        await asyncio.wait([self._following], timeout=TICK_S)
        self._ran_since(begun)
        if self._following.done():
            followed, self._following = self._following, None
            followed.result()

    def _give_up_stuck(self) -> None:
        """Give up workers of ours that have been silent for long, whether they are connected or not.

        Nobody is blamed for the time in which this process did not run, and so heard nobody.
        """
        workers = set(self._dispatcher.workers.values())
        if self._fleet is not None:
            workers.update(self._fleet.connections.values())
        now = time.monotonic()
        for worker in workers:
            worker.heard = min(worker.heard + self._suspended_s, now)
            if self._fleet is not None and now - worker.heard > STUCK_S:
                worker.give_up()
        self._suspended_s = 0.0

    async def _wait_for(self, coroutine: Coroutine[Any, Any, Any], left_s: float) -> Any:
        """Return what comes of a coroutine.

        Raises:
            TimeoutError: nothing in so many seconds in which this process ran: one that was stopped has lost nobody.
        """
        running = asyncio.ensure_future(coroutine)
        try:
            while left_s > 0:
                begun = time.monotonic()
                await asyncio.wait([running], timeout=TICK_S)
                left_s -= self._ran_since(begun)
                if running.done():
                    return running.result()
            raise TimeoutError
        finally:
            running.cancel()

    def _ran_since(self, begun: float) -> float:
        """Of a time in which nothing took longer than a tick, the seconds in which this process ran; notes the rest."""
        passed = time.monotonic() - begun
        ran = min(passed, 2 * TICK_S)
        self._suspended_s += passed - ran
        return ran

    async def _join(self, address: str) -> None:
        try:
            async with self._greeting:
                worker = await self._welcome(address)
            self._check_script(worker)
            if self._fleet is not None:
                self._fleet.note(worker)
            await self._dispatcher.serve(worker)
        except PoolError as error:
            self._refused[address] = str(error)
            if self._announced is not None:
                log.warning("worker %s gets no work: it %s", address, error)
        except (OSError, TimeoutError):
            await asyncio.sleep(AGAIN_S)
        except MemoryError as error:  # of this process, which no other worker has more of
            self._dispatcher.fail(own_fault(error))
        except Exception as error:  # it is better known than a worker that nobody speaks of
            self._refused[address] = f"could not be greeted ({type(error).__name__}: {error})"
            log.exception("worker %s %s", address, self._refused[address])
        finally:
            self._known.pop(address, None)

    async def _welcome(self, address: str) -> WorkerConnection:
        """Greet a worker and examine it.

        Raises:
            PoolError: it is not to get work, and why.
        """
        worker = await greet(address, self._client.connection_args, self._hello)
        if worker is None:
            await install(self._client, address)
            worker = await greet(address, self._client.connection_args, self._hello)
        if worker is None:
            raise PoolError("cannot serve; restart it with `--preload paddock.algos.pool.worker`")
        fault = self._examine(worker)
        if fault is not None:
            worker.abort()
            raise PoolError(fault)
        return worker

    def agree_on_script(self) -> None:
        """Refer to what the script defines where every worker has its file."""
        if self._script is not None and all(worker.answer["script"] for worker in self._dispatcher.workers.values()):
            self._dispatcher.script = self._script

    def _check_script(self, worker: WorkerConnection) -> None:
        """Do without the script's file where a newcomer does not have it, while that is possible.

        Raises:
            PoolError: it is too late, since tasks refer to the file.
        """
        if self._dispatcher.script is not None and not worker.answer["script"]:
            if self._dispatcher.script.travelled:
                worker.abort()
                raise PoolError(f"has not the {self._dispatcher.script.path} that runs here; put it there, too")
            self._dispatcher.script = None

    def _announce(self) -> None:
        """Tell a new number of workers, once it has held for two looks."""
        size = sum(worker.usable for worker in self._dispatcher.workers.values())
        if self._announced is not None and size != self._announced and size == self._seen:
            log.info("workers: %d, were %d", size, self._announced)
            self._announced = size
        self._seen = size

    def _gone(self, error: BaseException) -> PoolError:
        remedy = "start it again, and go on with the run by run.dir= of its folder"
        return PoolError(f"lost {self._where} ({error or type(error).__name__}); {remedy}")
