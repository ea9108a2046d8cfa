"""Soft actor-critic (Haarnoja et al. 2018, arXiv:1812.05905), with the entropy's reward learned or given."""

from collections.abc import Generator
from dataclasses import dataclass

from algos.learning.offpolicy.exploration import OwnNoise
from algos.learning.offpolicy.learner import OffPolicyLearner
from algos.learning.offpolicy.operators import concurrently, replayed, report, store, train
from algos.learning.offpolicy.parts import OffPolicy, make_actor_critic
from algos.networks.architecture import Architecture
from algos.networks.dense.actor_critic import ActorCriticObjective, SoftPolicy
from algos.networks.heads import Head, LeafHead
from envs.ranges import PositiveFloat, PositiveInt, UnitFloat


@dataclass(kw_only=True, eq=False)
class SAC(OffPolicy):
    """The algorithm: its settings (conf/algo/sac.yaml explains each), its parts, and its state."""

    group = "sac"

    tau: UnitFloat
    target_every: PositiveInt
    alpha: PositiveFloat
    learn_alpha: bool
    target_entropy: float | None

    def plan(self) -> Generator[dict[str, float], None, None]:
        """Act, store, learn of what was stored: a row every `row_every` steps; the state is complete at every yield."""
        with self.playing() as rollouts:
            acting = store(rollouts, self.replay, self.pace)
            batches = replayed(self.replay, self.batch_size, self.pace)
            learning = train(batches, self.learner, self.pace, lambda: self.rate)
            turns = concurrently(acting, learning, self.pace, self.publish)
            for row, played in report(turns, self.pace, self.row_every, self.told, self.env.metrics):
                yield self.finish(row, played)
                self.pace.clock.lap("loop")

    def _head(self) -> Head:
        return LeafHead.for_replay(self.env.spaces[1], "soft", "sac")

    def _exploration(self, num_envs: int) -> OwnNoise:
        return OwnNoise(self.warmup)

    def _learner(self, architecture: Architecture) -> OffPolicyLearner:
        entropy = -float(architecture.head.components) if self.target_entropy is None else self.target_entropy
        policy = SoftPolicy(self.alpha, self.learn_alpha, entropy)
        objective = ActorCriticObjective(policy, 2, self.tau, self.target_every, actor_every=1)
        return make_actor_critic(self, architecture, objective)
