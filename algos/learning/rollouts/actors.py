"""Actors: collect rollouts with the weights that the learner publishes.

inline      collect and learn in turn
prefetch    a thread collects while the learner learns
threads     several threads of this process collect, on the device of the learner or their own (`thread_actors`)
actors      stateful tasks on the pool's workers collect (`pool_actors`)

The policy lag is deterministic: rollout k uses the weights after k - staleness updates, or the newest published before
them, on every backend and after a resume.
"""

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from paddock.algos.common.timing import worker_times
from paddock.algos.learning.flow import prefetch
from paddock.algos.learning.rollouts.config import Policies, RolloutConfig, Source, Versions, check_memory
from paddock.algos.learning.rollouts.pool_actors import play_on_pool
from paddock.algos.learning.rollouts.resume_point import ResumePoint
from paddock.algos.learning.rollouts.rollout import Rollout, RolloutStats
from paddock.algos.learning.rollouts.thread_actors import play_in_threads
from paddock.algos.multiagent.collector import make_collector
from paddock.algos.networks.architecture import Weights
from paddock.algos.pool.protocol import Pool
from paddock.envs.errors import require
from paddock.envs.ranges import Range
from paddock.envs.vector.remote import check_unshared

Mode = Literal["inline", "prefetch", "threads", "actors"]
MODE_NAMES: Mapping[Mode, str] = {
    "inline": "in this process",
    "prefetch": "ahead in a thread",
    "threads": "a thread each",
    "actors": "on the pool",
}
Staleness = Annotated[int, Range("must be between 0 and 8 updates; 1 suits most", low=0, high=8)]


class Abandoned(Exception):
    """The rollout is no longer needed."""


class Actors:
    """Source of rollouts, which holds the environments' resume point and the weights of upcoming rollouts."""

    def __init__(
        self,
        config: RolloutConfig,
        pool: Pool,
        mode: Mode,
        num_actors: int,
        staleness: int,
        *weights: Weights,
        sync_every: int = 1,
    ) -> None:
        """Initialize with the weights of each policy before the first update; raise ConfigError for invalid settings.

        The acting weights are updated every `sync_every` rollouts.
        """
        N, groups = config.vec.num_envs, config.groups
        require(1 <= groups <= N, f"groups={groups} must be between 1 and vec.num_envs={N}")
        require(N % groups == 0, f"groups={groups} does not divide vec.num_envs={N}; 1 always does")
        ahead = mode != "prefetch" or staleness >= 1
        remedy = "use rollouts=inline, or algo.staleness=1 if the algorithm has it"
        require(ahead, f"rollouts=prefetch needs staleness >= 1; {remedy}")
        self._config = config if mode == "threads" else replace(config, device="cpu")
        self._pool = pool
        self._mode = mode
        self.num_actors = count_actors(mode, num_actors)
        self.staleness = 0 if mode == "inline" else staleness
        self.sync_every = sync_every
        self._policies = config.policy_group
        self.num_rows = N * self.num_actors * self._policies.rows_per_env
        if self.num_actors > 1:
            check_unshared(config.vec, f"each of {self.num_actors} actors (algo.num_actors) needs its own environments")
        check_memory(config, self.num_rows)
        self._start = ResumePoint.first(N * self.num_actors, self._policies)
        self._next = weights[0].version  # the rollout that is learned from next
        # Weights of upcoming rollouts, newest last.
        self._weights: list[Policies] = [weights] * (-(-self.staleness // sync_every) + 1)
        self._changed = threading.Condition()
        self._closed = False
        self._waited = {"system/ahead_wait_s": 0.0, "system/queue_wait_s": 0.0}  # by actors that play ahead
        self._reported = dict(self._waited)

    @property
    def newest(self) -> Policies:
        """Latest published weights of each policy."""
        return self._weights[-1]

    def publish(self, version: int, make: Callable[[], Policies]) -> None:
        """Publish the weights after update `version`; `make` is called only if a rollout will use them."""
        with self._changed:
            self._next = version
            if version % self.sync_every == 0:
                self._weights = [*self._weights[1:], make()]
                self._changed.notify_all()

    def begin(self, *weights: Weights) -> None:
        """Replace the initial weights before the first rollout."""
        self._weights = [weights] * len(self._weights)

    def rollouts(self) -> Generator[list[Rollout], None, None]:
        """Yield rollouts of each policy indefinitely, from the current version on."""
        self._closed = False
        with contextlib.closing(self._source(self._next)) as source:
            try:
                for rollouts, self._start in source:
                    yield rollouts
            finally:
                self._abandon()

    def times(self, times: dict[str, float], played: Rollout | RolloutStats) -> dict[str, float]:
        """Return timing metrics, given laps of the clock; concurrent evaluation does not count as the pool's work."""
        total, busy_s = times["system/iteration_s"], played.env_s + played.policy_s
        metrics = {
            **times,
            "system/env_s": played.env_s,
            "system/policy_s": played.policy_s,
            # Rollouts collected ahead may have taken longer than this iteration.
            "system/env_share": min(1.0, played.env_s / (self.num_actors * total)),
            "system/policy_share": min(1.0, played.policy_s / (self.num_actors * total)),
            "system/env_restarts": played.restarts,
        }
        if self.staleness or self._mode == "threads":
            waited = dict(self._waited)
            metrics |= {name: seconds - self._reported[name] for name, seconds in waited.items()}
            self._reported = waited
        if self._mode == "inline":  # collecting is not waiting
            metrics["system/wait_share"] = max(0.0, times["system/wait_share"] - busy_s / total)
        return metrics | worker_times(busy_s, total, self._pool.threads) if self._mode == "actors" else metrics

    def state_dict(self) -> dict[str, Any]:
        """Return the environments' resume point and the older weights of upcoming rollouts."""
        by_name = self._policies.by_name
        older = {str(k): by_name([one.state_dict() for one in each]) for k, each in enumerate(self._older)}
        return {"start": self._start.state_dict(self._policies), "older": older}

    def load_state_dict(self, state: Mapping[str, Any], *newest: Weights) -> None:
        """Restore a state; `newest` are the learners' current weights."""
        self._start = ResumePoint.restore(state["start"], self._policies, self.num_actors)
        older = [self._policies.in_order(state["older"][str(k)]) for k in range(len(self._older))]
        kept: list[Policies] = [[Weights(**one) for one in each] for each in older]
        self._weights = [*kept, newest] if self.sync_every == 1 else kept
        self._next = newest[0].version

    @property
    def _older(self) -> list[Policies]:
        return self._weights[:-1] if self.sync_every == 1 else self._weights

    def _source(self, first: int) -> Source:
        come = self._version, self._start, first
        if self._mode == "threads":
            depth = max(self.staleness, 1)
            return play_in_threads(self._config, self.num_actors, depth, *come, self._abandon, self._add_queue_wait)
        if self._mode == "actors":
            source = play_on_pool(self._config, self._pool, self.num_actors, *come)
        else:
            source = play_inline(self._config, *come)
        return prefetch(source, self.staleness, self._add_queue_wait) if self.staleness else source

    def _version(self, iteration: int) -> Policies:
        """Wait for the weights of this rollout and return them."""
        learned = max(iteration - self.staleness, 0)
        wanted = learned - learned % self.sync_every
        with self._changed:
            asked = time.perf_counter()
            self._changed.wait_for(lambda: self._closed or self.newest[0].version >= wanted)
            self._waited["system/ahead_wait_s"] += time.perf_counter() - asked
            if self._closed:
                raise Abandoned
            return next(weights for weights in self._weights if weights[0].version == wanted)

    def _add_queue_wait(self, seconds: float) -> None:
        with self._changed:
            self._waited["system/queue_wait_s"] += seconds

    def _abandon(self) -> None:
        """Wake threads that wait for weights; they raise `Abandoned`."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def count_actors(mode: Mode, num_actors: int) -> int:
    """Return the number of actors in this mode."""
    return num_actors if mode in ("threads", "actors") else 1


def play_inline(config: RolloutConfig, versions: Versions, start: ResumePoint, first: int) -> Source:
    """Yield rollouts first, first + 1, ..., collected by the consuming thread in environments made by this one."""
    collector = make_collector(config)  # environments may set signal handlers, which needs the main thread

    def play(start: ResumePoint) -> Source:
        with contextlib.closing(collector):
            for iteration in itertools.count(first):
                rollouts, end = collector.collect(versions(iteration), start, iteration)
                start = start.advance([end])
                yield rollouts, start

    return play(start)


def check_thread_sharing(threads: int, mode: Mode, staleness: int, pool: Pool) -> None:
    """Raise ConfigError if a torch learner would share the process's threads with concurrent rollouts."""
    ahead = mode == "prefetch" or (mode == "actors" and staleness > 0)
    require(
        threads == 1 or not (mode == "threads" or (ahead and pool.in_process)),
        f"threads={threads}: concurrent rollouts (rollouts={mode}) and the learner would compete for them in one "
        "process; use threads=1, rollouts=inline or compute=local",
    )
