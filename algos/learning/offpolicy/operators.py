"""Off-policy learning as a composition of generators: act, store, draw, learn, tell.

    acting = store(rollouts, replay, pace)
    learning = train(replayed(replay, batch_size, pace), learner, rate)
    rows = report(concurrently(acting, learning, pace, publish), pace, every)

Nothing runs before the first row is pulled. How many updates follow a rollout is a formula of counters, so that no
number depends on who was faster, on how a run was cut into sessions, or on the number of workers. An operator of your
own is a generator function between two of these.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algos.common.timing import Clock
from algos.learning.learner import check_rollout
from algos.learning.offpolicy.learners.learner import OffPolicyLearner
from algos.learning.replay.batch import Drawn, Floats
from algos.learning.replay.replay import Replay
from algos.learning.rollouts.rollout import Played, Rollout, episode_metrics, world_metrics


@dataclass
class Pace:
    """Counts what was played and learned, and says how many updates are owed."""

    warmup: int  # environment steps before the first update
    updates_per_step: Fraction
    at_once: int  # updates that one draw of batches is for
    clock: Clock = field(init=False, default_factory=Clock)
    step: int = field(init=False, default=0)
    rollouts: int = field(init=False, default=0)
    episodes: int = field(init=False, default=0)
    updates: int = field(init=False, default=0)

    @property
    def owed(self) -> int:
        """Updates to be made before the next rollout."""
        ratio = self.updates_per_step
        return max(self.step - self.warmup, 0) * ratio.numerator // ratio.denominator - self.updates

    def state_dict(self) -> dict[str, int]:
        """The counters."""
        return {name: getattr(self, name) for name in ("step", "rollouts", "episodes", "updates")}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        for name, value in state.items():
            setattr(self, name, int(value))


@dataclass(frozen=True)
class Update:
    """What was learned from batches."""

    ids: NDArray[np.int64]  # [U, B], of the rows that it was learned from
    report: NDArray[np.float64]  # [U, R]
    distance: Floats  # [U, B], of values from their targets


@dataclass(frozen=True)
class Turn:
    """A rollout, and the updates that followed."""

    rollout: Rollout
    updates: list[Update]


def count(rollouts: Iterator[Rollout], pace: Pace) -> Generator[Rollout, None, None]:
    """Check rollouts, count their steps, and pass them on."""
    for rollout in rollouts:
        pace.clock.lap("wait")
        check_rollout(rollout)
        pace.step += rollout.steps
        pace.rollouts += 1
        pace.episodes += len(rollout.returns)
        yield rollout


def store(rollouts: Iterator[Rollout], replay: Replay, pace: Pace) -> Generator[Rollout, None, None]:
    """Append rollouts to the replay in their order, and pass them on."""
    for rollout in rollouts:
        replay.append(rollout)
        pace.clock.lap("replay")
        yield rollout


def replayed(replay: Replay, batch_size: int, pace: Pace) -> Generator[Drawn, None, None]:
    """Draw batches for the updates that are owed, for ever; which rows depends on the updates' numbers alone."""
    while True:
        batch = replay.sample(pace.updates, min(pace.owed, pace.at_once), batch_size)
        pace.clock.lap("replay")
        yield batch


def train(
    batches: Iterator[Drawn], learner: OffPolicyLearner, pace: Pace, rate: Callable[[], float]
) -> Generator[Update, None, None]:
    """Learn from each batch."""
    for batch in batches:
        report, distance = learner.update(batch, rate())
        pace.updates += len(report)
        pace.clock.lap("learn")
        yield Update(batch.ids, report, distance)


def reprioritize(updates: Iterator[Update], replay: Replay) -> Generator[Update, None, None]:
    """Let what was learned from be drawn again as far as it surprised, before the next batch is drawn."""
    for update in updates:
        replay.set_priorities(update.ids, update.distance)
        yield update


def concurrently(
    acting: Generator[Rollout, None, None],
    learning: Generator[Update, None, None],
    pace: Pace,
    publish: Callable[[], None],
) -> Generator[Turn, None, None]:
    """After each rollout make the updates that are owed, then let actors have the weights."""
    with closing(acting), closing(learning):
        for rollout in acting:
            updates = []
            while pace.owed:
                updates.append(next(learning))
            publish()
            yield Turn(rollout, updates)


def report(
    turns: Generator[Turn, None, None], pace: Pace, every: int, told: tuple[str, ...], metrics: tuple[str, ...]
) -> Generator[tuple[dict[str, float], Played], None, None]:
    """Gather what turns gave into one row of metrics each time that so many steps have been passed.

    Args:
        told: names of what updates report, with their group.
        metrics: names of what environments tell of themselves.
    """
    with closing(turns):
        rollouts: list[Played] = []
        reports: list[NDArray[np.float64]] = []
        passed, stray_reward = pace.step // every, 0.0
        for turn in turns:
            rollouts.append(Played.join([turn.rollout]))  # without the transitions, which the replay has
            reports += [update.report for update in turn.updates]
            stray_reward += turn.rollout.stray_reward
            if pace.step // every == passed:
                continue
            played = Played.join(rollouts)
            means = np.concatenate(reports).mean(axis=0).tolist() if reports else []
            row = {
                "iteration": pace.rollouts,
                "step": pace.step,
                "train/episodes": pace.episodes,
                "train/updates": pace.updates,
                **world_metrics(turn.rollout, pace.rollouts, stray_reward),
                **episode_metrics(played, metrics),
                **dict(zip(told, means, strict=False)),
            }
            rollouts, reports, passed, stray_reward = [], [], pace.step // every, 0.0
            pace.clock.lap("learn")
            yield row, played
