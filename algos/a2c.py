"""Advantage actor-critic (Mnih et al. 2016, arXiv:1602.01783), synchronous: PPO's parts, composed more simply."""

from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np

from algos.common.timing import Clock
from algos.learning.async_evaluation import AsyncEvaluation
from algos.learning.learner import Batch, DenseLearner, Learner, check_report, check_rollout, check_values, is_dense
from algos.learning.returns import n_step
from algos.learning.rollouts.actors import Actors, Mode, rollout_times
from algos.learning.rollouts.collector import Fused, RolloutConfig, playable
from algos.learning.rollouts.rollout import Rollout, episode_metrics, world_metrics
from algos.networks.actor import ActorPolicy
from algos.networks.architecture import Architecture
from algos.networks.dense.shape import REPORTED, Surrogate
from algos.networks.heads import Gaussian, make_head
from algos.networks.initial import InitialPolicy
from algos.networks.inputs import seated, spaces_of
from algos.pool.protocol import Pool
from envs.ranges import POSITIVE, NonNegativeFloat, PositiveFloat, PositiveInt, UnitFloat, check_fields
from envs.spec import EnvSpec
from envs.vector import Vec

ADAM_EPSILON = 1e-5


@dataclass(kw_only=True, eq=False)
class A2C:
    """The algorithm: its settings (conf/algo/a2c.yaml explains each), its parts, and its state."""

    env: EnvSpec
    vec: Vec
    pool: Pool
    seed: int
    rollouts: Mode
    num_actors: PositiveInt
    num_steps: Annotated[int, POSITIVE]
    fused: Fused
    learning_rate: PositiveFloat
    max_grad_norm: PositiveFloat
    gamma: UnitFloat
    value_coef: NonNegativeFloat
    entropy_coef: NonNegativeFloat
    hidden: tuple[int, ...]
    network: Mapping[str, Any] | None
    seat_feature: bool
    gaussian: Gaussian
    eval_every: Annotated[int, POSITIVE]
    eval_episodes: Annotated[int, POSITIVE]
    eval_max_steps: Annotated[int, POSITIVE]

    iteration: int = field(init=False, default=0)
    step: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        check_fields(self)
        self.env = playable(seated(self.env, self.seat_feature), self.vec)
        self.vec.check(self.env.in_training())
        network: dict[str, Any] = {
            "encoder": "auto",
            "network": self.network,
            "activation": "tanh",
            "shared": False,
            "lstm": False,
            "initial_log_std": 0.0,
        }
        observations, actions = spaces_of(self.env)
        head = make_head(actions, gaussian=self.gaussian)
        architecture = Architecture.for_spaces(observations, head, hidden=tuple(self.hidden), **network)
        self.learner = self._make_learner(architecture)
        config = RolloutConfig(self.env, self.vec, architecture, self.seed, self.num_steps, groups=1, fused=self.fused)
        self.actors = Actors(config, self.pool, self.rollouts, self.num_actors, 0, self.learner.weights(0))
        first = self.learner.weights(0)
        self.evaluation = AsyncEvaluation(config, self.pool, self.eval_episodes, self.eval_max_steps, first)

    def plan(self) -> Generator[dict[str, float], None, None]:
        """One rollout and one step along its gradient an iteration, for ever."""
        with self.learner.at_work(), closing(self.evaluation), closing(self.actors.rollouts()) as rollouts:
            clock = Clock()
            for rollout in rollouts:
                clock.lap("wait")
                metrics = self._learn(rollout)
                self.iteration += 1
                self.step += rollout.steps
                self.actors.publish(self.learner.weights(self.iteration))
                clock.lap("learn")
                if self.iteration % self.eval_every == 0:
                    metrics |= self.evaluation.finish()
                    self.evaluation.start(self.actors.newest)
                clock.lap("eval_wait")
                metrics |= rollout_times(clock.read(), rollout, self.rollouts, self.actors.num_actors, self.pool)
                yield {
                    "iteration": self.iteration,
                    "step": self.step,
                    **world_metrics(rollout, self.iteration),
                    **episode_metrics(rollout, self.env.metrics),
                    **metrics,
                }
                clock.lap("loop")

    def state_dict(self) -> dict[str, Any]:
        """Everything that `plan` goes on from."""
        parts = {name: getattr(self, name).state_dict() for name in ("learner", "actors", "evaluation")}
        return {"iteration": self.iteration, "step": self.step, **parts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state."""
        self.iteration, self.step = int(state["iteration"]), int(state["step"])
        self.learner.load_state_dict(state["learner"])
        self.actors.load_state_dict(state["actors"], self.learner.weights(self.iteration))
        self.evaluation.load_state_dict(state["evaluation"])

    def evaluate_last(self) -> list[dict[str, float]]:
        """Return the evaluation under way, if there is one, and that of the newest weights."""
        return self.evaluation.finish_last(self.actors.newest)

    def policy(self) -> ActorPolicy:
        """The policy as it is now."""
        return ActorPolicy(self.learner.architecture, self.actors.newest)

    def initial_policy(self) -> InitialPolicy:
        """See `TakesPolicy`."""
        return InitialPolicy.of(self.policy())

    def start_from(self, initial: InitialPolicy) -> None:
        """See `TakesPolicy`: all but the values."""
        parameters = initial.into(self.learner.architecture, self.learner.parameters())
        self.learner.load_state_dict({**self.learner.state_dict(), "parameters": parameters})
        self.actors.begin(self.learner.weights(0))

    def _make_learner(self, architecture: Architecture) -> Learner:
        if is_dense(architecture, "auto", "cpu", "float32", compiled=False):
            return DenseLearner(architecture, self.seed, adam_epsilon=ADAM_EPSILON, threads=1)
        from algos.learning.torch_learner import TorchLearner  # a second to import, and dense networks never need it

        options: dict[str, Any] = {"device": "cpu", "precision": "float32", "compiled": False}
        return TorchLearner(architecture, self.seed, adam_epsilon=ADAM_EPSILON, **options)

    def _learn(self, rollout: Rollout) -> dict[str, float]:
        check_rollout(rollout)
        values, ends = self.learner.evaluate_batch(rollout, self.actors.newest), (rollout.terminated, rollout.truncated)
        learned = rollout.learned_from()
        check_values(values, learned)
        target = n_step(rollout.reward, values.next_value, *ends, self.gamma, rollout.acts)
        advantage = target - values.value
        # The gradient of the policy is that of PPO's surrogate where nothing has been learned yet: all ratios are 1.
        batch = Batch(values.logprob, advantage, target, values.value, learned)
        objective = Surrogate(np.inf, None, self.value_coef, self.entropy_coef, normalize_advantages=False)
        rows = [np.arange(rollout.reward.size) if learned is None else np.flatnonzero(learned)]
        report = self.learner.descend(values, batch, rows, objective, self.learning_rate, self.max_grad_norm)
        check_report(report)
        told = dict(zip(REPORTED, report[0].tolist(), strict=True))
        told["policy_loss"] = -float(batch.pick(advantage * values.logprob).mean())
        return {f"a2c/{name}": told[name] for name in ("policy_loss", "value_loss", "entropy", "gradient_norm")}
