"""Parallelised Q-network (Gallici et al. 2024, arXiv:2407.04811): Q(lambda) from rollouts of many environments.

There is no replay and no target network: layer norm and many environments keep what is learned in bounds. Each rollout
is learned from in some epochs of shuffled minibatches, towards lambda-returns of the values that the network gave when
the rollout was there. It is Adam that descends, where the authors have its rectified form.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from algos.common.keys import Stream, keyed_generator
from algos.learning.flow import minibatches
from algos.learning.learner import is_dense
from algos.learning.offpolicy.exploration import EpsilonGreedy
from algos.learning.offpolicy.learners.learner import OffPolicyLearner
from algos.learning.offpolicy.learners.objectives import QObjective
from algos.learning.offpolicy.learners.q_learner import DenseQLearner
from algos.learning.offpolicy.learners.q_learning import one_choice
from algos.learning.offpolicy.operators import Turn, Update, report
from algos.learning.offpolicy.pace import Pace
from algos.learning.offpolicy.parts import POSITIVE_OR_NULL, OffPolicy
from algos.learning.replay.batch import Batch
from algos.learning.returns import gae
from algos.learning.rollouts.actors import check_shares
from algos.learning.rollouts.rollout import Rollout
from algos.networks.actor import make_actor
from algos.networks.architecture import Architecture
from algos.networks.heads import Head
from envs.errors import require
from envs.ranges import NonNegativeInt, PositiveFloat, PositiveInt, UnitFloat


@dataclass(kw_only=True, eq=False)
class PQN(OffPolicy):
    """The algorithm: its settings (conf/algo/pqn.yaml explains each), its parts, and its state."""

    group = "pqn"
    learns_values = True

    epochs: PositiveInt
    minibatch_size: PositiveInt
    q_lambda: UnitFloat
    reward_scale: PositiveFloat
    max_grad_norm: Annotated[float | None, POSITIVE_OR_NULL]
    layer_norm: bool
    epsilon_start: UnitFloat
    epsilon_end: UnitFloat
    epsilon_steps: NonNegativeInt

    def __post_init__(self) -> None:
        super().__post_init__()
        size, rows = self.minibatch_size, self.num_steps * self.num_rows
        fits = next(part for part in range(min(size, rows), 0, -1) if rows % part == 0)
        what = f"algo.minibatch_size={size} does not divide the {rows} steps of a rollout"
        require(rows % size == 0, f"{what}, algo.num_steps in each environment; try {fits}")
        self._values = make_actor(self.learner.architecture)

    def plan(self) -> Generator[dict[str, float], None, None]:
        """Act, learn of what was played: a row every `row_every` steps; the state is complete at every yield."""
        with self.playing() as rollouts:
            turns = self._learn(rollouts)
            for row, played in report(turns, self.pace, self.row_every, self.told, self.env.metrics):
                yield self.finish(row, played)
                self.pace.clock.lap("loop")

    def describe(self) -> dict[str, str]:
        """What a run would assemble, for `dry_run=true`."""
        rows = f"{self.num_steps} steps x {self.num_rows} environments = {self.num_steps * self.num_rows:,}"
        learned = f"{rows}, {self.epochs} epochs in minibatches of {self.minibatch_size:,}, on {self.device}"
        return {**super().describe(), "learner": learned}

    def _learn(self, rollouts: Iterator[Sequence[Rollout]]) -> Generator[Turn, None, None]:
        """Learn from each rollout, then let actors have the weights."""
        for (rollout,) in rollouts:
            target = self._targets(rollout)
            shuffle = keyed_generator(self.seed, Stream.SHUFFLE, self.pace.rollouts)
            updates = [self._update(rollout, target, shuffle) for _ in range(self.epochs)]
            self.publish()
            yield Turn([rollout], [updates])

    def _targets(self, rollout: Rollout) -> NDArray[np.float32]:
        """Lambda-returns [T, N] of the best actions' values, by the network as it is."""
        seen = rollout.seen
        self._values.load(self.learner.weights(0))
        scores, _ = self._values.act(seen, np.zeros((len(seen), 0), np.float32))
        value, following = rollout.values_of(scores.max(axis=1))
        ends = rollout.terminated, rollout.truncated
        reward = np.float32(self.reward_scale) * rollout.reward
        advantage = gae(reward, value, following, *ends, self.gamma, self.q_lambda)
        return (value + advantage).astype(np.float32, copy=False)

    def _update(self, rollout: Rollout, target: NDArray[np.float32], shuffle: np.random.Generator) -> Update:
        """Learn from all minibatches of one epoch."""
        ids = np.stack(list(minibatches(target.size, self.minibatch_size, shuffle)))
        obs = rollout.obs.reshape(target.size, *rollout.obs.shape[2:])[ids]
        action = rollout.action.reshape(target.size, -1)[ids]
        nothing, one = np.zeros(ids.shape, np.float32), np.ones(ids.shape, np.float32)
        # Discounted by 0, what follows counts for nothing: targets are known.
        batch = Batch(ids, obs, action, target.ravel()[ids], obs, nothing, one)
        reported, distance = self.learner.update(batch, self.rate)
        self.learning[0].pace.updates += len(reported)
        self.pace.clock.lap("learn")
        return Update(ids, reported, distance)

    def _head(self, actions: Space[Any]) -> Head:
        return one_choice(actions, self.group)

    def _exploration(self, rows: int) -> EpsilonGreedy:
        return EpsilonGreedy(0, self.epsilon_start, self.epsilon_end, self.epsilon_steps, ladder=0)

    def _pace(self, architecture: Architecture) -> Pace:
        return Pace(warmup=0, updates_per_step=Fraction(0), at_once=1)

    def _learner(self, architecture: Architecture, seed: int) -> OffPolicyLearner:
        objective = QObjective(double=False, huber=None, tau=0.0, target_every=1, max_grad_norm=self.max_grad_norm)
        settings: dict[str, Any] = {"adam_epsilon": self.adam_epsilon, "threads": self.threads}
        needs = ["algo.layer_norm=true"] if self.layer_norm else []
        if is_dense(architecture, self.backend, self.device, self.precision, compiled=False, needs=needs):
            return DenseQLearner(architecture, objective, seed, **settings)
        # Torch takes a second to import, and dense networks never need it.
        from algos.learning.offpolicy.learners.torch_q_learner import TorchQLearner

        check_shares(self.threads, self.rollouts, self.staleness, self.pool)
        settings |= {"device": self.device, "precision": self.precision}
        return TorchQLearner(architecture, objective, seed, **settings)

    @property
    def _normalizes_layers(self) -> bool:
        return self.layer_norm
