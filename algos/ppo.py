"""Proximal policy optimization (Schulman et al. 2017, arXiv:1707.06347), with the details of Huang et al. 2022.

A rollout of T steps in N environments, generalized advantages, some epochs of shuffled minibatches against the clipped
objective. Actors make rollouts here, ahead in a thread, or on the pool; the plan is the same.
"""

import functools
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from algos.common.keys import Stream, keyed_generator
from algos.common.timing import Clock
from algos.learning.async_evaluation import AsyncEvaluation
from algos.learning.episodes import Moments
from algos.learning.flow import minibatches
from algos.learning.learner import (
    Alone,
    Backend,
    Batch,
    BatchValues,
    DenseLearner,
    Learner,
    check_report,
    check_rollout,
    check_values,
    is_dense,
)
from algos.learning.normalize import Normalization
from algos.learning.returns import gae, vtrace
from algos.learning.rollouts.actors import Actors, Mode, Staleness, check_shares, rollout_times
from algos.learning.rollouts.collector import Fused, RolloutConfig, playable
from algos.learning.rollouts.rollout import Rollout, episode_metrics, world_metrics
from algos.networks.actor import ActorPolicy
from algos.networks.architecture import Architecture, Weights
from algos.networks.dense.shape import REPORTED, Surrogate
from algos.networks.flat import Activation
from algos.networks.heads import Gaussian, make_head
from algos.networks.initial import InitialPolicy
from algos.networks.inputs import seated, spaces_of
from algos.pool.protocol import Pool
from envs.errors import require
from envs.native.functions import quick_exp
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
    seat_feature: bool
    gaussian: Gaussian
    initial_log_std: float
    device: str
    backend: Backend
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
        self.env = playable(seated(self.env, self.seat_feature), self.vec)
        self.vec.check(self.env.in_training())
        observations, actions = spaces_of(self.env)
        architecture = Architecture.for_spaces(
            observations,
            make_head(actions, gaussian=self.gaussian),
            encoder=self.encoder,
            network=self.network,
            hidden=tuple(self.hidden),
            activation=self.activation,
            shared=self.shared,
            lstm=self.lstm,
            initial_log_std=self.initial_log_std,
        )
        self.team = self._team(architecture)
        self.learner: Learner = self.team.first
        config = RolloutConfig(self.env, self.vec, architecture, self.seed, self.num_steps, self.groups, self.fused)
        self.normalization = Normalization(
            self.vec.num_envs * (self.num_actors if self.rollouts == "actors" else 1) * self.env.seats,
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
        with (
            self.team.at_work(),
            closing(self.evaluation),
            closing(self.actors.rollouts()) as rollouts,
        ):
            clock = Clock()
            for rollout in rollouts:
                clock.lap("wait")
                metrics = self._learn(rollout)
                self.iteration += 1
                self.step += rollout.steps
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
                    **world_metrics(rollout, self.iteration),
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

    def initial_policy(self) -> InitialPolicy:
        """See `TakesPolicy`: the last policy."""
        return InitialPolicy.of(self.policy(), self.normalization.seen.count)

    def start_from(self, initial: InitialPolicy) -> None:
        """See `TakesPolicy`: all but the values."""
        clip = self.observation_clip if self.normalize_observations else None
        parameters = initial.into(self.learner.architecture, self.learner.parameters(), clip)
        self.learner.load_state_dict({**self.learner.state_dict(), "parameters": parameters})
        if initial.seen is not None:
            self.normalization.seen = Moments(*initial.seen)
        self.actors.begin(self._weights())

    def describe(self) -> dict[str, str]:
        """What a run would assemble, for `dry_run=true`."""
        architecture, actors = self.learner.architecture, self.actors
        sizes = "-".join(map(str, architecture.hidden))
        memory = " LSTM" if self.lstm else ""
        batch = actors.num_rows * self.num_steps
        seats = f" of {self.env.seats} agents" if self.env.seats > 1 else ""
        rows = "agents" if seats else "environments"
        where = {"inline": "in this process", "prefetch": "ahead in a thread", "actors": "on the pool"}[self.rollouts]
        return {
            "actors": f"{actors.num_actors} with {self.vec.num_envs} environments{seats} each, {where}, "
            f"{actors.staleness} updates behind",
            "learners": self.team.describe(),
            "devices": self.device,
            "rollout": f"{self.num_steps} steps x {actors.num_rows} {rows} = {batch:,}, "
            f"{self.epochs} epochs in minibatches of {min(self.minibatch_size, batch):,}",
            "policy": f"{architecture.encoder} {sizes} {self.activation}{memory}, "
            f"{len(self.learner.parameters()):,} parameters, {architecture.head.describe()} actions",
        }

    def _learn(self, rollout: Rollout) -> dict[str, float]:
        """Update the network by one rollout, on all learners."""
        progress = min(self.step / self.anneal_steps, 1.0) if self.anneal_steps else 0.0
        rate = self.learning_rate * (1 - progress)
        clip = self.clip_coef * (1 - progress) if self.anneal_clip else self.clip_coef
        check_rollout(rollout)
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
        learned = rollout.learned_from()
        check_values(values, learned)
        batch, stale_kl = self._batch(rollout, reward, learned, values)
        objective = Surrogate(clip, self.value_clip_coef, self.value_coef, self.entropy_coef, self.normalize_advantages)
        shuffle = keyed_generator(self.seed, Stream.SHUFFLE, iteration)
        reports: list[NDArray[np.float64]] = []
        # Nothing looks between the epochs unless they may end early.
        at_once = self.epochs if self.target_kl is None else 1
        for _ in range(0, self.epochs, at_once):
            rows = [row for _ in range(at_once) for row in self._minibatches(rollout.reward.shape, learned, shuffle)]
            reports.append(learner.descend(values, batch, rows, objective, rate, self.max_grad_norm))
            if self.target_kl is not None and float(reports[-1][:, 3].mean()) > self.target_kl:
                break
        report = np.concatenate(reports)
        check_report(report)
        target, value = batch.pick(batch.target), batch.pick(batch.value)
        spread = float(target.var())
        return {
            **{f"ppo/{name}": float(value) for name, value in zip(REPORTED, report.mean(axis=0), strict=True)},
            "ppo/explained_variance": 1 - float((target - value).var()) / spread if spread > 0 else 0.0,
            "ppo/descents": len(report),
            "ppo/stale_kl": stale_kl,
        }

    def _minibatches(
        self, shape: tuple[int, ...], learned: NDArray[np.bool_] | None, shuffle: np.random.Generator
    ) -> Iterator[NDArray[np.int64]]:
        """Shuffled parts of what is learned from, for one epoch."""
        size, batch = self._sizes(*shape)
        if learned is None:
            yield from minibatches(size, batch, shuffle)
        else:
            kept = np.flatnonzero(learned.any(axis=0) if self.lstm else learned)
            yield from (kept[part] for part in minibatches(len(kept), batch, shuffle))

    def _sizes(self, T: int, N: int) -> tuple[int, int]:
        """Rows of a rollout and of a minibatch: steps, or with an LSTM environments."""
        return (N, max(self.minibatch_size // T, 1)) if self.lstm else (T * N, self.minibatch_size)

    def _batch(
        self,
        rollout: Rollout,
        reward: NDArray[np.float32],
        learned: NDArray[np.bool_] | None,
        values: BatchValues,
    ) -> tuple[Batch, float]:
        """What is learned from, and the divergence of the policy now from the one that acted."""
        value, following = values.value, values.next_value
        difference = values.logprob - rollout.logprob
        ratio = quick_exp(difference)
        ends = rollout.terminated, rollout.truncated
        if self.advantage == "vtrace":
            target, advantage = vtrace(
                reward, value, following, *ends, self.gamma, self.gae_lambda, ratio, acts=rollout.acts
            )
        else:
            advantage = gae(reward, value, following, *ends, self.gamma, self.gae_lambda, rollout.acts)
            target = value + advantage
        batch = Batch(rollout.logprob, advantage, target, value, learned)
        return batch, float(batch.pick(ratio - 1 - difference).mean())

    def _team(self, architecture: Architecture) -> Any:
        """The learner, or several as one; see `Alone`."""
        if self.learners == 1 and is_dense(architecture, self.backend, self.device, self.precision, self.compiled):
            learner = DenseLearner(architecture, self.seed, adam_epsilon=self.adam_epsilon, threads=self.threads)
            return Alone(learner, self._update, self.device)
        # Torch takes a second to import, and dense networks never need it.
        from algos.learning.distributed import Learners, check_learners
        from algos.learning.torch_learner import TorchLearner, check_compiler, check_device

        require(self.backend != "dense", "backend=dense is for learners=1; use backend=auto")
        check_device(self.device)
        check_learners(self.learners, self.device)
        if self.compiled:
            check_compiler(self.device)
        settings = {name: getattr(self, name) for name in ("precision", "compiled", "adam_epsilon", "threads")}
        make = functools.partial(TorchLearner, architecture, self.seed, **settings)
        return Learners(make, self._update, self.learners, self.device)

    def _weights(self) -> Weights:
        normal = self.normalization
        return Weights(self.iteration, self.learner.parameters(), normal.mean, normal.std, self.observation_clip)

    def _check(self) -> None:
        check_fields(self)
        require(
            not self.anneal_clip or self.anneal_steps is not None,
            "anneal_clip=true needs anneal_steps=, the steps it falls over",
        )

    def _check_shares(self) -> None:
        if not isinstance(self.learner, DenseLearner):
            check_shares(self.threads, self.rollouts, self.staleness, self.pool)
        rows = min(self._sizes(self.num_steps, self.actors.num_rows))
        require(
            self.learners <= rows,
            f"learners={self.learners} share minibatches of {rows} {'environments' if self.lstm else 'steps'}; "
            "raise minibatch_size, or use fewer",
        )

    def __getstate__(self) -> dict[str, Any]:
        # To other learners only the settings go, which are all that an update reads.
        parts = ("env", "vec", "pool")
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name not in parts}
