"""Learning of action values in NumPy, to the bits of `src/offpolicy/q_learn.h`."""

import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.dense.plain_chains import (
    ONE,
    ZERO,
    apply_gradient,
    approach,
    compute,
    cut,
    differentiate,
    forbid,
    gradient_norm,
    in_order,
    rows_of,
    scale_down,
    split,
)
from paddock.algos.networks.dense.q import REPORTED, QSteps, QTransitions, QVectors
from paddock.algos.networks.dense.shape import AdamState, DenseShape, Floats
from paddock.envs.spaces.sparse import SparseRows


class PlainQ:
    """`QBackend` in NumPy."""

    def __init__(self, shape: DenseShape) -> None:
        self._shape = shape

    def load(self, vectors: QVectors) -> None:
        """See `QBackend.load`."""
        parameters, momentum, variance = vectors.parameters, vectors.momentum, vectors.variance
        self._adam = AdamState(parameters.copy(), momentum.copy(), variance.copy(), 0, 0)
        self._targets = vectors.targets.copy()

    def vectors(self) -> QVectors:
        """See `QBackend.vectors`."""
        adam = self._adam
        return QVectors(adam.parameters.copy(), self._targets.copy(), adam.momentum.copy(), adam.variance.copy())

    def parameters(self) -> Floats:
        """See `QBackend.parameters`."""
        return self._adam.parameters.copy()

    def update(self, transitions: QTransitions, steps: QSteps) -> tuple[NDArray[np.float64], Floats]:
        """See `QBackend.update`."""
        adam, shape = self._adam, self._shape
        adam.epsilon = steps.epsilon
        U, B = transitions.reward.shape
        report, distance = np.zeros((U, len(REPORTED))), np.empty((U, B), np.float32)
        with np.errstate(all="ignore"):  # as in C
            for u in range(U):
                gradient, told, distance[u] = self._gradient(transitions, u, steps)
                norm = gradient_norm(gradient, shape.chains)
                report[u] = [*told, norm]
                apply_gradient(adam, scale_down(gradient, norm, steps.max_norm), steps.rates[u], steps.deviations[u])
                if steps.taus[u]:
                    approach(self._targets, adam.parameters, steps.taus[u])
        return report, distance

    def _gradient(self, transitions: QTransitions, u: int, steps: QSteps) -> tuple[Floats, NDArray[np.float64], Floats]:
        """The gradient of an update's mean loss [P], the means that are reported, and the distances [B]."""
        shape, parameters = self._shape, self._adam.parameters
        B = transitions.reward.shape[1]
        rows, chains = slice(u * B, u * B + B), split(parameters, shape.chains)
        both = transitions.sparse, transitions.next_sparse
        sparse, next_sparse = (None if each is None else rows_of(each, rows) for each in both)
        target = self._find_targets(transitions, u, transitions.next_observation[rows], next_sparse, steps.double)
        values = compute(shape, chains, transitions.observation[rows], sparse)
        out, action = values[1][-1], transitions.action[u]
        worth = _worth(out, values[2][-1] if shape.value else None, action)
        error = worth - target
        size, loss, by = np.abs(error), np.float32(0.5) * error * error, error
        if steps.huber is not None:
            limit = np.float32(steps.huber)
            far = size > limit
            loss = np.where(far, limit * (size - np.float32(0.5) * limit), loss)
            by = np.where(far, np.where(error < 0, -limit, limit), error)
        by = by * (transitions.weight[u] * (ONE / np.float32(B)))
        others = by / np.float32(shape.outputs) if shape.value else np.zeros(B, np.float32)
        by_out = np.where(np.arange(shape.outputs) == action[:, None], by[:, None], ZERO) - others[:, None]
        told = np.array([transitions.weight[u] * loss, worth, target], np.float64)
        gradient: Floats | None = None
        sums = np.zeros(3)
        for among in cut(B):
            own = np.zeros(len(parameters), np.float32)
            part = [[rows_of(x, among) for x in chain] for chain in values]
            by_value = by[among, None] if shape.value else None
            differentiate(shape, chains, part, by_out[among], by_value, split(own, shape.chains))
            gradient = own if gradient is None else gradient + own
            sums += in_order(told[:, among])
        assert gradient is not None
        return gradient, sums / B, size

    def _find_targets(
        self, transitions: QTransitions, u: int, observation: Floats, sparse: SparseRows | None, double: bool
    ) -> Floats:
        """reward + discount * what the best next action is worth, which may be anything where that is 0, [B]."""
        shape, reward, discount = self._shape, transitions.reward[u], transitions.discount[u]
        if not discount.any():
            return reward
        _, (*_, out), (*_, value) = compute(shape, split(self._targets, shape.chains), observation, sparse)
        choosing = out
        if double:
            _, (*_, choosing), _ = compute(shape, split(self._adam.parameters, shape.chains), observation, sparse)
        choosing = forbid(shape, observation, choosing)
        best, top = np.zeros(len(out), np.int64), choosing[:, 0]
        for j in range(1, shape.outputs):
            better = choosing[:, j] > top
            best, top = np.where(better, j, best), np.where(better, choosing[:, j], top)
        worth = _worth(out, value if shape.value else None, best)
        return np.where(discount != 0, reward + discount * worth, reward)


def _worth(out: Floats, value: Floats | None, action: NDArray[np.integer]) -> Floats:
    """What actions [B] are worth, given their values, or advantages [B, A] beside those of states [B, 1]."""
    own = out[np.arange(len(out)), action]
    if value is None:
        return own
    total = out[:, 0]
    for j in range(1, out.shape[1]):
        total = total + out[:, j]
    worth: Floats = value[:, 0] + (own - total / np.float32(out.shape[1]))
    return worth
