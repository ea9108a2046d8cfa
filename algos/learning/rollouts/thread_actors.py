"""Actors in threads of this process, each with its share of the environments.

As in Sebulba (Hessel et al. 2021, arXiv:2104.06272), each policy acts on a device on a batch of all the actor's
environments; while one actor waits for its environments, another acts.
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
    """Yield rollouts joined from the shares of `actors` threads, which may collect `depth` shares ahead.

    `versions` returns the weights of a rollout, and blocks until they are published or `abandon` is called. `waited` is
    called with the seconds that a share waited for a free slot in its actor's queue.
    """
    points = start.split(actors)
    shares = [play_share(config, index, versions, point, first) for index, point in enumerate(points)]
    threads = [PullThread(share, depth, waited) for share in shares]
    try:
        for played in zip(*threads, strict=True):
            rollouts = [join(shares) for shares in zip(*[rollouts for rollouts, _ in played], strict=True)]
            start = start.advance([end for _, end in played])
            yield rollouts, start
    finally:
        abandon()
        for thread in threads:
            thread.stop()
        for thread in threads:
            thread.join()


def play_share(config: RolloutConfig, index: int, versions: Versions, start: ResumePoint, first: int) -> Share:
    """Yield one actor's share of rollouts first, first + 1, ..., collected by the consuming thread."""
    with contextlib.closing(make_collector(config, index)) as collector:
        for iteration in itertools.count(first):
            rollouts, end = collector.collect(versions(iteration), start, iteration)
            yield rollouts, end
            start = start.advance([end])
