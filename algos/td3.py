"""Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018, arXiv:1802.09477), and DDPG by its keys.

DDPG (Lillicrap et al. 2016, arXiv:1509.02971) is one critic, an actor that moves with every update, and no noise on
targets: conf/algo/ddpg.yaml.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated, Any

from gymnasium import Space

from paddock.algos.learning.offpolicy.exploration import AddedNoise
from paddock.algos.learning.offpolicy.from_replay import FromReplay, make_actor_critic
from paddock.algos.learning.offpolicy.learners.learner import OffPolicyLearner
from paddock.algos.learning.offpolicy.operators import concurrently, report, store
from paddock.algos.networks.architecture import Architecture
from paddock.algos.networks.dense.actor_critic import ActorCriticObjective, DeterministicPolicy
from paddock.algos.networks.heads import Head, LeafHead
from paddock.envs.ranges import NonNegativeFloat, PositiveInt, Range, UnitFloat


@dataclass(kw_only=True, eq=False)
class TD3(FromReplay):
    """The algorithm: its settings (conf/algo/td3.yaml explains each), its parts, and its state."""

    group = "td3"

    tau: UnitFloat
    actor_every: PositiveInt
    critics: Annotated[int, Range("must be 1 or 2", low=1, high=2)]
    sigma: NonNegativeFloat
    target_noise: NonNegativeFloat
    target_noise_clip: NonNegativeFloat

    def plan(self) -> Generator[dict[str, float], None, None]:
        """Act, store, learn of what was stored: a row every `row_every` steps; the state is complete at every yield."""
        with self.playing() as rollouts:
            acting = store(rollouts, self.replays, self.pace)
            learning = [self.updates_of(*each) for each in zip(self.learning, self.replays, strict=True)]
            turns = concurrently(acting, learning, self.pace, self.publish)
            for row, played in report(turns, self.pace, self.row_every, self.told, self.env.metrics):
                yield self.finish(row, played)
                self.pace.clock.lap("loop")

    def _head(self, actions: Space[Any]) -> Head:
        return LeafHead.for_replay(actions, "tanh", "td3")

    def _exploration(self, rows: int) -> AddedNoise:
        return AddedNoise(self.warmup, self.sigma)

    def _learner(self, architecture: Architecture, seed: int) -> OffPolicyLearner:
        policy = DeterministicPolicy(self.target_noise, self.target_noise_clip)
        objective = ActorCriticObjective(policy, self.critics, self.tau, self.actor_every, self.actor_every)
        return make_actor_critic(self, architecture, seed, objective)
