"""Off-policy learning as a composition of generators: act, store, sample, learn, report.

    stored = store(rollouts, policies)
    updates = [train(sample(policy, batch_size), policy, rate) for policy in policies]
    rows = report(interleave(stored, updates, policies, publish), policies, ...)

Generators are lazy: nothing runs before the first row is requested. The number of updates after a rollout depends only
on counters, so results do not depend on timing, interruptions or the number of workers. Each of
several policies has its own rollouts, replay buffer and counters. Custom operators are generators inserted between these.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.learning.episode_metrics import prefix_metrics
from paddock.algos.learning.learner import check_rollout
from paddock.algos.learning.offpolicy.learned_policy import LearnedPolicy
from paddock.algos.learning.offpolicy.learners.learner import Metrics
from paddock.algos.learning.replay.batch import Floats
from paddock.algos.learning.rollouts.rollout import Rollout, RolloutStats, episode_metrics, world_metrics
from paddock.envs.errors import require

Policies = Sequence[LearnedPolicy]
Rollouts = Sequence[Rollout]  # one per policy


@dataclass(frozen=True)
class Update:
    """Result of U updates of a policy."""

    ids: NDArray[np.int64]  # [U, B], replay rows of the batches
    metrics: Metrics
    td_error: Floats  # [U, B], absolute


@dataclass(frozen=True)
class TrainStep:
    """Rollouts of all policies, and the updates that followed."""

    rollouts: Rollouts
    updates: Sequence[list[Update]]  # one list per policy


def count(rollouts: Iterator[Rollouts], policies: Policies) -> Generator[Rollouts, None, None]:
    """Check rollouts, count their steps, and yield them."""
    for each in rollouts:
        policies[0].clock.lap("wait")
        for rollout, policy in zip(each, policies, strict=True):
            check_rollout(rollout, policy.learner.architecture.inputs.layout)
            policy.schedule.step += rollout.steps
            policy.schedule.rollouts += 1
            policy.schedule.episodes += len(rollout.returns)
        yield each


def store(rollouts: Iterator[Rollouts], policies: Policies) -> Generator[Rollouts, None, None]:
    """Append the rollouts of each policy to its replay buffer in order, and yield them."""
    for each in rollouts:
        for rollout, policy in zip(each, policies, strict=True):
            policy.buffer.append(rollout)
        policies[0].clock.lap("replay")
        yield each


def sample(policy: LearnedPolicy, batch_size: int) -> Generator[Any, None, None]:
    """Sample batches for pending updates, indefinitely; the random numbers depend only on the update number."""
    schedule = policy.schedule
    while True:
        batch = policy.buffer.sample(schedule.updates, min(schedule.owed, schedule.at_once), batch_size)
        policy.clock.lap("replay")
        yield batch


def train(batches: Iterator[Any], policy: LearnedPolicy, rate: Callable[[], float]) -> Generator[Update, None, None]:
    """Train on each batch: compute the loss, step the optimizers, and update the target networks."""
    for batch in batches:
        metrics, td_error = policy.learner.update(batch, rate())
        policy.schedule.updates += len(batch.ids)
        policy.clock.lap("learn")
        yield Update(batch.ids, metrics, td_error)


def reprioritize(updates: Iterator[Update], policy: LearnedPolicy) -> Generator[Update, None, None]:
    """Update the priorities of replayed rows from their TD errors, before the next batch is sampled."""
    for update in updates:
        if policy.buffer.prioritized:
            problem = "the metrics of the loss lack td_error [B], which algo.priority_exponent requires"
            require(update.td_error.shape == update.ids.shape, f"{problem}; add it, or set algo.priority_exponent=0")
            policy.buffer.set_priorities(update.ids, update.td_error)
        yield update


def interleave(
    stored: Generator[Rollouts, None, None],
    updates: Sequence[Generator[Update, None, None]],
    policies: Policies,
    publish: Callable[[], None],
) -> Generator[TrainStep, None, None]:
    """Run each policy's pending updates after every rollout, then publish the weights to actors."""
    with ExitStack() as stack:
        for generator in (*updates, stored):
            stack.enter_context(closing(generator))
        for rollouts in stored:
            results: list[list[Update]] = []
            for policy, generator in zip(policies, updates, strict=True):
                results.append([])
                while policy.schedule.owed:
                    results[-1].append(next(generator))
            publish()
            yield TrainStep(rollouts, results)


def report(
    steps: Generator[TrainStep, None, None], policies: Policies, interval: int, group: str, env_metrics: Sequence[str]
) -> Generator[tuple[dict[str, float], RolloutStats], None, None]:
    """Yield a row of metrics and its episode statistics every `interval` environment steps.

    `group` is the prefix of update metrics, such as `dqn/loss`; `env_metrics` names the metrics of the environments.
    """

    def total(counter: str) -> int:
        return sum(getattr(policy.schedule, counter) for policy in policies)

    with closing(steps):
        results, last_interval, stray_reward = [_Results() for _ in policies], total("step") // interval, 0.0
        for step in steps:
            for result, rollout, updates in zip(results, step.rollouts, step.updates, strict=True):
                result.stats.append(RolloutStats.join([rollout]))  # without the transitions
                result.metrics += [update.metrics for update in updates]
            stray_reward += sum(rollout.stray_reward for rollout in step.rollouts)
            if total("step") // interval == last_interval:
                continue
            stats = RolloutStats.join([part for result in results for part in result.stats])
            rollouts = policies[0].schedule.rollouts
            row = {
                "iteration": rollouts,
                "step": total("step"),
                "train/episodes": total("episodes"),
                "train/updates": total("updates"),
                **world_metrics(step.rollouts[0], rollouts, stray_reward),
                **episode_metrics(stats, env_metrics),
            }
            for policy, result in zip(policies, results, strict=True):
                if policy.name:
                    episodes = episode_metrics(RolloutStats.join(result.stats), env_metrics)
                    row |= prefix_metrics(policy.name, {"train/updates": policy.schedule.updates, **episodes})
                row |= prefix_metrics(policy.name, {f"{group}/{name}": mean for name, mean in result.means.items()})
            results, last_interval, stray_reward = [_Results() for _ in policies], total("step") // interval, 0.0
            yield row, stats


@dataclass
class _Results:
    stats: list[RolloutStats] = field(default_factory=list)
    metrics: list[Metrics] = field(default_factory=list)

    @property
    def means(self) -> dict[str, float]:
        """Mean of each update metric; empty if there were no updates."""
        names = dict.fromkeys(name for metrics in self.metrics for name in metrics)
        merged = {name: np.concatenate([each[name] for each in self.metrics if name in each]) for name in names}
        # np.cumsum adds in order; the summation order of np.sum depends on the CPU.
        return {name: float(np.cumsum(values)[-1] / len(values)) for name, values in merged.items()}
