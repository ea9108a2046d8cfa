"""The sanity suite finds what is broken in C51, QR-DQN, Rainbow and R2D2: each learns its task, and not with a fault.

The faults are usual ones of other implementations: each leaves the learner running. One of them is planted
every day, and all of them at night.
"""

import functools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from paddock.algos import dqn, r2d2
from paddock.algos.learning.offpolicy.learners.torch_networks import QNetwork
from paddock.algos.learning.replay.replay import Replay
from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.algos.networks.support import Support
from paddock.algos.pool.serial import SerialPool
from paddock.health.sanity import SanityResult, prepare_tasks, run_tasks

Patch = pytest.MonkeyPatch


@functools.cache
def sound(learner: str, task: str) -> SanityResult:
    return learn(learner, task)


def learn(learner: str, task: str) -> SanityResult:
    """What a learner, as it is now, makes of a task."""
    sequences = learner == "r2d2"
    [exam] = prepare_tasks(LEARNERS[learner], [task], [2 if sequences else 1])
    steps = OF_SEQUENCES if sequences else STEPS[task]
    exam = replace(exam, trials=tuple(replace(one, steps=steps) for one in exam.trials))
    [verdict] = run_tasks([exam], SerialPool())
    return verdict


FEW = ["algo=dqn", "algo.updates_per_step=0.125", "algo.learning_rate=3e-3", "algo.target_every=50"]
ATOMS = ["algo.atoms=21", "algo.v_min=-1", "algo.v_max=4"]
LEARNERS = {
    "c51": [*FEW, *ATOMS],
    "qr": [*FEW, "algo.quantiles=8"],
    "rainbow": [
        *(*FEW, *ATOMS, "algo.dueling=true", "algo.noisy_sigma=0.5", "algo.priority_exponent=0.5", "algo.n_step=3"),
        *("algo.epsilon_start=0", "algo.epsilon_end=0", "algo.learning_starts=48", "algo.batch_size=32"),
    ],
    "r2d2": ["algo=r2d2", "algo.hidden_sizes=[16]", "algo.burn_in=5", "algo.sequence_length=10", "algo.num_steps=5"],
}
STEPS = {"bandit": 10_000, "password": 16_000, "cutoff": 8_000}  # three quarters are enough, for any seed of three
OF_SEQUENCES = 30_000  # two thirds are enough for seed 2


def lose_what_meets_an_atom(patch: Patch) -> None:
    """Share out by floor and ceiling, which are one where a moved atom meets another."""

    def faulty(shares: Tensor, reward: Tensor, discount: Tensor, support: Support, z: Tensor) -> Tensor:
        moved = reward.unsqueeze(1) + discount.unsqueeze(1) * torch.from_numpy(support.values)
        at = ((moved - support.v_min) / support.spacing).clamp(0, support.atoms - 1)
        low, high = at.floor(), at.ceil()
        spread = torch.zeros_like(shares)
        spread.scatter_add_(1, low.long(), shares * (high - at))
        return spread.scatter_add_(1, high.long(), shares * (at - low))

    patch.setattr(dqn, "project", faulty)


def take_cuts_for_ends(patch: Patch) -> None:
    """Let nothing follow where an episode was cut off."""
    append = Replay.append

    def faulty(self: Replay, rollout: Rollout) -> None:
        over = rollout.terminated | rollout.truncated
        nothing = rollout.final_at[:0], rollout.final_obs[:0]
        ended = replace(rollout, terminated=over, truncated=np.zeros_like(over))
        append(self, replace(ended, final_at=nothing[0], final_obs=nothing[1]))

    patch.setattr(Replay, "append", faulty)


def lose_the_sign_of_levels(patch: Patch) -> None:
    """Weigh errors by levels of either sign."""

    def faulty(value: Tensor, target: Tensor, levels: Tensor, limit: float | None) -> Tensor:
        error = target.unsqueeze(1) - value.unsqueeze(2)
        return ((levels.unsqueeze(1) - (error.detach() < 0).float()) * error.abs()).sum(1).mean(1)

    patch.setattr(dqn, "quantile_loss", faulty)


def act_without_the_common(patch: Patch) -> None:
    """Leave out of actors what all actions have in common, as may be done where values are no distribution."""
    acting = QNetwork._acting
    patch.setattr(QNetwork, "_acting", lambda self, advantages, value: acting(self, advantages, None))


def leave_values_rescaled(patch: Patch) -> None:
    """Add rewards to values as they are learned."""
    patch.setattr(r2d2, "original", lambda value, epsilon: value)


FAULTS: dict[str, tuple[Callable[[Patch], None], str, str]] = {
    "what meets an atom is lost": (lose_what_meets_an_atom, "c51", "password"),
    "cuts taken for ends, with atoms": (take_cuts_for_ends, "c51", "cutoff"),
    "cuts taken for ends, with quantiles": (take_cuts_for_ends, "qr", "cutoff"),
    "cuts taken for ends, with sequences": (take_cuts_for_ends, "r2d2", "cutoff"),
    "levels of either sign": (lose_the_sign_of_levels, "qr", "bandit"),
    "cuts taken for ends, with all parts": (take_cuts_for_ends, "rainbow", "cutoff"),
    "what actions have in common left out": (act_without_the_common, "rainbow", "password"),
    "rewards beside rescaled values": (leave_values_rescaled, "r2d2", "cutoff"),
}
QUICK = ("cuts taken for ends, with atoms",)


@pytest.mark.parametrize(
    "fault",
    [name if name in QUICK else pytest.param(name, marks=[pytest.mark.slow, pytest.mark.nightly]) for name in FAULTS],
)
def test_a_task_is_learned_and_not_with_a_planted_fault(fault: str) -> None:
    plant, learner, task = FAULTS[fault]
    passed = sound(learner, task)
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        failed = learn(learner, task)
    print(f"{fault}: {learner} {task} {passed.scores[0]:.3f}, with it {failed.scores[0]:.3f}, passes {passed.bar}")
    assert (passed.level, failed.level) == ("ok", "FAIL")
