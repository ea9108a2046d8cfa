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

from paddock.algos.common.keys import Stream, keyed_generator
from paddock.algos.learning.flow import minibatches
from paddock.algos.learning.learner import check_turns, is_dense
from paddock.algos.learning.offpolicy.exploration import EpsilonGreedy
from paddock.algos.learning.offpolicy.learners.learner import OffPolicyLearner
from paddock.algos.learning.offpolicy.learners.objectives import QObjective
from paddock.algos.learning.offpolicy.learners.q_learner import DenseQLearner
from paddock.algos.learning.offpolicy.learners.q_learning import one_choice
from paddock.algos.learning.offpolicy.operators import Turn, Update, report
from paddock.algos.learning.offpolicy.pace import Pace
from paddock.algos.learning.offpolicy.parts import POSITIVE_OR_NULL, OffPolicy
from paddock.algos.learning.replay.batch import Batch
from paddock.algos.learning.returns import gae
from paddock.algos.learning.rollouts.actors import check_shares
from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.algos.networks.actor import make_actor
from paddock.algos.networks.architecture import Architecture
from paddock.algos.networks.heads import Head
from paddock.envs.errors import require
from paddock.envs.ranges import NonNegativeInt, PositiveFloat, PositiveInt, UnitFloat


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
        if not self._waits:  # how many turns come to their end is chance, and the last minibatch has what is left
            size, rows = self.minibatch_size, self.num_steps * self.num_rows
            fits = next(part for part in range(min(size, rows), 0, -1) if rows % part == 0)
            what = f"algo.minibatch_size={size} does not divide the {rows} steps of a rollout"
            require(rows % size == 0, f"{what}, algo.num_steps in each environment; try {fits}")
        self._values = [make_actor(one.learner.architecture) for one in self.learning]

    def plan(self) -> Generator[dict[str, float], None, None]:
        """Act, learn of what was played: a row every `row_every` steps; the state is complete at every yield."""
        with self.playing() as rollouts:
            turns = self._learn(rollouts)
            for row, played in report(turns, self.pace, self.row_every, self.told, self.env.metrics):
                yield self.finish(row, played)
                self.pace.clock.lap("loop")

    def describe(self) -> dict[str, str]:
        """What a run would assemble, for `dry_run=true`."""
        whom = "agents" if self._waits else "environments"
        rows = f"{self.num_steps} steps x {self.num_rows} {whom} = {self.num_steps * self.num_rows:,}"
        learned = f"{rows}, {self.epochs} epochs in minibatches of {self.minibatch_size:,}, on {self.device}"
        return {**super().describe(), "learner": learned}

    def _learn(self, rollouts: Iterator[Sequence[Rollout]]) -> Generator[Turn, None, None]:
        """Let each policy learn from each of its rollouts, then let actors have the weights."""
        for each in rollouts:
            check_turns(each, self.pace.rollouts - 1)
            updates = [self._updates(k, rollout) for k, rollout in enumerate(each)]
            self.publish()
            yield Turn(each, updates)

    def _updates(self, k: int, rollout: Rollout) -> list[Update]:
        """Learn from a policy's rollout: of agents who wait and die, from the turns that came to their end."""
        learned = rollout.learned_from()
        rows = np.arange(rollout.reward.size) if learned is None else np.flatnonzero(learned)
        target, shuffle = self._targets(rollout, k), keyed_generator(self.seed, Stream.SHUFFLE, self.pace.rollouts, k)
        parts = [part for _ in range(self.epochs) for part in self._epoch(rows, shuffle)]
        return [self._update(k, rollout, target, ids) for ids in parts]

    def _epoch(self, rows: NDArray[np.intp], shuffle: np.random.Generator) -> Iterator[NDArray[np.intp]]:
        """Shuffle rows into minibatches [U, B]; those that fill none are one of their own, [1, B]."""
        parts = [rows[part] for part in minibatches(len(rows), self.minibatch_size, shuffle)]
        whole = len(rows) // self.minibatch_size
        for some in (parts[:whole], parts[whole:]):
            if some:
                yield np.stack(some)

    def _targets(self, rollout: Rollout, k: int = 0) -> NDArray[np.float32]:
        """Lambda-returns [T, N] of the best actions' values, by a policy's network as it is."""
        seen, values = rollout.seen, self._values[k]
        values.load(self.learning[k].learner.weights(0))
        scores, _ = values.act(seen, np.zeros((len(seen), 0), np.float32))
        value, following = rollout.values_of(scores.max(axis=1))
        ends = rollout.terminated, rollout.truncated
        reward = np.float32(self.reward_scale) * rollout.reward
        advantage = gae(reward, value, following, *ends, self.gamma, self.q_lambda, rollout.acts)
        return (value + advantage).astype(np.float32, copy=False)

    def _update(self, k: int, rollout: Rollout, target: NDArray[np.float32], ids: NDArray[np.intp]) -> Update:
        """Learn from minibatches."""
        one = self.learning[k]
        obs = rollout.obs.reshape(target.size, *rollout.obs.shape[2:])[ids]
        action = rollout.action.reshape(target.size, -1)[ids]
        nothing, ones = np.zeros(ids.shape, np.float32), np.ones(ids.shape, np.float32)
        # Discounted by 0, what follows counts for nothing: targets are known.
        batch = Batch(ids, obs, action, target.ravel()[ids], obs, nothing, ones)
        reported, distance = one.learner.update(batch, self.rate)
        one.pace.updates += len(reported)
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
        from paddock.algos.learning.offpolicy.learners.torch_q_learner import TorchQLearner

        check_shares(self.threads, self.rollouts, self.staleness, self.pool)
        settings |= {"device": self.device, "precision": self.precision}
        return TorchQLearner(architecture, objective, seed, **settings)

    @property
    def _normalizes_layers(self) -> bool:
        return self.layer_norm
