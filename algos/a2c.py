"""Advantage Actor-Critic (A2C), the synchronous variant of A3C (Mnih et al. 2016, arXiv:1602.01783)."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from paddock.algos.learning.custom_loss import choose_loss, needs_of_loss
from paddock.algos.learning.dense_learner import DenseLearner
from paddock.algos.learning.episode_metrics import prefix_metrics
from paddock.algos.learning.learner import (
    Batch,
    Learner,
    Report,
    SingleLearner,
    check_values,
    is_dense,
)
from paddock.algos.learning.onpolicy.on_policy import Assembly, OnPolicy
from paddock.algos.learning.returns import n_step
from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.algos.networks.architecture import Architecture, Weights
from paddock.algos.networks.dense.shape import LossSettings
from paddock.envs.ranges import PositiveFloat

ADAM_EPSILON = 1e-5
OF_RATIOS = ("approx_kl", "clip_fraction")  # PPO metrics of the C backend, constant if all ratios are 1

if TYPE_CHECKING:
    from torch import Tensor

    from paddock.algos.learning.onpolicy.minibatch import Minibatch
    from paddock.algos.networks.actor_critic import ActorCritic


def a2c_loss(network: ActorCritic, batch: Minibatch, settings: LossSettings) -> tuple[Tensor, dict[str, Tensor]]:
    """Compute the policy gradient loss, with value loss and entropy bonus (section 4.3 of the paper)."""
    logprob, entropy, value = network.evaluate_actions(batch)
    policy_loss = -(batch.advantage * logprob).mean()
    value_loss = 0.5 * ((value - batch.target) ** 2).mean()
    loss = policy_loss + settings.value_coef * value_loss - settings.entropy_coef * entropy.mean()
    return loss, {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy.mean()}


@dataclass(kw_only=True, eq=False)
class A2C(OnPolicy):
    """Advantage Actor-Critic; conf/algo/a2c.yaml explains each setting."""

    max_grad_norm: PositiveFloat
    loss: str | None

    def __post_init__(self) -> None:
        network = {"encoder": "auto", "activation": None, "shared": False, "lstm": False, "initial_log_std": 0.0}
        self.assemble(Assembly(network, self._team, normalizes={"obs": False, "rewards": False}))

    def plan(self) -> Generator[dict[str, float], None, None]:
        """Collect a rollout and take one gradient step in every iteration; the state is complete at every yield."""
        with self.playing() as rollouts:
            for played in rollouts:  # one rollout per learning policy; usually there is one policy
                metrics: dict[str, float] = {}
                for policy, rollout in zip(self.learning, played, strict=True):
                    if not rollout.is_idle:
                        metrics |= prefix_metrics(
                            policy.name,
                            policy.team.learn(rollout, self.actors.newest[policy.number], self.count.step),
                        )
                yield self.end_iteration(played, metrics)
                self.count.clock.lap("loop")

    def _update(self, learner: Learner, rollout: Rollout, weights: Weights, step: int) -> dict[str, float]:
        values, ends = learner.evaluate_batch(rollout, weights), (rollout.terminated, rollout.truncated)
        learned = rollout.learned_mask()
        check_values(values, learned)
        target = n_step(rollout.reward, values.next_value, *ends, self.gamma, rollout.acts)
        advantage = target - values.value
        # The C backend computes PPO's surrogate, whose gradient equals that of `a2c_loss` if all ratios are 1.
        batch = Batch(values.logprob, advantage, target, values.value, learned)
        settings = LossSettings(np.inf, None, self.value_coef, self.entropy_coef, normalize_advantages=False)
        rows = [np.arange(rollout.reward.size) if learned is None else np.flatnonzero(learned)]
        rate = self.anneal(self.learning_rate, self.learning_rate_schedule, step)
        report = learner.optimizer_step(values, batch, rows, settings, rate, self.max_grad_norm)
        means = Report.join([report]).mean()
        if self.loss is None:
            means["policy_loss"] = -float(batch.pick(advantage * values.logprob).mean())
        return {f"a2c/{name}": value for name, value in means.items() if name not in OF_RATIOS}

    def _team(self, architecture: Architecture, seed: int) -> SingleLearner:
        if is_dense(architecture, "auto", "cpu", "float32", needs_of_loss(self.loss)):
            dense = DenseLearner(architecture, seed, adam_epsilon=ADAM_EPSILON, threads=1)
            return SingleLearner(dense, self._update, "cpu")
        # Import torch only if needed: it takes a second, and dense networks learn in C.
        from paddock.algos.learning.torch_learner import TorchLearner

        options: dict[str, Any] = {"device": "cpu", "precision": "float32"}
        loss = choose_loss(self.loss, a2c_loss)
        learner = TorchLearner(architecture, seed, loss, adam_epsilon=ADAM_EPSILON, **options)
        return SingleLearner(learner, self._update, "cpu")
