"""How many workers a pool has: between two bounds, more while work waits, fewer when some have had nothing to do.

Those that have ended are started again, and so are those that are stuck, once they were ended.
"""

import logging
import math
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from paddock.algos.pool.protocol import PoolError

if TYPE_CHECKING:  # what checks a configuration needs bounds alone, and takes no second to import Dask
    from .connection import WorkerConnection

log = logging.getLogger(__name__)

PRESSED = 0.5  # a pool grows while tasks have waited for so much of the last few seconds
WEIGHT = 0.12  # of one look in that share
IDLE_S = 30.0  # a worker that has had nothing to do for so long may go
AGAIN_S = 5.0  # between two tries to start what is missing, twice as long after each
LONGEST_AGAIN_S = 640.0
LAST_TRIES = 8  # in a row, to start what is missing while no worker is left: then none will come
LOOK_S = 10.0

Ended = Callable[[Collection[Any]], Awaitable[Collection[Any]]]  # returns those of a cluster's workers that have ended


class NoneCame(PoolError):
    """No worker is left, and all that were started ended before they joined."""


@dataclass(frozen=True)
class Bounds:
    """Fewest and most workers."""

    min: int
    max: int

    def __str__(self) -> str:
        return str(self.min) if self.min == self.max else f"{self.min} to {self.max}"

    def wanted(self, size: int, asked: int, threads: int, tasks: int, pressed: float) -> int:
        """How many workers there should be.

        Args:
            size: workers there are, or are on their way.
            asked: as many as have work, according to the algorithm.
            threads: of each worker.
            tasks: that no worker has begun.
            pressed: the share of the last few seconds in which there were such tasks.
        """
        floor = min(max(self.min, asked), self.max)
        if tasks and pressed > PRESSED:
            # Twice as many at a time: a burst of short tasks is over before more would have started.
            could_use = size + math.ceil(tasks / threads)
            return max(floor, min(self.max, 2 * size, could_use), min(size, self.max))
        return max(floor, min(size, self.max))


@dataclass
class WorkerFleet:
    """The workers of a cluster that is ours to scale: a `SpecCluster` of Dask's, and its bounds.

    Where a cluster's workers come by jobs, each job is one of the fleet's workers.

    Attributes:
        ended: returns which of its workers have ended for good; asked about those that are not in the pool.
        threads: of each worker.
        tries: to start the first workers, where all end before they join.
        again_s: between two tries to start what is missing; doubles while none joins.
        look_s: between two of those questions.
        cause: returns how the last worker ended, if that is known here.
        connections: the last connection to each worker that joined, by its name.
    """

    cluster: Any
    bounds: Bounds
    ended: Ended
    threads: int = 1
    tries: int = 1
    again_s: float = AGAIN_S
    look_s: float = LOOK_S
    cause: Callable[[], str | None] = lambda: None
    asked: int = 0
    came: bool = False  # whether any worker did
    connections: "dict[str, WorkerConnection]" = field(default_factory=dict)
    _failures: int = 0  # starts in a row of which no worker joined
    _vain: int = 0  # of these, those since no worker is left
    _starting: bool = True  # whether any were started since the last failure
    _pressed: float = 0.0
    _again: float = 0.0  # when starting workers may be tried again
    _look: float = 0.0  # when jobs may be asked after again

    def __post_init__(self) -> None:
        self._target = self.bounds.min

    def note(self, worker: "WorkerConnection") -> None:
        """Note that a worker has joined, for the first time or again."""
        name = worker.answer["name"]
        if name not in self.connections:
            self.came, self._failures = True, 0
        self.connections[name] = worker

    def awaits(self, present: int) -> bool:
        """Return whether more workers are to come than are present, such as those of jobs that wait in a queue."""
        return sum(max(len(self._members(name)) - 1, 1) for name in self.cluster.workers) > present

    async def follow(self, tasks: int, workers: "list[WorkerConnection]") -> None:
        """Bring the cluster to the size it should have; called about once a second, in its loop.

        Raises:
            NoneCame: the first workers have all ended before they joined, or all that were to replace later ones.
        """
        now = time.monotonic()
        self._vain = 0 if workers else self._vain
        await self._strike_off(workers, now)
        await self._end_stuck()
        self._pressed += WEIGHT * ((tasks > 0) - self._pressed)
        target = self.bounds.wanted(self._target, self.asked, self.threads, tasks, self._pressed)
        if target > self._target:
            self._pressed = 0.0  # the next step waits for the effect of this one
        floor = min(max(self.bounds.min, self.asked), self.bounds.max)
        leave = self._idle(workers, now)[: max(target - floor, 0)] if not tasks else []
        self._target = target - len(leave)
        if leave:
            for name in leave:
                for worker in self._connections_of(name, workers):
                    worker.leaving = True
            await self.cluster.scale_down(leave)
        missing = set(self.cluster.worker_spec) - set(self.cluster.workers)
        if (len(self.cluster.worker_spec) < self._target or missing) and now > self._again:
            self._again = now + min(self.again_s * 2**self._failures, LONGEST_AGAIN_S)
            self._starting = True
            self.cluster.scale(self._target)  # starts lost ones again, too

    async def _strike_off(self, workers: "list[WorkerConnection]", now: float) -> None:
        """Forget workers that have ended, so that they are missed."""
        present = {worker.answer["name"] for worker in workers}
        silent = {name for name in self.cluster.workers if present.isdisjoint(self._members(name))}
        if not silent or now < self._look:
            return
        self._look = now + self.look_s
        over = set(await self.ended(silent))
        for name in over:
            self.cluster.workers.pop(name, None)
        if stillborn := [name for name in over if self.connections.keys().isdisjoint(self._members(name))]:
            self._failures += self._starting
            self._vain, self._starting = self._vain + self._starting, False
            if not self.cluster.workers and self._vain >= (LAST_TRIES if self.came else self.tries):
                raise NoneCame(self._describe_failure())
            log.warning("%d workers ended before they joined; others are started, ever more seldom", len(stillborn))
        self._forget(member for name in over for member in self._members(name))

    def _describe_failure(self) -> str:
        if not self.came:
            return "every worker ended before it joined"
        lost = f"all workers have ended, and none has come in their place, in {self._vain} tries"
        cause = self.cause() or "see their errors, above or in their logs"
        return f"{lost}: {cause}; fix that, and continue the run by run.dir= of its folder"

    async def _end_stuck(self) -> None:
        """End workers that were given up, and the jobs they are of, so that others come."""
        stuck = [
            name
            for name in self.cluster.worker_spec
            if any(member in self.connections and self.connections[member].stuck for member in self._members(name))
        ]
        if stuck:
            log.warning("workers that were silent for long are replaced: %s", ", ".join(map(str, stuck)))
            self._forget([member for name in stuck for member in self._members(name)])
            await self.cluster.scale_down(stuck)

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            self.connections.pop(name, None)

    def _idle(self, workers: "list[WorkerConnection]", now: float) -> list[Any]:
        """The names, in the cluster, of workers that may go: none where an object waits for its next call."""
        return [
            name
            for name in self.cluster.worker_spec
            if (its := self._connections_of(name, workers))
            and not any(worker.items or worker.objects or now - worker.idle_since < IDLE_S for worker in its)
        ]

    def _connections_of(self, name: Any, workers: "list[WorkerConnection]") -> "list[WorkerConnection]":
        """Of a job with several processes, each has the job's name and a number."""
        return [worker for worker in workers if worker.answer["name"] in self._members(name)]

    def _members(self, name: Any) -> list[str]:
        return [str(name), *(f"{name}{suffix}" for suffix in self.cluster.worker_spec.get(name, {}).get("group", ()))]
