"""Soft actor-critic (Haarnoja et al. 2018, arXiv:1812.05905), with the entropy's reward learned or given.

Of choices: Christodoulou 2019 (arXiv:1910.07207); with critics of quantiles, of which the greatest are dropped, TQC:
Kuznetsov et al. 2020 (arXiv:2005.04269).
"""

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Annotated, Any

from gymnasium import spaces

from paddock.algos.learning.offpolicy.exploration import OwnNoise
from paddock.algos.learning.offpolicy.from_replay import FromReplay, check_pairs, make_actor_critic
from paddock.algos.learning.offpolicy.learners.learner import OffPolicyLearner
from paddock.algos.learning.offpolicy.operators import concurrently, report, store
from paddock.algos.learning.offpolicy.parts import POSITIVE_OR_NULL
from paddock.algos.networks.architecture import Architecture
from paddock.algos.networks.dense.actor_critic import ActorCriticObjective, SoftPolicy
from paddock.algos.networks.heads import Head, LeafHead, make_head
from paddock.envs.errors import require
from paddock.envs.ranges import NonNegativeInt, PositiveFloat, PositiveInt, UnitFloat


@dataclass(kw_only=True, eq=False)
class SAC(FromReplay):
    """The algorithm: its settings (conf/algo/sac.yaml explains each), its parts, and its state."""

    group = "sac"

    tau: UnitFloat
    target_every: PositiveInt
    alpha: PositiveFloat
    learn_alpha: bool
    target_entropy: float | None
    target_entropy_scale: UnitFloat
    critics: PositiveInt
    quantiles: Annotated[int | None, POSITIVE_OR_NULL]
    drop: NonNegativeInt

    def plan(self) -> Generator[dict[str, float], None, None]:
        """Act, store, learn of what was stored: a row every `row_every` steps; the state is complete at every yield."""
        with self.playing() as rollouts:
            acting = store(rollouts, self.replays, self.pace)
            learning = [self.updates_of(*each) for each in zip(self.learning, self.replays, strict=True)]
            turns = concurrently(acting, learning, self.pace, self.publish)
            for row, played in report(turns, self.pace, self.row_every, self.told, self.env.metrics):
                yield self.finish(row, played)
                self.pace.clock.lap("loop")

    def _head(self, actions: spaces.Space[Any]) -> Head:
        choice = isinstance(actions, spaces.Discrete)
        return make_head(actions) if choice else LeafHead.for_replay(actions, "soft", "sac")

    def _exploration(self, rows: int) -> OwnNoise:
        return OwnNoise(self.warmup)

    def _learner(self, architecture: Architecture, seed: int) -> OffPolicyLearner:
        head, quantiles = architecture.head, self.quantiles
        if head.columns:
            require(not quantiles, f"algo.quantiles={quantiles} is for numbers; algo=dqn learns quantiles of choices")
            usual = self.target_entropy_scale * math.log(head.width)
        else:
            usual = -float(head.components)
        left = quantiles is None or self.drop < quantiles
        require(left, f"algo.drop={self.drop} leaves none of algo.quantiles={quantiles}; lower it")
        if quantiles:
            check_pairs(self, "quantiles", quantiles, self.critics * (quantiles - self.drop))
        policy = SoftPolicy(self.alpha, self.learn_alpha, usual if self.target_entropy is None else self.target_entropy)
        objective = ActorCriticObjective(policy, self.critics, self.tau, self.target_every, actor_every=1)
        needs = [f"algo.quantiles={quantiles}"] if quantiles else []
        needs += [f"algo.critics={self.critics}"] if self.critics > 2 else []
        return make_actor_critic(self, architecture, seed, objective, needs, quantiles=quantiles, drop=self.drop)
