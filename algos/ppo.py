"""Proximal Policy Optimization (Schulman et al. 2017, arXiv:1707.06347), with the details of Huang et al. 2022.

Each iteration collects a rollout of T steps in N environments, estimates advantages (GAE or V-trace), and optimizes the
clipped objective for several epochs of shuffled minibatches. Rollouts are collected in this process, ahead of time by
threads, or on the pool.
"""

from __future__ import annotations

import functools
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from paddock.algos.common.keys import Stream, keyed_generator
from paddock.algos.learning.custom_loss import choose_loss, needs_of_loss
from paddock.algos.learning.dense_learner import DenseLearner
from paddock.algos.learning.episode_metrics import prefix_metrics
from paddock.algos.learning.flow import minibatches
from paddock.algos.learning.learner import (
    Backend,
    Batch,
    BatchValues,
    Learner,
    Report,
    SingleLearner,
    check_values,
    is_dense,
)
from paddock.algos.learning.onpolicy.normalize import NormalizedLearner
from paddock.algos.learning.onpolicy.on_policy import Assembly, OnPolicy
from paddock.algos.learning.returns import gae, vtrace
from paddock.algos.learning.rollout_algorithm import Schedule
from paddock.algos.learning.rollouts.actors import Staleness, check_thread_sharing
from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.algos.networks.architecture import Architecture, EncoderChoice, Weights
from paddock.algos.networks.dense.shape import LossSettings
from paddock.algos.networks.flat import Activation
from paddock.envs.errors import nearest, require
from paddock.envs.native.functions import fast_exp
from paddock.envs.ranges import PositiveFloat, PositiveInt, Range, UnitFloat

if TYPE_CHECKING:
    from torch import Tensor

    from paddock.algos.learning.onpolicy.minibatch import Minibatch
    from paddock.algos.networks.actor_critic import ActorCritic

POSITIVE_OR_NULL = Range("must be positive, or null", above=0)


def ppo_loss(network: ActorCritic, batch: Minibatch, settings: LossSettings) -> tuple[Tensor, dict[str, Tensor]]:
    """Compute the PPO loss: -L^CLIP + c1 L^VF - c2 S (equations 7 and 9 of the paper).

    The terms are the clipped surrogate objective, the value loss and the entropy bonus.
    """
    logprob, entropy, value = network.evaluate_actions(batch)

    advantage = batch.advantage
    if settings.normalize_advantages and len(batch.all_advantages) > 1:
        advantage = (advantage - batch.all_advantages.mean()) / (batch.all_advantages.std() + 1e-8)

    log_ratio = logprob - batch.logprob
    ratio, epsilon = log_ratio.exp(), settings.clip_coef  # r = pi(a | s) / pi_old(a | s)
    policy_loss = -(advantage * ratio).minimum(advantage * ratio.clamp(1 - epsilon, 1 + epsilon)).mean()

    squared_error = (value - batch.target) ** 2
    if (limit := settings.value_clip_coef) is not None:
        moved = batch.value + (value - batch.value).clamp(-limit, limit)
        squared_error = squared_error.maximum((moved - batch.target) ** 2)
    value_loss = 0.5 * squared_error.mean()

    loss = policy_loss + settings.value_coef * value_loss - settings.entropy_coef * entropy.mean()
    return loss, {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy.mean(),
        "approx_kl": (ratio - 1 - log_ratio).mean(),  # Schulman 2020, "Approximating KL divergence"
        "clip_fraction": ((ratio - 1).abs() > epsilon).float().mean(),
    }


@dataclass(kw_only=True, eq=False)
class PPO(OnPolicy):
    """Proximal Policy Optimization; conf/algo/ppo.yaml explains each setting."""

    staleness: Staleness
    groups: int
    epochs: PositiveInt
    minibatch_size: PositiveInt
    adam_epsilon: PositiveFloat
    max_grad_norm: Annotated[float | None, POSITIVE_OR_NULL]
    advantage: Literal["gae", "vtrace"]
    gae_lambda: UnitFloat
    bootstrap_truncated: bool
    normalize_advantages: bool
    clip_coef: PositiveFloat
    clip_schedule: Schedule
    value_clip_coef: Annotated[float | None, POSITIVE_OR_NULL]
    target_kl: Annotated[float | None, POSITIVE_OR_NULL]
    normalize_observations: bool
    observe_first: bool
    observation_clip: PositiveFloat
    normalize_rewards: bool
    reward_clip: PositiveFloat
    encoder: EncoderChoice
    activation: Activation | None
    shared: bool
    lstm: bool
    initial_log_std: float
    device: str
    actor_device: str | None
    backend: Backend
    loss: str | None
    learners: Annotated[int, Range("must be between 1 and 64", low=1, high=64)]
    precision: Literal["float32", "bfloat16"]
    threads: PositiveInt
    frozen: Sequence[str]

    def __post_init__(self) -> None:
        self.check_schedule("clip_schedule", self.clip_schedule)
        require(
            not self.observe_first or self.normalize_observations,
            "observe_first=true needs normalize_observations=true",
        )
        network = ("encoder", "activation", "shared", "lstm", "initial_log_std")
        assembly = Assembly(
            network={name: getattr(self, name) for name in network},
            make_team=self._team,
            normalizes={"obs": self.normalize_observations, "rewards": self.normalize_rewards},
            observation_clip=self.observation_clip,
            staleness=self.staleness,
            groups=self.groups,
            device=self._check_actor_device(),
        )
        self.assemble(assembly)
        self._check_sizes()
        names = self.policy_group.names
        for name in self.frozen:
            known = name in names and not self.policy_group.single
            require(known, f"frozen: {name} is not one of several policies; {nearest(name, filter(None, names))}")
        require(not set(names) <= set(self.frozen), "frozen: no policy is trained; remove one of the names")

    def plan(self) -> Generator[dict[str, float], None, None]:
        """Collect a rollout and learn from it in every iteration; the state is complete at every yield."""
        with self.playing() as rollouts:
            for played in rollouts:  # one rollout per learning policy; usually there is one policy
                metrics: dict[str, float] = {}
                for policy, rollout in zip(self.learning, played, strict=True):
                    if policy.name in self.frozen:
                        continue
                    reward = policy.normalization.rewards(rollout, self.reward_clip)
                    metrics |= prefix_metrics(policy.name, self._learn(policy, rollout, reward))
                    policy.normalization.observe(rollout)
                yield self.end_iteration(played, metrics)
                self.count.clock.lap("loop")

    def _learn(self, policy: NormalizedLearner, rollout: Rollout, reward: NDArray[np.float32]) -> dict[str, float]:
        iteration, seen = self.iteration, policy.normalization.seen.count
        # The first rollouts were collected before observation statistics existed.
        unseen = self.observe_first and (iteration <= self.actors.staleness or seen == 0)
        if unseen or rollout.is_idle:
            return {}
        rate = self.anneal(self.learning_rate, self.learning_rate_schedule, self.count.step)
        clip = self.anneal(self.clip_coef, self.clip_schedule, self.count.step)
        weights, key = self.actors.newest[policy.number], (iteration, policy.number)
        metrics = policy.team.learn(rollout, reward, weights, key, rate, clip)
        return {
            **metrics,
            "ppo/learning_rate": rate,
            "ppo/clip": clip,
            "ppo/reward_scale": policy.normalization.reward_scale,
            "ppo/staleness": iteration - rollout.version,
        }

    def _update(
        self,
        learner: Learner,
        rollout: Rollout,
        reward: NDArray[np.float32],
        weights: Weights,
        key: tuple[int, int],
        rate: float,
        clip: float,
    ) -> dict[str, float]:
        """Compute advantages and run all epochs on one learner; read no state of the algorithm, only settings.

        `reward` [T, N] is normalized and clipped, `weights` hold the observation normalization, `key` seeds shuffling.
        """
        values = learner.evaluate_batch(rollout, weights)
        learned = rollout.learned_mask()
        check_values(values, learned)
        batch, stale_kl = self._batch(rollout, reward, learned, values)
        settings = LossSettings(
            clip, self.value_clip_coef, self.value_coef, self.entropy_coef, self.normalize_advantages
        )
        shuffle = keyed_generator(self.seed, Stream.SHUFFLE, *key)
        reports: list[Report] = []
        # All epochs run in one call unless `target_kl` may stop them early.
        at_once = self.epochs if self.target_kl is None else 1
        for _ in range(0, self.epochs, at_once):
            rows = [row for _ in range(at_once) for row in self._minibatches(rollout.reward.shape, learned, shuffle)]
            reports.append(learner.optimizer_step(values, batch, rows, settings, rate, self.max_grad_norm))
            if self.target_kl is not None and reports[-1].mean()["approx_kl"] > self.target_kl:
                break
        report = Report.join(reports)
        target, value = batch.pick(batch.target), batch.pick(batch.value)
        spread = float(target.var())
        return {
            **{f"ppo/{name}": value for name, value in report.mean().items()},
            "ppo/explained_variance": 1 - float((target - value).var()) / spread if spread > 0 else 0.0,
            "ppo/descents": len(report.values),
            "ppo/stale_kl": stale_kl,
        }

    def _minibatches(
        self, shape: tuple[int, ...], learned: NDArray[np.bool_] | None, shuffle: np.random.Generator
    ) -> Iterator[NDArray[np.int64]]:
        size, batch = self._sizes(*shape)
        if learned is None:
            yield from minibatches(size, batch, shuffle)
        else:
            kept = np.flatnonzero(learned.any(axis=0) if self.lstm else learned)
            yield from (kept[rows] for rows in minibatches(len(kept), batch, shuffle))

    def _sizes(self, T: int, N: int) -> tuple[int, int]:
        """Return the number of rows of a rollout and of a minibatch; a row is a step, or an environment with LSTM."""
        return (N, max(self.minibatch_size // T, 1)) if self.lstm else (T * N, self.minibatch_size)

    def _batch(
        self,
        rollout: Rollout,
        reward: NDArray[np.float32],
        learned: NDArray[np.bool_] | None,
        values: BatchValues,
    ) -> tuple[Batch, float]:
        """Return the training batch, and the KL divergence between the acting and the current policy."""
        value, following = values.value, values.next_value
        difference = values.logprob - rollout.logprob
        ratio = fast_exp(difference)
        over = rollout.terminated if self.bootstrap_truncated else rollout.terminated | rollout.truncated
        ends = over, rollout.truncated
        if self.advantage == "vtrace":
            target, advantage = vtrace(
                reward, value, following, *ends, self.gamma, self.gae_lambda, ratio, acts=rollout.acts
            )
        else:
            advantage = gae(reward, value, following, *ends, self.gamma, self.gae_lambda, rollout.acts)
            target = value + advantage
        batch = Batch(rollout.logprob, advantage, target, value, learned)
        return batch, float(batch.pick(ratio - 1 - difference).mean())

    def _team(self, architecture: Architecture, seed: int) -> Any:
        needs = needs_of_loss(self.loss) + ([f"algo.learners={self.learners}"] if self.learners > 1 else [])
        if is_dense(architecture, self.backend, self.device, self.precision, needs):
            learner = DenseLearner(architecture, seed, adam_epsilon=self.adam_epsilon, threads=self.threads)
            return SingleLearner(learner, self._update, self.device)
        # Import torch only if needed: it takes a second, and dense networks learn in C.
        from paddock.algos.learning.data_parallel import Learners, check_learners
        from paddock.algos.learning.torch_learner import TorchLearner, check_device

        check_device(self.device)
        check_learners(self.learners, self.device)
        settings = {name: getattr(self, name) for name in ("precision", "adam_epsilon", "threads")}
        make = functools.partial(TorchLearner, architecture, seed, choose_loss(self.loss, ppo_loss), **settings)
        return Learners(make, self._update, self.learners, self.device)

    def _check_actor_device(self) -> str:
        if self.actor_device is None:
            return self.device
        remedy = "set algo.rollouts=threads; all other rollouts act on the CPU"
        require(self.rollouts == "threads", f"actor_device={self.actor_device} needs actors in threads; {remedy}")
        if self.actor_device != "cpu":
            from paddock.algos.learning.torch_learner import check_device

            check_device(self.actor_device, "actor_device")
        return self.actor_device

    def _check_sizes(self) -> None:
        if not isinstance(self.learner, DenseLearner):
            check_thread_sharing(self.threads, self.rollouts, self.staleness, self.pool)
        envs = self.actors.num_rows // self.policy_group.rows_per_env
        rows_per_env = [spec.rows_per_env for spec in self.policy_group.specs]
        steps = self.num_steps * envs * max(rows_per_env)
        remedy = "reduce it, or increase algo.num_steps or vec.num_envs"
        what = f"minibatch_size={self.minibatch_size} is more than the {steps} steps of a rollout"
        require(self.minibatch_size <= steps, f"{what}; {remedy}")
        rows = min(self._sizes(self.num_steps, envs * min(rows_per_env)))
        require(
            self.learners <= rows,
            f"learners={self.learners} share minibatches of {rows} {'environments' if self.lstm else 'steps'}; "
            "increase minibatch_size, or use fewer learners",
        )

    def describe(self) -> dict[str, str]:
        """See `OnPolicy.describe`."""
        return {**super().describe(), "update": f"{self.epochs} epochs in minibatches of {self.minibatch_size:,}"}
