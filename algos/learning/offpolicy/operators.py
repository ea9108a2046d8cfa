"""Off-policy learning as a composition of generators: act, store, draw, learn, tell.

    acting = store(rollouts, replays, pace)
    learning = [train(replayed(replay, batch_size, own), learner, own, rate) for each policy]
    rows = report(concurrently(acting, learning, pace, publish), pace, every)

Nothing runs before the first row is pulled. How many updates follow a rollout is a formula of counters, so that no
number depends on who was faster, on how a run was cut into sessions, or on the number of workers. Several policies of
one world learn side by side, each from the rollouts, the replay and the counters of its own agents. An operator of your
own is a generator function between two of these.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from paddock.algos.learning.episode_metrics import tell_of
from paddock.algos.learning.learner import check_rollout
from paddock.algos.learning.offpolicy.learners.learner import OffPolicyLearner
from paddock.algos.learning.offpolicy.pace import Pace, Paces
from paddock.algos.learning.replay.batch import Drawn, Floats
from paddock.algos.learning.replay.replay import Replay
from paddock.algos.learning.rollouts.rollout import Played, Rollout, episode_metrics, world_metrics
from paddock.envs.spaces.layout import Layout


@dataclass(frozen=True)
class Update:
    """What a policy learned from batches."""

    ids: NDArray[np.int64]  # [U, B], of the rows that it was learned from
    report: NDArray[np.float64]  # [U, R]
    distance: Floats  # [U, B], of values from their targets


@dataclass(frozen=True)
class Turn:
    """A rollout of each policy, and the updates that followed of each."""

    rollouts: Sequence[Rollout]
    updates: Sequence[list[Update]]


def count(
    rollouts: Iterator[Sequence[Rollout]], pace: Paces, layouts: Sequence[Layout]
) -> Generator[Sequence[Rollout], None, None]:
    """Check rollouts, count their steps, and pass them on; `layouts` are of each policy's rows of observations."""
    for each in rollouts:
        pace.clock.lap("wait")
        for rollout, own, layout in zip(each, pace.each.values(), layouts, strict=True):
            check_rollout(rollout, layout)
            own.step += rollout.steps
            own.rollouts += 1
            own.episodes += len(rollout.returns)
        yield each


def store(
    rollouts: Iterator[Sequence[Rollout]], replays: Sequence[Replay], pace: Paces
) -> Generator[Sequence[Rollout], None, None]:
    """Append the rollouts of each policy to its replay in their order, and pass them on."""
    for each in rollouts:
        for rollout, replay in zip(each, replays, strict=True):
            replay.append(rollout)
        pace.clock.lap("replay")
        yield each


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
    acting: Generator[Sequence[Rollout], None, None],
    learning: Sequence[Generator[Update, None, None]],
    pace: Paces,
    publish: Callable[[], None],
) -> Generator[Turn, None, None]:
    """After each rollout make the updates that each policy owes, then let actors have the weights."""
    with ExitStack() as stack:
        for one in (*learning, acting):
            stack.enter_context(closing(one))
        for rollouts in acting:
            updates: list[list[Update]] = []
            for own, each in zip(pace.each.values(), learning, strict=True):
                updates.append([])
                while own.owed:
                    updates[-1].append(next(each))
            publish()
            yield Turn(rollouts, updates)


def report(
    turns: Generator[Turn, None, None], pace: Paces, every: int, told: Sequence[Sequence[str]], metrics: Sequence[str]
) -> Generator[tuple[dict[str, float], Played], None, None]:
    """Gather what turns gave into one row of metrics each time that so many steps have been passed.

    Args:
        told: of each policy, names of what its updates report, with their group.
        metrics: names of what environments tell of themselves.
    """
    with closing(turns):
        gathered, passed, stray_reward = [_Gathered() for _ in told], pace.step // every, 0.0
        for turn in turns:
            for one, rollout, updates in zip(gathered, turn.rollouts, turn.updates, strict=True):
                one.played.append(Played.join([rollout]))  # without the transitions, which the replay has
                one.reports += [update.report for update in updates]
            stray_reward += sum(rollout.stray_reward for rollout in turn.rollouts)
            if pace.step // every == passed:
                continue
            played = Played.join([part for one in gathered for part in one.played])
            row = {
                "iteration": pace.rollouts,
                "step": pace.step,
                "train/episodes": pace.episodes,
                "train/updates": pace.updates,
                **world_metrics(turn.rollouts[0], pace.rollouts, stray_reward),
                **episode_metrics(played, metrics),
            }
            for (name, own), one, names in zip(pace.each.items(), gathered, told, strict=True):
                if name:
                    lives = episode_metrics(Played.join(one.played), metrics)
                    row |= tell_of(name, {"train/updates": own.updates, **lives})
                row |= dict(zip(names, one.means, strict=False))
            gathered, passed, stray_reward = [_Gathered() for _ in told], pace.step // every, 0.0
            pace.clock.lap("learn")
            yield row, played


@dataclass
class _Gathered:
    """What a policy gave since the last row."""

    played: list[Played] = field(default_factory=list)
    reports: list[NDArray[np.float64]] = field(default_factory=list)

    @property
    def means(self) -> list[float]:
        """Of what updates reported; none without any."""
        found: list[float] = np.concatenate(self.reports).mean(axis=0).tolist() if self.reports else []
        return found
