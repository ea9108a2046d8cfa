"""What on-policy and off-policy algorithms share: settings, and what a run and the commands ask of their policies."""

import abc
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from paddock.algos.learning.async_evaluation import AsyncEvaluation
from paddock.algos.learning.policy import Policy
from paddock.algos.learning.rollouts.actors import Actors, Mode
from paddock.algos.learning.rollouts.config import Fused
from paddock.algos.multiagent.policies import PolicyGroup
from paddock.algos.networks.architecture import Weights
from paddock.algos.pool.protocol import Pool
from paddock.envs.errors import require
from paddock.envs.ranges import PositiveFloat, PositiveInt, UnitFloat
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Vec

Schedule = Literal["constant", "linear"]  # of a setting; linear: it falls to 0 over the budget


@dataclass(kw_only=True, eq=False)
class RolloutAlgorithm(abc.ABC):
    """Settings that mean the same in all (conf/algo/ppo.yaml and dqn.yaml explain each), and evaluation."""

    env: EnvSpec
    vec: Vec
    pool: Pool
    seed: int
    rollouts: Mode
    num_actors: PositiveInt
    num_steps: PositiveInt
    fused: Fused
    gamma: UnitFloat
    learning_rate: PositiveFloat
    learning_rate_schedule: Schedule
    total_steps: int | None  # budget.steps, over which linear schedules fall
    custom_encoder: Mapping[str, Any] | None
    hidden_sizes: tuple[int, ...]
    agent_id_feature: bool
    policies: Mapping[str, Any] | None
    eval_episodes: PositiveInt
    eval_max_steps: PositiveInt

    learning: list[Any] = field(init=False)  # of each policy what learns it
    policy_group: PolicyGroup = field(init=False)
    actors: Actors = field(init=False)
    evaluation: AsyncEvaluation = field(init=False)

    policy_names = ("last", "best")

    def anneal(self, value: float, schedule: Schedule, step: int) -> float:
        """Return what a setting is at an environment step: a linear schedule falls to 0 over `total_steps`."""
        return value if schedule == "constant" else value * (1 - min(step / (self.total_steps or 1), 1.0))

    def check_schedule(self, key: str, schedule: Schedule) -> None:
        """Raise ConfigError for a linear schedule of a run without a budget of steps."""
        known = schedule == "constant" or self.total_steps is not None
        require(known, f"algo.{key}=linear falls to 0 over budget.steps, which is not set; set budget.steps=")

    @property
    def plays_on_pool(self) -> bool:
        """Whether the environments step on the pool's workers, and not in this process."""
        return self.rollouts == "actors"

    @abc.abstractmethod
    def weights(self) -> list[Weights]:
        """Return each policy as it is now."""

    def interrupt(self) -> None:
        """See `WaitsForEvaluations`."""
        self.evaluation.interrupts.ask()

    def evaluate_last(self) -> list[dict[str, float]]:
        """Return the evaluation under way, if there is one, and that of the newest weights."""
        return self.evaluation.finish_last(*self.weights())

    def policy_iteration(self, which: str) -> int:
        """Return the iteration that a policy is of."""
        return (self.evaluation.best if which == "best" else self.weights())[0].version

    def policy(self, which: Literal["last", "best"] = "last") -> Policy:
        """Return the last policy, or the best that an evaluation met; several act as one.

        Raises:
            ConfigError: the best is asked for before the first evaluation has ended.
        """
        return self.evaluation.policy(which, *self.weights())

    def evaluated_policy(self) -> tuple[Policy, int]:
        """See `EvaluatesConcurrently`."""
        return self.evaluation.evaluated_policy()
