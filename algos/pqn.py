"""Parallelised Q-network (Gallici et al. 2024, arXiv:2407.04811): Q(lambda) from rollouts of many environments.

There is no replay and no target network: layer normalization and many environments stabilize training. Each rollout is
used for several epochs of shuffled minibatches with fixed lambda-return targets. The optimizer is Adam; the authors use
RAdam.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.common.keys import Stream, keyed_generator
from paddock.algos.learning.flow import minibatches
from paddock.algos.learning.learner import is_dense
from paddock.algos.learning.offpolicy.exploration import EpsilonGreedy
from paddock.algos.learning.offpolicy.learned_policy import LearnedPolicy
from paddock.algos.learning.offpolicy.learners.dense_q import DenseQLearner
from paddock.algos.learning.offpolicy.learners.learner import OffPolicyLearner
from paddock.algos.learning.offpolicy.learners.objectives import QObjective
from paddock.algos.learning.offpolicy.off_policy import POSITIVE_OR_NULL, OffPolicy, learn_in_torch
from paddock.algos.learning.offpolicy.operators import TrainStep, Update
from paddock.algos.learning.offpolicy.q_learning import make_discrete_head
from paddock.algos.learning.replay.batch import Batch
from paddock.algos.learning.returns import gae
from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.algos.multiagent.rows import check_transitions
from paddock.algos.networks.actor import make_actor
from paddock.algos.networks.architecture import Architecture
from paddock.envs.errors import require
from paddock.envs.ranges import NonNegativeInt, PositiveFloat, PositiveInt, UnitFloat

if TYPE_CHECKING:
    from torch import Tensor

    from paddock.algos.learning.offpolicy.learners.torch_batch import TorchBatch
    from paddock.algos.learning.offpolicy.learners.torch_networks import QNetworks


@dataclass(kw_only=True, eq=False)
class PQN(OffPolicy):
    """Parallelised Q-network; conf/algo/pqn.yaml explains each setting."""

    default_layers = ((256, 256), "relu")

    group = "pqn"

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
        greedy = EpsilonGreedy(0, self.epsilon_start, self.epsilon_end, self.epsilon_steps, ladder=0)
        self.assemble(
            make_discrete_head,
            lambda rows: greedy,
            self._make_learner,
            learns_values=True,
            layer_norm=self.layer_norm,
        )
        if not self.waits:  # otherwise the number of transitions varies, and the last minibatch may be smaller
            size, rows = self.minibatch_size, self.num_steps * self.num_rows
            fits = next(divisor for divisor in range(min(size, rows), 0, -1) if rows % divisor == 0)
            what = f"algo.minibatch_size={size} does not divide the {rows} steps of a rollout"
            require(rows % size == 0, f"{what}, algo.num_steps in each environment; try {fits}")
        self._values = [make_actor(one.learner.architecture) for one in self.learning]

    def plan(self) -> Generator[dict[str, float], None, None]:
        """Act and learn; yield metrics every `log_every_steps` steps, when the state is complete."""
        with self.playing() as rollouts:
            yield from self.rows(self._learn(rollouts))

    def describe(self) -> dict[str, str]:
        """Return a summary of the run, for `dry_run=true`."""
        kind = "agents" if self.waits else "environments"
        rows = f"{self.num_steps} steps x {self.num_rows} {kind} = {self.num_steps * self.num_rows:,}"
        learned = f"{rows}, {self.epochs} epochs in minibatches of {self.minibatch_size:,}, on {self.device}"
        return {**super().describe(), "learner": learned}

    def _learn(self, rollouts: Iterator[Sequence[Rollout]]) -> Generator[TrainStep, None, None]:
        """Update each policy from each of its rollouts, then publish the weights to actors."""
        for each in rollouts:
            check_transitions(each, self.learning[0].schedule.rollouts - 1)
            updates = [self._updates(k, policy, each[k]) for k, policy in enumerate(self.learning)]
            self.publish()
            yield TrainStep(each, updates)

    def _updates(self, k: int, policy: LearnedPolicy, rollout: Rollout) -> list[Update]:
        learned = rollout.learned_mask()
        rows = np.arange(rollout.reward.size) if learned is None else np.flatnonzero(learned)
        target = self._targets(rollout, k)
        shuffle = keyed_generator(self.seed, Stream.SHUFFLE, policy.schedule.rollouts, k)
        epochs = [ids for _ in range(self.epochs) for ids in self._epoch(rows, shuffle)]
        return [self._update(policy, rollout, target, ids) for ids in epochs]

    def _epoch(self, rows: NDArray[np.intp], shuffle: np.random.Generator) -> Iterator[NDArray[np.intp]]:
        """Shuffle rows into minibatches [U, B], and a smaller one [1, B] of the remainder."""
        batches = [rows[ids] for ids in minibatches(len(rows), self.minibatch_size, shuffle)]
        whole = len(rows) // self.minibatch_size
        for group in (batches[:whole], batches[whole:]):
            if group:
                yield np.stack(group)

    def _targets(self, rollout: Rollout, k: int = 0) -> NDArray[np.float32]:
        """Return the lambda-returns [T, N] of the greedy policy, by the current network."""
        seen, values = rollout.all_obs, self._values[k]
        values.load(self.learning[k].learner.weights(0))
        scores, _ = values.act(seen, np.zeros((len(seen), 0), np.float32))
        value, following = rollout.split_values(scores.max(axis=1))
        ends = rollout.terminated, rollout.truncated
        reward = np.float32(self.reward_scale) * rollout.reward
        advantage = gae(reward, value, following, *ends, self.gamma, self.q_lambda, rollout.acts)
        return (value + advantage).astype(np.float32, copy=False)

    def _update(
        self, policy: LearnedPolicy, rollout: Rollout, target: NDArray[np.float32], ids: NDArray[np.intp]
    ) -> Update:
        obs = rollout.obs.reshape(target.size, *rollout.obs.shape[2:])[ids]
        action = rollout.action.reshape(target.size, -1)[ids]
        zeros, ones = np.zeros(ids.shape, np.float32), np.ones(ids.shape, np.float32)
        # Discount 0: targets already contain the bootstrap value.
        batch = Batch(ids, obs, action, target.ravel()[ids], obs, zeros, ones)
        metrics, error = policy.learner.update(batch, self.rate())
        policy.schedule.updates += len(ids)
        policy.clock.lap("learn")
        return Update(ids, metrics, error)

    def _make_learner(self, architecture: Architecture, seed: int) -> OffPolicyLearner:
        objective = QObjective(double=False, huber=None, tau=0.0, target_every=1, max_grad_norm=self.max_grad_norm)
        needs = ["algo.layer_norm=true"] if self.layer_norm else []
        if is_dense(architecture, self.backend, self.device, self.precision, needs):
            options: dict[str, Any] = {"adam_epsilon": self.adam_epsilon, "threads": self.threads}
            return DenseQLearner(architecture, objective, seed, **options)
        # Import torch only if needed: it takes a second, and dense networks learn in C.
        from paddock.algos.learning.offpolicy.learners.torch_networks import QNetworks

        networks = partial(QNetworks, architecture, seed)
        return learn_in_torch(self, networks, pqn_loss, objective, self.max_grad_norm)


def pqn_loss(network: QNetworks, batch: TorchBatch, settings: QObjective) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss (Q(s, a) - y)^2 / 2, where `batch.reward` is y, the lambda-return, and metrics."""
    q, y = network(batch.obs).squeeze(2).gather(1, batch.action.long()).squeeze(1), batch.reward
    loss = (0.5 * (q - y) * (q - y)).mean()
    return loss, {"loss": loss, "q_mean": q.mean(), "target_mean": y.mean(), "td_error": (q - y).abs()}
