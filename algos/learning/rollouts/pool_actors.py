"""Actors on the pool's workers, each with its share of the environments, which persist between calls."""

import functools

from paddock.algos.common.threads import one_thread
from paddock.algos.learning.rollouts.collector import Collector
from paddock.algos.learning.rollouts.config import Policies, RolloutConfig, Source, Versions
from paddock.algos.learning.rollouts.resume_point import ResumePoint
from paddock.algos.learning.rollouts.rollout import Rollout, join
from paddock.algos.multiagent.collector import JointCollector, make_collector
from paddock.algos.pool.broadcast import Broadcast
from paddock.algos.pool.protocol import Pool


def play_on_pool(
    config: RolloutConfig, pool: Pool, actors: int, versions: Versions, start: ResumePoint, first: int
) -> Source:
    """Yield rollouts joined from the shares of `actors` stateful tasks; lost ones move to another worker."""
    pool.ask(actors)
    workers = [pool.stateful(functools.partial(RolloutWorker, config, index)) for index in range(actors)]
    iteration = first
    sent: Policies | None = None
    try:
        while True:
            policies = versions(iteration)
            if policies is not sent:  # several rollouts may use the same weights
                weights, sent = pool.broadcast(policies), policies
            # The full resume point is sent only to actors whose environments are elsewhere.
            new = iteration == first
            points = (start if new else start.light).split(actors)
            tasks = zip(workers, points, strict=True)
            calls = [worker.call("play", weights, point, iteration, new) for worker, point in tasks]
            played = [call() for call in calls]
            absent = [k for k, share in enumerate(played) if share is None]
            if absent:
                points = start.split(actors)
                calls = [workers[k].call("play", weights, points[k], iteration, True) for k in absent]
                for k, call in zip(absent, calls, strict=True):
                    played[k] = call()
            rollouts = [join(shares) for shares in zip(*[rollouts for rollouts, _ in played], strict=True)]
            start = start.advance([end for _, end in played])
            yield rollouts, start
            iteration += 1
    finally:
        for worker in workers:
            worker.close()


class RolloutWorker:
    """Actor on a worker, whose environments persist between calls; results do not depend on them."""

    def __init__(self, config: RolloutConfig, index: int) -> None:
        self._config = config
        self._index = index
        self._collector: Collector | JointCollector | None = None

    def play(
        self, weights: Broadcast[Policies], start: ResumePoint, iteration: int, whole: bool
    ) -> tuple[list[Rollout], ResumePoint] | None:
        """Collect this actor's share of each policy's rollout, as `Collector.collect` does.

        Returns None if the environments are not at `start` and it is not `whole`, so that they cannot be restored.
        """
        if not whole and (self._collector is None or not self._collector.envs.is_at(start)):
            return None
        if self._collector is None:
            self._collector = make_collector(self._config, self._index)
        try:
            with one_thread():
                return self._collector.collect(weights.value, start, iteration)
        except BaseException:
            # The environments are in an unknown state; the next call builds new ones.
            self.close()
            raise

    def close(self) -> None:
        """Close the environments."""
        if self._collector is not None:
            self._collector.close()
            self._collector = None
