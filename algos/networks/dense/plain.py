"""Dense networks in NumPy, to the bits of `src/learn.h`: its operations one by one, and every sum in its order."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.dense.plain_chains import (
    ONE,
    ZERO,
    Layers,
    apply_gradient,
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
from paddock.algos.networks.dense.shape import REPORTED, AdamState, DenseShape, Floats, Sample, Surrogate
from paddock.envs.native.functions import quick_exp, quick_log
from paddock.envs.spaces.sparse import SparseRows

HALF_LOG_2PI = np.float32(0.91893853320467274178)


class PlainDense:
    """`DenseBackend` in NumPy."""

    def __init__(self, shape: DenseShape) -> None:
        self._shape = shape

    def evaluate(
        self, parameters: Floats, observation: Floats, action: Floats | None, sparse: SparseRows | None = None
    ) -> tuple[Floats, Floats]:
        """See `DenseBackend.evaluate`."""
        with np.errstate(all="ignore"):  # as in C
            _, (*_, out), (*_, value) = compute(self._shape, self._layers(parameters), observation, sparse)
            if action is None:
                return value[:, 0], np.zeros(len(out), np.float32)
            out = forbid(self._shape, observation, out)
            return value[:, 0], _Drawn(self._shape, out, parameters[: self._shape.log_stds], action).logprob

    def update(
        self,
        adam: AdamState,
        sample: Sample,
        minibatches: list[NDArray[np.int64]],
        objective: Surrogate,
        rate: float,
        max_norm: float | None,
    ) -> NDArray[np.float64]:
        """See `DenseBackend.update`."""
        report = np.zeros((len(minibatches), len(REPORTED)))
        with np.errstate(all="ignore"):
            scales = zip(*adam.scales(rate, len(minibatches)), strict=True)
            for told, rows, (step, deviation) in zip(report, minibatches, scales, strict=True):
                gradient, told[:5] = self._gradient(adam.parameters, sample, rows, objective)
                told[5] = norm = gradient_norm(gradient, self._shape.chains, self._shape.log_stds)
                apply_gradient(adam, scale_down(gradient, norm, max_norm), step, deviation)
        adam.steps += len(minibatches)
        return report

    def _layers(self, flat: Floats) -> list[Layers]:
        return split(flat, self._shape.chains, self._shape.log_stds)

    def _gradient(
        self, parameters: Floats, sample: Sample, rows: NDArray[np.int64], objective: Surrogate
    ) -> tuple[Floats, list[float]]:
        """The gradient of a minibatch's mean loss [P], and what is reported of it but the norm."""
        shape, count = self._shape, len(rows)
        mean, deviation = _scale(sample.advantage[rows], objective)
        advantage = (sample.advantage[rows] - mean) / deviation
        chains, log_std = self._layers(parameters), parameters[: shape.log_stds]
        sparse = None if sample.sparse is None else sample.sparse.pick(rows)
        values = compute(shape, chains, sample.observation[rows], sparse)
        values[1][-1] = forbid(shape, sample.observation[rows], values[1][-1])
        by_out, by_value, pulls, told = self._lose(values, log_std, sample, rows, advantage, objective)
        total: Floats | None = None
        report = np.zeros(5)
        for among in cut(count):
            own = np.zeros(len(parameters), np.float32)
            own[: shape.log_stds] = np.float32(-objective.entropy_coef) if total is None else ZERO
            for row in pulls[among]:
                own[: shape.log_stds] += row
            part = [[rows_of(x, among) for x in chain] for chain in values]
            differentiate(shape, chains, part, by_out[among], by_value[among], self._layers(own))
            total = own if total is None else total + own
            report += in_order(told[:, among])
        assert total is not None
        report[1] *= 0.5
        return total, list(report / count * [-1, 1, 1, 1, 1])

    def _lose(
        self,
        values: list[list[Any]],
        log_std: Floats,
        sample: Sample,
        rows: NDArray[np.int64],
        advantage: Floats,
        objective: Surrogate,
    ) -> tuple[Floats, Floats, Floats, NDArray[np.float64]]:
        """Gradients by outputs [B, W], values [B, 1] and log standard deviations [B, L]; terms to report [5, B]."""
        share = ONE / np.float32(len(rows))
        drawn = _Drawn(self._shape, values[1][-1], log_std, sample.action[rows])
        difference = (drawn.logprob - sample.slope[rows]) - sample.logprob[rows]
        ratio = quick_exp(difference)
        low, high = ONE - np.float32(objective.clip_coef), ONE + np.float32(objective.clip_coef)
        free, bound = advantage * ratio, advantage * _clamp(ratio, low, high)
        by_logprob = np.where(free <= bound, free, ZERO) * -share
        by_out, pulls = drawn.gradient(by_logprob, np.float32(objective.entropy_coef) * share)

        target, before, value = sample.target[rows], sample.value[rows], values[2][-1][:, 0]
        error = value - target
        square, by_value = error * error, error
        if objective.value_clip_coef is not None:
            limit = np.float32(objective.value_clip_coef)
            moved = value - before
            kept = _clamp(moved, -limit, limit)
            other = (before + kept) - target
            worse = other * other
            by_value = np.where(worse > square, np.where(kept == moved, other, ZERO), error)
            square = np.where(square > worse, square, worse)
        by_value = by_value * (np.float32(objective.value_coef) * share)
        told = [
            np.where(free < bound, free, bound),
            square,
            drawn.entropy,
            (ratio - ONE) - difference,
            np.abs(ratio - ONE) > np.float32(objective.clip_coef),
        ]
        return by_out, by_value[:, None], pulls, np.array(told, np.float64)


class _Drawn:
    """Actions that were drawn [B, K], and the outputs [B, W] that they are drawn from now."""

    def __init__(self, shape: DenseShape, out: Floats, log_std: Floats, action: Floats) -> None:
        self._out, self._log_std, self._action = out, log_std, action
        B = len(out)
        self.entropy = np.zeros(B, np.float32)
        self._parts: list[tuple[int, int, Floats, Floats, Floats]] = []  # choices, first output, and what is kept
        total, own = np.zeros(B, np.float32), np.zeros(B, np.float32)
        at = deviations = 0
        for c, count in enumerate(shape.choices):
            if c and shape.leaf[c] != shape.leaf[c - 1]:
                total, own = total + own, np.zeros(B, np.float32)
            if not count:
                deviation = log_std[deviations]
                scaled = (action[:, c] - out[:, at]) * quick_exp(np.array([-deviation], np.float32))
                own = own + (((scaled * scaled) * np.float32(-0.5) - deviation) - HALF_LOG_2PI)
                self.entropy = self.entropy + (deviation + (np.float32(0.5) + HALF_LOG_2PI))
                self._parts.append((0, at, scaled, scaled, scaled))
                deviations += 1
                at += 1
                continue
            block = out[:, at : at + count]
            top = block[:, 0]
            for j in range(1, count):
                top = np.where(block[:, j] > top, block[:, j], top)
            shares = quick_exp(block - top[:, None])
            total_share = shares[:, 0]
            for j in range(1, count):
                total_share = total_share + shares[:, j]
            logs = (block - top[:, None]) - quick_log(total_share)[:, None]
            shares = shares / total_share[:, None]
            chosen, spread = np.zeros(B, np.float32), np.zeros(B, np.float32)
            for j in range(count):
                chosen = np.where(action[:, c] == np.float32(j), logs[:, j], chosen)
                spread = spread + shares[:, j] * logs[:, j]
            self.entropy = self.entropy - spread
            self._parts.append((count, at, shares, logs, -spread))
            own = own + chosen
            at += count
        self.logprob = total + own

    def gradient(self, by_logprob: Floats, bonus: np.float32) -> tuple[Floats, Floats]:
        """Return gradients by the outputs [B, W], and by the log standard deviations row by row [B, L]."""
        by_out = np.empty_like(self._out)
        pulls: list[Floats] = []
        for c, (count, at, kept, logs, spread) in enumerate(self._parts):
            if not count:
                pull = by_logprob * kept
                deviation = self._log_std[len(pulls)]
                pulls.append(pull * kept - by_logprob)
                by_out[:, at] = pull * quick_exp(np.array([-deviation], np.float32))
                continue
            for j in range(count):
                chosen = np.where(self._action[:, c] == np.float32(j), ONE, ZERO)
                more = (bonus * kept[:, j]) * (logs[:, j] + spread)
                by_out[:, at + j] = by_logprob * (chosen - kept[:, j]) + more
        return by_out, np.stack(pulls, axis=1) if pulls else np.zeros((len(by_out), 0), np.float32)


def _scale(advantage: Floats, objective: Surrogate) -> tuple[np.float32, np.float32]:
    """What is taken from advantages, and what they are divided by."""
    count = len(advantage)
    if not objective.normalize_advantages or count < 2:
        return ZERO, ONE
    mean = in_order(advantage.astype(np.float64)[None])[0] / count
    difference = advantage - mean
    variance = in_order((difference * difference)[None])[0] / (count - 1)
    return np.float32(mean), np.float32(np.sqrt(variance)) + np.float32(1e-8)


def _clamp(x: Floats, low: np.float32, high: np.float32) -> Floats:
    least = np.where(x < high, x, high)
    return np.where(low > least, low, least)
