"""On-policy learning as a composition of generators: play, scale, learn, publish, tell.

    lessons = scaled(checked(rollouts, count, layouts), policies, reward_clip)
    turns = observed(trained(lessons, count, learn), policies)
    for row, played in report(published(turns, publish), count, ...): ...

Nothing runs before the first row is pulled, and every operator takes up an item only once the last one has gone all the
way: the state is complete at every row. Several policies learn side by side, each from its own rollout. An operator of
your own is a generator function between two of these.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from paddock.algos.common.timing import Clock
from paddock.algos.learning.episode_metrics import tell_of
from paddock.algos.learning.learner import check_rollout, check_turns
from paddock.algos.learning.onpolicy.normalized_learner import NormalizedLearner
from paddock.algos.learning.rollouts.rollout import Played, Rollout, episode_metrics, world_metrics
from paddock.envs.spaces.layout import Layout


@dataclass
class Count:
    """What was played and learned so far."""

    clock: Clock = field(init=False, default_factory=Clock)
    iteration: int = field(init=False, default=0)
    step: int = field(init=False, default=0)  # environment steps of all actors, evaluation not counted
    episodes: int = field(init=False, default=0)


@dataclass(frozen=True)
class Lesson:
    """What a policy learns from in an iteration."""

    rollout: Rollout
    reward: NDArray[np.float32]  # [T, N], as it is learned from


@dataclass(frozen=True)
class Turn:
    """The rollouts of all policies, and what there is to tell of learning from them."""

    rollouts: Sequence[Rollout]
    metrics: dict[str, float]


def checked(
    rollouts: Iterator[Sequence[Rollout]], count: Count, layouts: Sequence[Layout]
) -> Generator[Sequence[Rollout], None, None]:
    """Pass rollouts on that are finite numbers; `layouts` are of each policy's rows of observations."""
    for each in rollouts:
        count.clock.lap("wait")
        for rollout, layout in zip(each, layouts, strict=True):
            check_rollout(rollout, layout)
        yield each


def scaled(
    rollouts: Iterator[Sequence[Rollout]], policies: Sequence[NormalizedLearner], clip: float
) -> Generator[list[Lesson], None, None]:
    """Scale each policy's rewards by what its returns have been like, and clip them to +-clip."""
    for each in rollouts:
        pairs = zip(each, policies, strict=True)
        yield [Lesson(rollout, one.normalization.rewards(rollout, clip)) for rollout, one in pairs]


def trained(
    lessons: Iterator[Sequence[Lesson]], count: Count, learn: Callable[[int, Lesson], dict[str, float]]
) -> Generator[Turn, None, None]:
    """Let each policy learn its lesson: learn(number, lesson) gives its metrics.

    One whose agents came to the end of no turn, or that met nobody, stays as it is, and has no metrics to tell.

    Raises:
        ConfigError: nobody came to the end of a turn in the first rollout of all.
    """
    for each in lessons:
        metrics: dict[str, float] = {}
        rollouts = [lesson.rollout for lesson in each]
        check_turns(rollouts, count.iteration)
        for k, lesson in enumerate(each):
            if not lesson.rollout.is_idle:
                metrics |= learn(k, lesson)
        count.iteration += 1
        count.step += sum(rollout.steps for rollout in rollouts)
        count.episodes += sum(len(rollout.returns) for rollout in rollouts)
        yield Turn(rollouts, metrics)


def observed(turns: Iterator[Turn], policies: Sequence[NormalizedLearner]) -> Generator[Turn, None, None]:
    """Count what each policy saw, by which it is normalized from here on."""
    for turn in turns:
        for rollout, one in zip(turn.rollouts, policies, strict=True):
            one.normalization.observe(rollout)
        yield turn


def published(turns: Iterator[Turn], publish: Callable[[], None]) -> Generator[Turn, None, None]:
    """Let actors have the weights."""
    for turn in turns:
        publish()
        yield turn


def report(
    turns: Iterator[Turn], count: Count, counted: Mapping[str, str], names: Sequence[str], metrics: Sequence[str]
) -> Generator[tuple[dict[str, float], Played], None, None]:
    """Put what a turn gave into a row of metrics.

    Args:
        counted: which of the counters are told, by the names of their metrics.
        names: of the policies.
        metrics: names of what environments tell of themselves.
    """
    for turn in turns:
        played = Played.join(turn.rollouts)
        each = zip(names, turn.rollouts, strict=True) if len(names) > 1 else ()
        row = {
            **{metric: getattr(count, name) for metric, name in counted.items()},
            **world_metrics(turn.rollouts[0], count.iteration, sum(one.stray_reward for one in turn.rollouts)),
            **episode_metrics(played, metrics),
            **{
                key: value
                for name, rollout in each
                for key, value in tell_of(name, episode_metrics(rollout, metrics)).items()
            },
            **turn.metrics,
        }
        count.clock.lap("learn")
        yield row, played
