"""Settings and methods shared by on-policy and off-policy algorithms."""

import abc
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from paddock.algos.learning.async_evaluation import AsyncEvaluation
from paddock.algos.learning.policy import Policy
from paddock.algos.learning.rollouts.actors import Actors, Mode
from paddock.algos.learning.rollouts.config import Fused
from paddock.algos.multiagent.policies import PolicyGroup
from paddock.algos.networks.architecture import Layers, Weights
from paddock.algos.networks.flat import HiddenSizes
from paddock.algos.pool.protocol import Pool
from paddock.envs.errors import require
from paddock.envs.ranges import PositiveFloat, PositiveInt, UnitFloat
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Vec

Schedule = Literal["constant", "linear"]  # linear falls to 0 over budget.steps


@dataclass(kw_only=True, eq=False)
class RolloutAlgorithm(abc.ABC):
    """Base of algorithms that learn from rollouts; conf/algo/ppo.yaml and dqn.yaml document the settings."""

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
    total_steps: int | None = None  # budget.steps, over which linear schedules fall
    custom_encoder: Mapping[str, Any] | None
    hidden_sizes: HiddenSizes | None
    agent_id_feature: bool
    policies: Mapping[str, Any] | None
    eval_episodes: PositiveInt
    eval_max_steps: PositiveInt

    learning: list[Any] = field(init=False)  # learner of each policy
    policy_group: PolicyGroup = field(init=False)
    actors: Actors = field(init=False)
    evaluation: AsyncEvaluation = field(init=False)

    policy_names = ("last", "best")
    default_layers: ClassVar[Layers] = ((64, 64), "tanh")  # except after convolutions

    def anneal(self, value: float, schedule: Schedule, step: int) -> float:
        """Return a setting's value at an environment step; a linear schedule falls to 0 over `total_steps`."""
        return value if schedule == "constant" else value * (1 - min(step / (self.total_steps or 1), 1.0))

    def check_schedule(self, key: str, schedule: Schedule) -> None:
        """Raise ConfigError for a linear schedule without a budget of steps."""
        known = schedule == "constant" or self.total_steps is not None
        require(known, f"algo.{key}=linear needs a budget; set budget.steps=...")

    @property
    def plays_on_pool(self) -> bool:
        """True if environments step on the pool's workers."""
        return self.rollouts == "actors"

    @abc.abstractmethod
    def weights(self) -> list[Weights]:
        """Return the current weights of each policy."""

    def interrupt(self) -> None:
        """See `WaitsForEvaluations`."""
        self.evaluation.interrupts.request()

    def evaluate_last(self) -> list[dict[str, float]]:
        """Return the pending evaluation, if any, and that of the newest weights."""
        return self.evaluation.finish_last(*self.weights())

    def policy_iteration(self, which: str) -> int:
        """Return the iteration of a policy."""
        return (self.evaluation.best if which == "best" else self.weights())[0].version

    def policy(self, which: Literal["last", "best"] = "last") -> Policy:
        """Return the last policy or the best evaluated one, if any; several are combined into a joint policy."""
        return self.evaluation.policy(which, *self.weights())

    def evaluated_policy(self) -> tuple[Policy, int]:
        """See `EvaluatesConcurrently`."""
        return self.evaluation.evaluated_policy()
