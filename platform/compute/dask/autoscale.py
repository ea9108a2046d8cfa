"""Autoscaling of a pool within bounds: more workers while tasks wait, fewer when some are idle.

Workers that exit are restarted; stuck workers are ended and restarted.
"""

import logging
import math
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from paddock.algos.pool.protocol import PoolError

if TYPE_CHECKING:  # checking a configuration needs only the bounds, without the slow import of Dask
    from .connection import WorkerConnection

log = logging.getLogger(__name__)

PRESSURE_LIMIT = 0.5  # a pool grows while tasks have waited for this share of the last few seconds
WEIGHT = 0.12  # of one observation in that share
IDLE_S = 30.0  # a worker that has been idle for so long may be removed
RETRY_S = 5.0  # between attempts to start missing workers, doubled after each failure
MAX_RETRY_S = 640.0
MAX_ATTEMPTS = 8  # consecutive failures while no worker is left, after which the pool fails
CHECK_S = 10.0

Ended = Callable[[Collection[Any]], Awaitable[Collection[Any]]]  # returns which of a cluster's workers have exited


class NoWorkersError(PoolError):
    """Failure of a pool without workers: every worker that was started exited before connecting."""


@dataclass(frozen=True)
class Bounds:
    """Minimum and maximum number of workers."""

    min: int
    max: int

    def __str__(self) -> str:
        """Return the number or the range."""
        return str(self.min) if self.min == self.max else f"{self.min} to {self.max}"

    def wanted(self, size: int, asked: int, threads: int, tasks: int, pressed: float) -> int:
        """Return the target number of workers.

        Args:
            size: workers that run or are starting.
            asked: number of workers that the algorithm can use.
            threads: threads per worker.
            tasks: tasks that no worker has started.
            pressed: share of the last few seconds in which tasks waited.
        """
        floor = min(max(self.min, asked), self.max)
        if tasks and pressed > PRESSURE_LIMIT:
            # At most doubles: a burst of short tasks is over before more workers would have started.
            could_use = size + math.ceil(tasks / threads)
            return max(floor, min(self.max, 2 * size, could_use), min(size, self.max))
        return max(floor, min(size, self.max))


@dataclass
class WorkerFleet:
    """Workers of a Dask `SpecCluster` that this process scales within bounds.

    If a cluster's workers are jobs, each job is one worker of the fleet.

    Attributes:
        ended: returns which workers have exited for good; called with those that are not connected.
        threads: threads per worker.
        tries: attempts to start the first workers.
        retry_s: between attempts to start missing workers; doubles while none connects.
        check_s: between calls of `ended`.
        cause: returns why the last worker exited, if known.
        asked: number of workers that the algorithm can use.
        any_joined: whether a worker has ever connected.
        connections: latest connection to each worker that joined, by name.
    """

    cluster: Any
    bounds: Bounds
    ended: Ended
    threads: int = 1
    tries: int = 1
    retry_s: float = RETRY_S
    check_s: float = CHECK_S
    cause: Callable[[], str | None] = lambda: None
    asked: int = 0
    any_joined: bool = False
    connections: "dict[str, WorkerConnection]" = field(default_factory=dict)
    _failures: int = 0  # consecutive starts after which no worker connected
    _failures_alone: int = 0  # of these, those since the last worker was lost
    _starting: bool = True  # whether any were started since the last failure
    _pressed: float = 0.0
    _next_start: float = 0.0  # time of the next attempt to start workers
    _next_check: float = 0.0  # time of the next call of `ended`

    def __post_init__(self) -> None:
        """Start with the minimum."""
        self._target = self.bounds.min

    def note(self, worker: "WorkerConnection") -> None:
        """Record that a worker has joined, for the first time or again."""
        name = worker.answer["name"]
        if name not in self.connections:
            self.any_joined, self._failures = True, 0
        self.connections[name] = worker

    async def follow(self, tasks: int, workers: "list[WorkerConnection]") -> None:
        """Scale the cluster to its target size; called about once a second, in its loop.

        Raises:
            NoWorkersError: no worker is left, and all new ones exited before connecting.
        """
        now = time.monotonic()
        self._failures_alone = 0 if workers else self._failures_alone
        await self._remove_ended(workers, now)
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
        if (len(self.cluster.worker_spec) < self._target or missing) and now > self._next_start:
            self._next_start = now + min(self.retry_s * 2**self._failures, MAX_RETRY_S)
            self._starting = True
            self.cluster.scale(self._target)  # restarts lost ones, too

    async def _remove_ended(self, workers: "list[WorkerConnection]", now: float) -> None:
        """Remove workers that have exited from the cluster, so that they are replaced."""
        present = {worker.answer["name"] for worker in workers}
        silent = {name for name in self.cluster.workers if present.isdisjoint(self._members(name))}
        if not silent or now < self._next_check:
            return
        self._next_check = now + self.check_s
        over = set(await self.ended(silent))
        for name in over:
            self.cluster.workers.pop(name, None)
        if never_joined := [name for name in over if self.connections.keys().isdisjoint(self._members(name))]:
            self._failures += self._starting
            self._failures_alone, self._starting = self._failures_alone + self._starting, False
            if not self.cluster.workers and self._failures_alone >= (MAX_ATTEMPTS if self.any_joined else self.tries):
                raise NoWorkersError(self._describe_failure())
            log.warning("%d workers exited before connecting; retrying with increasing delays", len(never_joined))
        self._forget(member for name in over for member in self._members(name))

    def _describe_failure(self) -> str:
        if not self.any_joined:
            return "every worker exited before connecting"
        lost = f"all workers have exited, and {self._failures_alone} attempts to start others failed"
        cause = self.cause() or "see the errors above or in the workers' logs"
        return f"{lost}: {cause}; fix this, and resume the run with run.dir=FOLDER"

    async def _end_stuck(self) -> None:
        """End workers that are stuck, and their jobs, so that they are replaced."""
        stuck = [
            name
            for name in self.cluster.worker_spec
            if any(member in self.connections and self.connections[member].stuck for member in self._members(name))
        ]
        if stuck:
            log.warning("replacing workers that do not respond: %s", ", ".join(map(str, stuck)))
            self._forget([member for name in stuck for member in self._members(name)])
            await self.cluster.scale_down(stuck)

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            self.connections.pop(name, None)

    def _idle(self, workers: "list[WorkerConnection]", now: float) -> list[Any]:
        """Return the cluster's names of workers that may be removed: idle, and without objects."""
        return [
            name
            for name in self.cluster.worker_spec
            if (its := self._connections_of(name, workers))
            and not any(worker.items or worker.objects or now - worker.idle_since < IDLE_S for worker in its)
        ]

    def _connections_of(self, name: Any, workers: "list[WorkerConnection]") -> "list[WorkerConnection]":
        """Return the connections of a worker, or of all processes of a job."""
        return [worker for worker in workers if worker.answer["name"] in self._members(name)]

    def _members(self, name: Any) -> list[str]:
        return [str(name), *(f"{name}{suffix}" for suffix in self.cluster.worker_spec.get(name, {}).get("group", ()))]
