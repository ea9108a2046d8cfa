"""Q learning on dense networks, in C. No number depends on the processor, on threads or on U."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.learning.learner import plain_weights, see
from paddock.algos.learning.offpolicy.learners.learner import UNCHANGED, Metrics, check_metrics
from paddock.algos.learning.offpolicy.learners.objectives import QObjective
from paddock.algos.learning.replay.batch import Batch, Floats
from paddock.algos.networks.architecture import Architecture, Weights
from paddock.algos.networks.dense.compiled_q import CompiledQ
from paddock.algos.networks.dense.draw import draw_uniform
from paddock.algos.networks.dense.q import REPORTED, QSteps, QTransitions, QVectors
from paddock.algos.networks.dense.shape import DenseShape, adam_scales
from paddock.envs.spaces.sparse import SparseRows


class DenseQLearner:
    """`OffPolicyLearner` of action values (Mnih et al. 2015); see `QObjective`.

    Where the architecture is shared, the network is a dueling one (Wang et al. 2016, arXiv:1511.06581): a trunk, then
    advantages, less their mean over all actions, and the value of the state. Errors count by half their squares; with
    `huber` they do so up to it and linearly beyond, which is `huber` times torch's smooth_l1_loss of that beta.
    """

    def __init__(
        self, architecture: Architecture, objective: QObjective, seed: int, *, adam_epsilon: float, threads: int
    ) -> None:
        """Draw the parameters, which the targets begin with."""
        self.architecture, self.updates = architecture, 0
        self._objective, self._epsilon = objective, adam_epsilon
        shape = DenseShape.of(architecture)
        shape = shape if architecture.shared else replace(shape, value=())
        generator = np.random.default_rng(seed % 2**63)
        theta = np.concatenate([draw_uniform(sizes, generator) for sizes in shape.chains])
        self._backend = CompiledQ(shape, threads, sparse=architecture.inputs.sparse is not None)
        self._backend.load(QVectors(theta, theta, np.zeros_like(theta), np.zeros_like(theta)))

    def update(self, batch: Batch, rate: float) -> tuple[Metrics, Floats]:
        """See `OffPolicyLearner.update`."""
        U, objective = len(batch.reward), self._objective
        numbers = np.arange(self.updates + 1, self.updates + U + 1)
        rates, deviations = adam_scales(rate, self.updates, U)
        taus = np.where(numbers % objective.target_every == 0, np.float32(objective.tau), np.float32(0))
        steps = QSteps(
            objective.double, objective.huber, objective.max_grad_norm, self._epsilon, rates, deviations, taus
        )
        action = batch.action.reshape(batch.reward.shape).astype(np.int32)
        (rows, sparse), (next_rows, next_sparse) = self._see(batch.obs), self._see(batch.next_obs)
        told = batch.reward, batch.discount, batch.weight
        given = QTransitions(rows, next_rows, action, *told, sparse, next_sparse)
        report, distance = self._backend.update(given, steps)
        self.updates += U
        metrics = dict(zip(REPORTED, report.T, strict=True))
        check_metrics(metrics, self.updates - U, U)
        return metrics, distance

    def _see(self, obs: NDArray[Any]) -> tuple[Floats, SparseRows | None]:
        """Observations [U, B, ...] as a network sees them, U * B rows."""
        return see(self.architecture, obs.reshape(-1, *self.architecture.inputs.shape), UNCHANGED)

    def at_work(self) -> AbstractContextManager[Any]:
        """See `OffPolicyLearner.at_work`."""
        return nullcontext()

    def weights(self, version: int, *, explore: bool = False) -> Weights:
        """See `OffPolicyLearner.weights`."""
        return plain_weights(version, self._backend.parameters())

    def state_dict(self) -> dict[str, Any]:
        """See `OffPolicyLearner.state_dict`."""
        return {**vars(self._backend.vectors()), "updates": self.updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `OffPolicyLearner.load_state_dict`."""
        self._backend.load(QVectors(*(state[name] for name in ("parameters", "targets", "momentum", "variance"))))
        self.updates = int(state["updates"])
