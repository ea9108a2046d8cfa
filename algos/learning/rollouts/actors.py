"""The acting half of an on-policy algorithm: rollouts by the weights that the learning half publishes.

inline      play, learn, play, learn
prefetch    a thread plays ahead while the learner learns
actors      objects on the pool's workers play, ahead or not (`pool_actors`)

How far a policy may lag behind is fixed, not a matter of luck: rollout k is played by the weights after k - staleness
updates, on every backend and after a resume.
"""

import contextlib
import threading
import time
from collections.abc import Generator, Mapping
from typing import Annotated, Any, Literal

from algos.common.timing import worker_times
from algos.learning.flow import prefetch
from algos.learning.rollouts.collector import Collector, Policies, RolloutConfig, Source, Versions, check_memory
from algos.learning.rollouts.pool_actors import play_on_pool
from algos.learning.rollouts.resume_point import ResumePoint
from algos.learning.rollouts.rollout import Played, Rollout
from algos.networks.architecture import Weights
from algos.pool.protocol import Pool
from envs.errors import require
from envs.ranges import Range

Mode = Literal["inline", "prefetch", "actors"]
Staleness = Annotated[int, Range("must be between 0 and 8 updates; 1 suits most", low=0, high=8)]


class Abandoned(Exception):
    """Nobody waits for this rollout any more."""


class Actors:
    """Makes rollouts; keeps where the environments stand and the weights that rollouts to come are played by."""

    def __init__(
        self, config: RolloutConfig, pool: Pool, mode: Mode, num_actors: int, staleness: int, *weights: Weights
    ) -> None:
        """Take the weights of each part before the first update.

        Raises:
            ConfigError: settings are out of range or do not go together.
        """
        N, groups = config.vec.num_envs, config.groups
        require(1 <= groups <= N, f"groups={groups} must be between 1 and vec.num_envs={N}")
        require(N % groups == 0, f"groups={groups} does not divide vec.num_envs={N}; 1 always does")
        ahead = mode != "prefetch" or staleness >= 1
        require(ahead, "staleness=0 leaves nothing to prefetch; use rollouts=inline, or staleness=1")
        self._config = config
        self._pool = pool
        self._mode = mode
        self.num_actors = num_actors if mode == "actors" else 1
        self.staleness = 0 if mode == "inline" else staleness
        self.num_rows = N * self.num_actors * config.env.seats
        check_memory(config, self.num_rows)
        self._parts = config.parts
        self._start = ResumePoint.first(N * self.num_actors, self._parts, config.env.seats)
        self._weights: list[Policies] = [weights] * (self.staleness + 1)  # of the last versions, newest last
        self._changed = threading.Condition()
        self._closed = False
        self._ahead_wait_s = self._ahead_told_s = 0.0

    @property
    def newest(self) -> Policies:
        """What was published last, of each part."""
        return self._weights[-1]

    def publish(self, *weights: Weights) -> None:
        """Take the weights of each part after one more update."""
        with self._changed:
            self._weights = [*self._weights[1:], weights]
            self._changed.notify_all()

    def begin(self, *weights: Weights) -> None:
        """Let the first rollouts be played by other weights than those it was made with."""
        self._weights = [weights] * len(self._weights)

    def rollouts(self) -> Generator[list[Rollout], None, None]:
        """Rollouts of each part from the present version on, for ever."""
        first = self.newest[0].version
        self._closed = False
        with contextlib.closing(self._source(first)) as source:
            try:
                for rollouts, self._start in source:
                    yield rollouts
            finally:
                with self._changed:
                    self._closed = True
                    self._changed.notify_all()

    def times(self, times: dict[str, float], played: Rollout | Played) -> dict[str, float]:
        """Return the metrics of an iteration that learned from what was played.

        Args:
            times: what the clock read.
            played: a rollout, or several; evaluation beside is not counted as the pool's work.
        """
        total, busy_s = times["system/iteration_s"], played.env_s + played.policy_s
        metrics = {
            **times,
            "system/env_s": played.env_s,
            "system/policy_s": played.policy_s,
            # What was played ahead may have taken longer than this iteration.
            "system/env_share": min(1.0, played.env_s / (self.num_actors * total)),
            "system/policy_share": min(1.0, played.policy_s / (self.num_actors * total)),
            "system/env_restarts": played.restarts,
        }
        if self.staleness:
            waited_s = self._ahead_wait_s
            metrics["system/ahead_wait_s"] = waited_s - self._ahead_told_s
            self._ahead_told_s = waited_s
        if self._mode == "inline":  # this process did not wait while it played
            metrics["system/wait_share"] = max(0.0, times["system/wait_share"] - busy_s / total)
        return metrics | worker_times(busy_s, total, self._pool.size) if self._mode == "actors" else metrics

    def state_dict(self) -> dict[str, Any]:
        """Where the environments stand, and the older weights that rollouts to come are played by."""
        by_name = self._parts.by_name
        older = {str(k): by_name([one.state_dict() for one in each]) for k, each in enumerate(self._weights[:-1])}
        return {"start": self._start.state_dict(self._parts), "older": older}

    def load_state_dict(self, state: Mapping[str, Any], *newest: Weights) -> None:
        """Take over what `state_dict` gave, with the newest weights, which learners keep."""
        self._start = ResumePoint.restore(state["start"], self._parts, self.num_actors)
        older = [self._parts.in_order(state["older"][str(k)]) for k in range(self.staleness)]
        self._weights = [*([Weights(**one) for one in each] for each in older), newest]

    def _source(self, first: int) -> Source:
        if self._mode == "actors":
            source = play_on_pool(self._config, self._pool, self.num_actors, self._version, self._start, first)
        else:
            source = play_here(self._config, self._version, self._start, first)
        return prefetch(source, self.staleness) if self.staleness else source

    def _version(self, iteration: int) -> Policies:
        """The weights that play this rollout, once they are there."""
        wanted = max(iteration - self.staleness, 0)
        with self._changed:
            asked = time.perf_counter()
            self._changed.wait_for(lambda: self._closed or self.newest[0].version >= wanted)
            self._ahead_wait_s += time.perf_counter() - asked
            if self._closed:
                raise Abandoned
            return next(weights for weights in self._weights if weights[0].version == wanted)


def play_here(config: RolloutConfig, versions: Versions, start: ResumePoint, first: int) -> Source:
    """Play rollouts first, first + 1, ... in this thread."""
    with contextlib.closing(Collector(config)) as collector:
        iteration = first
        while True:
            rollouts, end = collector.collect(versions(iteration), start, iteration)
            start = start.then([end])
            yield rollouts, start
            iteration += 1


def check_shares(threads: int, mode: Mode, staleness: int, pool: Pool) -> None:
    """Raise ConfigError where a learner in torch, whose threads are the process's, would share them with who plays."""
    ahead = mode == "prefetch" or (mode == "actors" and staleness > 0)
    require(
        threads == 1 or not (ahead and pool.in_process),
        f"threads={threads}: what plays ahead (rollouts={mode}) and what learns would share them in one process, by "
        "chance; use threads=1, rollouts=inline or compute=local",
    )
