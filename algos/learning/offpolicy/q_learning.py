"""Settings shared by DQN and R2D2: a discrete action, epsilon-greedy exploration, priorities, and the loss."""

from dataclasses import dataclass
from typing import Annotated, Any

from gymnasium import Space

from paddock.algos.learning.offpolicy.exploration import EpsilonGreedy
from paddock.algos.learning.offpolicy.from_replay import FromReplay
from paddock.algos.learning.offpolicy.learners.objectives import QObjective
from paddock.algos.learning.offpolicy.off_policy import POSITIVE_OR_NULL
from paddock.algos.learning.replay.priorities import Priorities
from paddock.algos.networks.heads import Head, make_head
from paddock.envs.errors import require
from paddock.envs.ranges import NonNegativeInt, PositiveInt, UnitFloat


@dataclass(kw_only=True, eq=False)
class QLearning(FromReplay):
    """Base of DQN and R2D2; conf/algo/dqn.yaml documents the settings."""

    double: bool
    dueling: bool
    huber: Annotated[float | None, POSITIVE_OR_NULL]
    target_every: PositiveInt
    tau: UnitFloat
    max_grad_norm: Annotated[float | None, POSITIVE_OR_NULL]
    priority_exponent: UnitFloat
    importance_exponent: UnitFloat
    importance_updates: NonNegativeInt
    epsilon_start: UnitFloat
    epsilon_end: UnitFloat
    epsilon_steps: NonNegativeInt
    epsilon_ladder: bool

    @property
    def objective(self) -> QObjective:
        """Settings of the loss."""
        return QObjective(self.double, self.huber, self.tau, self.target_every, self.max_grad_norm)

    def exploration(self, rows: int) -> EpsilonGreedy:
        """Return the exploration of a policy that acts in `rows` environments."""
        ladder = rows if self.epsilon_ladder else 0
        return EpsilonGreedy(self.learning_starts, self.epsilon_start, self.epsilon_end, self.epsilon_steps, ladder)

    @property
    def priorities(self) -> Priorities | None:
        """Prioritized sampling; None: uniform."""
        if not self.priority_exponent:
            return None
        beta, updates = self.importance_exponent, self.importance_updates
        end = 1.0 if updates else beta
        return Priorities(alpha=self.priority_exponent, beta=beta, beta_end=end, beta_updates=max(updates, 1))


def make_discrete_head(actions: Space[Any]) -> Head:
    """Return the head of a discrete action space; raise ConfigError for other spaces."""
    head = make_head(actions)
    one = len(head.leaves) == 1 and len(head.leaves[0].sizes) == 1
    others = "algo=sac and algo=td3 support continuous actions, algo=ppo every kind"
    require(one, f"the algorithm needs a discrete action space, not {actions}; {others}")
    return head
