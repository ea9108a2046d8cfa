"""Rollouts by actors in threads of this process, each with its share of the environments; none waits for the others.

As in Sebulba (Hessel et al. 2021, arXiv:2104.06272) the policy of each acts on the learner's device, on all of the
actor's environments as one batch: while one waits for its environments another acts.
"""

import contextlib
import itertools
from collections.abc import Callable, Generator

from paddock.algos.learning.flow import PullThread
from paddock.algos.learning.rollouts.config import RolloutConfig, Source, Versions
from paddock.algos.learning.rollouts.resume_point import ResumePoint
from paddock.algos.learning.rollouts.rollout import Rollout, join
from paddock.algos.multiagent.collector import make_collector

Share = Generator[tuple[list[Rollout], ResumePoint], None, None]  # of each part, one actor's, and where it ended


def play_in_threads(
    config: RolloutConfig,
    actors: int,
    depth: int,
    versions: Versions,
    start: ResumePoint,
    first: int,
    abandon: Callable[[], None],
    waited: Callable[[float], None],
) -> Source:
    """Play rollouts in `actors` shares, each by a thread, and join those of one number in the actors' order.

    Args:
        depth: shares that may wait for the others, or for who learns, of each actor, >= 1.
        versions: blocks until those of a rollout are there, in each thread by itself.
        abandon: lets nobody wait in `versions` any more.
        waited: is told for how long an actor waited until there was room for its share.
    """
    points = start.split(actors)
    shares = [play_share(config, index, versions, point, first) for index, point in enumerate(points)]
    threads = [PullThread(share, depth, waited) for share in shares]
    try:
        for played in zip(*threads, strict=True):
            rollouts = [join(parts) for parts in zip(*[rollouts for rollouts, _ in played], strict=True)]
            start = start.advance([end for _, end in played])
            yield rollouts, start
    finally:
        abandon()
        for thread in threads:
            thread.stop()
        for thread in threads:
            thread.join()


def play_share(config: RolloutConfig, index: int, versions: Versions, start: ResumePoint, first: int) -> Share:
    """Play one actor's share of rollouts first, first + 1, ... in the thread that pulls."""
    with contextlib.closing(make_collector(config, index)) as collector:
        for iteration in itertools.count(first):
            rollouts, end = collector.collect(versions(iteration), start, iteration)
            yield rollouts, end
            start = start.advance([end])
