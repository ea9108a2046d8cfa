"""How many workers a pool has: between two bounds, more while work waits, fewer when some have had nothing to do."""

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .link import Link

GROW_S = 2.0  # a pool grows while so much work waits for each of its threads
IDLE_S = 30.0  # a worker that has had nothing to do for so long may go
AGAIN_S = 5.0  # between two tries to start what is missing


@dataclass(frozen=True)
class Bounds:
    """Fewest and most workers."""

    min: int
    max: int

    def __str__(self) -> str:
        return str(self.min) if self.min == self.max else f"{self.min} to {self.max}"

    def wanted(self, size: int, asked: int, threads: int, tasks: int, work_s: float, waited_s: float) -> int:
        """How many workers there should be.

        Args:
            size: workers there are, or are on their way.
            asked: as many as the algorithm says would have work.
            threads: of each worker.
            tasks: that no worker has begun.
            work_s: in those tasks, as far as is known.
            waited_s: for how long there have been such tasks without a break.
        """
        floor = min(max(self.min, asked), self.max)
        enough_work = work_s > GROW_S * threads * max(size, 1) or waited_s > GROW_S
        if tasks and enough_work:
            # Twice as many at a time: a burst of short tasks is over before more would have started.
            could_use = size + math.ceil(tasks / threads)
            return max(floor, min(self.max, 2 * size, could_use), min(size, self.max))
        return max(floor, min(size, self.max))


@dataclass
class Fleet:
    """The workers of a cluster that is ours to scale: a `SpecCluster` of Dask's, and its bounds."""

    cluster: Any
    bounds: Bounds
    threads: int = 1  # of each worker
    asked: int = 0
    _target: int = field(init=False)
    _busy_since: float | None = None
    _again: float = 0.0  # when starting workers may be tried again

    def __post_init__(self) -> None:
        self._target = self.bounds.min

    async def follow(self, tasks: int, work_s: float, links: "list[Link]") -> None:
        """Bring the cluster to the size it should have; called about once a second, in its loop."""
        now = time.monotonic()
        self._busy_since = (self._busy_since or now) if tasks else None
        waited_s = now - self._busy_since if self._busy_since is not None else 0.0
        target = self.bounds.wanted(self._target, self.asked, self.threads, tasks, work_s, waited_s)
        if target > self._target:
            self._busy_since = now  # the next step waits for what this one brings
        floor = min(max(self.bounds.min, self.asked), self.bounds.max)
        leave = self._idle(links, now)[: max(target - floor, 0)] if not tasks else []
        self._target = target - len(leave)
        if leave:
            for name in leave:
                for link in self._links_of(name, links):
                    link.leaving = True
            await self.cluster.scale_down(leave)
        missing = set(self.cluster.worker_spec) - set(self.cluster.workers)
        if (len(self.cluster.worker_spec) < self._target or missing) and now > self._again:
            self._again = now + AGAIN_S
            self.cluster.scale(self._target)  # starts lost ones again, too

    def _idle(self, links: "list[Link]", now: float) -> list[Any]:
        """The names, in the cluster, of workers that may go."""
        return [
            name
            for name in self.cluster.worker_spec
            if (its := self._links_of(name, links))
            and not any(link.items or now - link.idle_since < IDLE_S for link in its)
        ]

    def _links_of(self, name: Any, links: "list[Link]") -> "list[Link]":
        """Of a job with several processes, each has the job's name and a number."""
        return [link for link in links if link.answer["name"] in (str(name), *self._members(name))]

    def _members(self, name: Any) -> list[str]:
        return [f"{name}{suffix}" for suffix in self.cluster.worker_spec[name].get("group", ())]
