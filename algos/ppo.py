"""Proximal policy optimization (Schulman et al. 2017, arXiv:1707.06347), with the details of Huang et al. 2022.

A rollout of T steps in N environments, generalized advantages, some epochs of shuffled minibatches against the clipped
objective. Actors make rollouts here, ahead in a thread, or on the pool; the plan is the same.
"""

import functools
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor

from algos.common.keys import Stream, keyed_generator
from algos.common.timing import Clock
from algos.learning.async_evaluation import AsyncEvaluation
from algos.learning.collectors import Actors, Mode, Staleness, rollout_times
from algos.learning.distributed import Learners, check_learners
from algos.learning.flow import minibatches
from algos.learning.learner import BatchValues, Learner, check_compiler, check_device
from algos.learning.losses import ManualGradient, SurrogateLoss
from algos.learning.normalize import Normalization
from algos.learning.returns import gae, vtrace
from algos.learning.rollout import Fused, Rollout, RolloutConfig, episode_metrics, playable
from algos.networks.actor import ActorPolicy
from algos.networks.actor_critic import logprob_and_entropy
from algos.networks.architecture import Architecture, Weights
from algos.networks.flat import Activation
from algos.networks.heads import Gaussian, Head
from algos.pool.protocol import Pool
from envs.errors import require
from envs.ranges import NonNegativeFloat, PositiveFloat, PositiveInt, Range, UnitFloat, check_fields
from envs.spec import EnvSpec
from envs.vector import Vec

POSITIVE_OR_NULL = Range("must be positive, or null", above=0)


@dataclass(kw_only=True, eq=False)
class PPO:
    """The algorithm: its settings (conf/algo/ppo.yaml explains each), its parts, and its state."""

    env: EnvSpec
    vec: Vec
    pool: Pool
    seed: int
    rollouts: Mode
    num_actors: PositiveInt
    staleness: Staleness
    num_steps: PositiveInt
    groups: int
    fused: Fused
    epochs: PositiveInt
    minibatch_size: PositiveInt
    learning_rate: PositiveFloat
    anneal_steps: Annotated[int | None, POSITIVE_OR_NULL]
    adam_epsilon: PositiveFloat
    max_grad_norm: Annotated[float | None, POSITIVE_OR_NULL]
    gamma: UnitFloat
    advantage: Literal["gae", "vtrace"]
    gae_lambda: UnitFloat
    normalize_advantages: bool
    clip_coef: PositiveFloat
    anneal_clip: bool
    value_clip_coef: Annotated[float | None, POSITIVE_OR_NULL]
    target_kl: Annotated[float | None, POSITIVE_OR_NULL]
    value_coef: NonNegativeFloat
    entropy_coef: NonNegativeFloat
    normalize_observations: bool
    observation_clip: PositiveFloat
    normalize_rewards: bool
    reward_clip: PositiveFloat
    encoder: Literal["auto", "mlp", "cnn"]
    network: Mapping[str, Any] | None
    hidden: tuple[int, ...]
    activation: Activation
    shared: bool
    lstm: bool
    gaussian: Gaussian
    initial_log_std: float
    device: str
    learners: Annotated[int, Range("must be between 1 and 64", low=1, high=64)]
    precision: Literal["float32", "bfloat16"]
    compiled: bool
    threads: PositiveInt
    eval_every: PositiveInt
    eval_episodes: PositiveInt
    eval_max_steps: PositiveInt

    iteration: int = field(init=False, default=0)
    step: int = field(init=False, default=0)  # environment steps of all actors, evaluation not counted
    episodes: int = field(init=False, default=0)

    policy_names = ("last", "best")

    def __post_init__(self) -> None:
        self._check()
        self.env = playable(self.env, self.vec)
        self.vec.check(self.env.in_training())
        architecture = Architecture.for_spaces(
            self.env.observations,
            Head.of(self.env.spaces[1], gaussian=self.gaussian),
            encoder=self.encoder,
            network=self.network,
            hidden=tuple(self.hidden),
            activation=self.activation,
            shared=self.shared,
            lstm=self.lstm,
            initial_log_std=self.initial_log_std,
        )
        make = functools.partial(
            Learner,
            architecture,
            self.seed,
            precision=self.precision,
            compiled=self.compiled,
            adam_epsilon=self.adam_epsilon,
        )
        self.team = Learners(make, self._update, self.learners, self.device, self.threads)
        self.learner = self.team.first
        config = RolloutConfig(self.env, self.vec, architecture, self.seed, self.num_steps, self.groups, self.fused)
        self.normalization = Normalization(
            self.vec.num_envs * (self.num_actors if self.rollouts == "actors" else 1),
            architecture.inputs,
            self.gamma,
            obs=self.normalize_observations,
            rewards=self.normalize_rewards,
        )
        self.actors = Actors(config, self.pool, self.rollouts, self.num_actors, self.staleness, self._weights())
        self._check_shares()
        self.evaluation = AsyncEvaluation(
            config, self.pool, self.eval_episodes, self.eval_max_steps, self.actors.newest
        )

    @property
    def plays_on_pool(self) -> bool:
        """Whether the environments step on the pool's workers, and not in this process."""
        return self.rollouts == "actors"

    def plan(self) -> Generator[dict[str, float], None, None]:
        """One rollout and its update an iteration, for ever; the state is complete at every yield."""
        torch.set_num_threads(self.threads)
        with (
            threadpool_limits(self.threads),
            self.team.at_work(),
            closing(self.evaluation),
            closing(self.actors.rollouts()) as rollouts,
        ):
            clock = Clock()
            for rollout in rollouts:
                clock.lap("wait")
                metrics = self._learn(rollout)
                self.iteration += 1
                self.step += rollout.reward.size
                self.episodes += len(rollout.returns)
                self.normalization.observe(rollout)
                self.actors.publish(self._weights())
                clock.lap("learn")
                if self.iteration % self.eval_every == 0:
                    metrics |= self.evaluation.finish()
                    self.evaluation.start(self.actors.newest)
                clock.lap("eval_wait")
                yield {
                    "iteration": self.iteration,
                    "step": self.step,
                    "train/episodes": self.episodes,
                    **episode_metrics(rollout, self.env.metrics),
                    **metrics,
                    **rollout_times(clock.read(), rollout, self.rollouts, self.actors.num_actors, self.pool),
                }
                clock.lap("loop")

    def state_dict(self) -> dict[str, Any]:
        """Everything that `plan` goes on from: arrays and plain data."""
        return {
            "iteration": self.iteration,
            "step": self.step,
            "episodes": self.episodes,
            "learner": self.learner.state_dict(),
            "normalization": self.normalization.state_dict(),
            "actors": self.actors.state_dict(),
            "evaluation": self.evaluation.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state; shapes have been compared with `state_dict()` by the checkpoint."""
        self.iteration, self.step, self.episodes = (int(state[name]) for name in ("iteration", "step", "episodes"))
        self.learner.load_state_dict(state["learner"])
        self.normalization.load_state_dict(state["normalization"])
        self.actors.load_state_dict(state["actors"], self._weights())
        self.evaluation.load_state_dict(state["evaluation"])

    def evaluate_last(self) -> list[dict[str, float]]:
        """Return the evaluation under way, if there is one, and that of the newest weights."""
        return self.evaluation.finish_last(self.actors.newest)

    def policy_iteration(self, which: str) -> int:
        """Return the iteration that a policy is of."""
        return self.evaluation.best.version if which == "best" else self.iteration

    def policy(self, which: Literal["last", "best"] = "last") -> ActorPolicy:
        """The policy: the last one, or the best that an evaluation met.

        Raises:
            ConfigError: the best is asked for before the first evaluation has ended.
        """
        met = which == "last" or self.evaluation.best_return > float("-inf")
        require(met, "which=best is not known before the first evaluation; use which=last")
        weights = self._weights() if which == "last" else self.evaluation.best
        return ActorPolicy(self.learner.architecture, weights)

    def describe(self) -> dict[str, str]:
        """What a run would assemble, for `dry_run=true`."""
        architecture, actors = self.learner.architecture, self.actors
        sizes = "-".join(map(str, architecture.hidden))
        memory = " LSTM" if self.lstm else ""
        batch = actors.num_envs * self.num_steps
        where = {"inline": "in this process", "prefetch": "ahead in a thread", "actors": "on the pool"}[self.rollouts]
        return {
            "actors": f"{actors.num_actors} with {self.vec.num_envs} environments each, {where}, "
            f"{actors.staleness} updates behind",
            "learners": self.team.describe(),
            "devices": self.device,
            "rollout": f"{self.num_steps} steps x {actors.num_envs} environments = {batch:,}, "
            f"{self.epochs} epochs in minibatches of {min(self.minibatch_size, batch):,}",
            "policy": f"{architecture.encoder} {sizes} {self.activation}{memory}, "
            f"{len(self.learner.theta):,} parameters, {architecture.head.describe()} actions",
        }

    def _learn(self, rollout: Rollout) -> dict[str, float]:
        """Update the network by one rollout, on all learners."""
        progress = min(self.step / self.anneal_steps, 1.0) if self.anneal_steps else 0.0
        rate = self.learning_rate * (1 - progress)
        clip = self.clip_coef * (1 - progress) if self.anneal_clip else self.clip_coef
        reward = self.normalization.rewards(rollout, self.reward_clip)
        metrics = self.team.learn(rollout, reward, self.actors.newest, self.iteration, rate, clip)
        return {
            **metrics,
            "ppo/learning_rate": rate,
            "ppo/clip": clip,
            "ppo/reward_scale": self.normalization.reward_scale,
            "ppo/staleness": self.iteration - rollout.version,
        }

    def _update(
        self,
        learner: Learner,
        rollout: Rollout,
        reward: NDArray[np.float32],
        weights: Weights,
        iteration: int,
        rate: float,
        clip: float,
    ) -> dict[str, float]:
        """What each learner does with a rollout; uses no more of this object than its settings."""
        values = learner.evaluate_batch(rollout, weights)
        batch = self._batch(learner, rollout, reward, values)
        shuffle = keyed_generator(self.seed, Stream.SHUFFLE, iteration)
        reports: list[Tensor] = []
        norms: list[Tensor] = []
        manual = self._manual_gradient(learner, values, batch, clip)
        for _ in range(self.epochs):
            parts = []
            for rows in minibatches(*self._sizes(*rollout.reward.shape), shuffle):
                if manual is not None:
                    parts.append(torch.tensor(manual.fill(rows)))
                    norms.append(learner.apply_gradient(rate, self.max_grad_norm))
                    continue
                loss, report = self._loss(learner, values, batch, rows, clip)
                norms.append(learner.apply_loss(loss, rate, self.max_grad_norm))
                parts.append(torch.stack(report).detach())
            reports.append(torch.stack(parts))
            learner.context.all_reduce(reports[-1])
            if self.target_kl is not None and float(reports[-1][:, 3].mean()) > self.target_kl:
                break
        means = torch.column_stack([torch.cat(reports), torch.stack(norms)]).mean(0).tolist()
        names = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "gradient_norm")
        target = batch.target.cpu().numpy()
        spread = float(target.var())
        return {
            **{f"ppo/{name}": value for name, value in zip(names, means, strict=True)},
            "ppo/explained_variance": 1 - float((target - values.value).var()) / spread if spread > 0 else 0.0,
            "ppo/descents": len(norms),
            "ppo/stale_kl": batch.stale_kl,
        }

    def _sizes(self, T: int, N: int) -> tuple[int, int]:
        """Rows of a rollout and of a minibatch: steps, or with an LSTM environments."""
        return (N, max(self.minibatch_size // T, 1)) if self.lstm else (T * N, self.minibatch_size)

    def _batch(self, learner: Learner, rollout: Rollout, reward: NDArray[np.float32], values: BatchValues) -> "Batch":
        value, following = values.value, values.next_value
        old = torch.from_numpy(rollout.logprob).to(learner.device)
        flat = values.out.flatten(0, 1), learner.network.log_std.detach(), values.action.flatten(0, 1)
        now, _ = logprob_and_entropy(learner.architecture.head, *flat)
        difference = now.view_as(old) - old
        ends = rollout.terminated, rollout.truncated
        if self.advantage == "vtrace":
            ratio = difference.exp().cpu().numpy()
            target, advantage = vtrace(reward, value, following, *ends, self.gamma, self.gae_lambda, ratio)
        else:
            advantage = gae(reward, value, following, *ends, self.gamma, self.gae_lambda)
            target = value + advantage
        return Batch(
            logprob=old,
            advantage=torch.from_numpy(advantage).to(learner.device),
            target=torch.from_numpy(target).to(learner.device),
            value=torch.from_numpy(value).to(learner.device),
            stale_kl=float((difference.exp() - 1 - difference).mean()),
        )

    def _manual_gradient(
        self, learner: Learner, values: BatchValues, batch: "Batch", clip: float
    ) -> ManualGradient | None:
        """What does the work of `_loss` without torch, where the network is one that torch is slow for."""
        if learner.dense is None:
            return None
        surrogate = SurrogateLoss(
            learner.architecture.head,
            clip,
            self.value_clip_coef,
            self.value_coef,
            self.entropy_coef,
            self.normalize_advantages,
        )
        return ManualGradient(
            surrogate, learner.dense, values, [batch.logprob, batch.advantage, batch.target, batch.value]
        )

    def _loss(
        self, learner: Learner, values: BatchValues, batch: "Batch", minibatch: NDArray[np.int64], clip: float
    ) -> tuple[Tensor, list[Tensor]]:
        """This learner's part of a minibatch's loss and of what is reported of it; both add up over learners.

        Reported are losses, entropy, divergence and clipped share.
        """
        pick = learner.pick
        everyone = torch.from_numpy(minibatch).to(learner.device)
        rows = torch.from_numpy(learner.context.share(minibatch)).to(learner.device)
        out, value = learner.outputs(values, rows)
        action = pick(values.action, rows)
        logprob, entropy = logprob_and_entropy(learner.architecture.head, out, learner.network.log_std, action)
        difference = logprob - pick(batch.logprob, rows)
        ratio = difference.exp()
        advantage, all_advantages = pick(batch.advantage, rows), pick(batch.advantage, everyone)
        count = len(all_advantages)
        if self.normalize_advantages and count > 1:
            advantage = (advantage - all_advantages.mean()) / (all_advantages.std() + 1e-8)
        policy_loss = -torch.min(advantage * ratio, advantage * ratio.clamp(1 - clip, 1 + clip)).sum() / count
        target = pick(batch.target, rows)
        errors = (value - target) ** 2
        if self.value_clip_coef is not None:
            before = pick(batch.value, rows)
            clipped = before + (value - before).clamp(-self.value_clip_coef, self.value_clip_coef)
            errors = torch.max(errors, (clipped - target) ** 2)
        value_loss = 0.5 * errors.sum() / count
        spread = entropy.sum() / count
        loss = policy_loss + self.value_coef * value_loss - self.entropy_coef * spread
        with torch.no_grad():
            divergence = (ratio - 1 - difference).sum() / count  # Schulman 2020, "Approximating KL divergence"
            clipped_share = ((ratio - 1).abs() > clip).float().sum() / count
        return loss, [policy_loss, value_loss, spread, divergence, clipped_share]

    def _weights(self) -> Weights:
        normal = self.normalization
        return Weights(self.iteration, self.learner.parameters(), normal.mean, normal.std, self.observation_clip)

    def _check(self) -> None:
        check_fields(self)
        ahead = self.rollouts == "prefetch" or (self.rollouts == "actors" and self.staleness > 0)
        shared = f"threads={self.threads}: what plays ahead (rollouts={self.rollouts}) and what learns would share them"
        alone = self.threads == 1 or not (ahead and self.pool.in_process)
        require(alone, f"{shared} in one process, by chance; use threads=1, rollouts=inline or compute=local")
        require(
            not self.anneal_clip or self.anneal_steps is not None,
            "anneal_clip=true needs anneal_steps=, the steps it falls over",
        )
        check_device(self.device)
        check_learners(self.learners, self.device)
        if self.compiled:
            check_compiler(self.device)

    def _check_shares(self) -> None:
        rows = min(self._sizes(self.num_steps, self.actors.num_envs))
        require(
            self.learners <= rows,
            f"learners={self.learners} share minibatches of {rows} {'environments' if self.lstm else 'steps'}; "
            "raise minibatch_size, or use fewer",
        )

    def __getstate__(self) -> dict[str, Any]:
        # To other learners only the settings go, which are all that an update reads.
        parts = ("env", "vec", "pool")
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name not in parts}


@dataclass(frozen=True)
class Batch:
    """What a rollout is learned from, [T, N] each."""

    logprob: Tensor  # of the actions when they were taken
    advantage: Tensor
    target: Tensor  # of the values
    value: Tensor  # before the update
    stale_kl: float  # divergence of the policy now from the one that acted
