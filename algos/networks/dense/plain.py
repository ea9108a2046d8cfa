"""Dense networks in NumPy, to the bits of `src/learn.h`: its operations one by one, and every sum in its order."""

import itertools

import numpy as np
from numpy.typing import NDArray

from algos.networks.dense.shape import REPORTED, AdamState, DenseShape, Floats, Sample, Surrogate
from algos.networks.heads import LOWEST
from envs.native.functions import quick_exp, quick_log, quick_tangent
from envs.native.networks import DenseLayout

BLOCK, MOST_PARTS, CHUNK = 32, 16, 16  # of dense.h
AT_ONCE = 1 << 18  # products that are held in memory together
ZERO, ONE, HALF_LOG_2PI = np.float32(0), np.float32(1), np.float32(0.91893853320467274178)

Layers = list[tuple[Floats, Floats]]  # weights [in, out] and bias [out]


class PlainDense:
    """`DenseBackend` in NumPy."""

    def __init__(self, shape: DenseShape) -> None:
        self._shape = shape

    def evaluate(self, parameters: Floats, observation: Floats, action: Floats | None) -> tuple[Floats, Floats]:
        """See `DenseBackend.evaluate`."""
        with np.errstate(all="ignore"):  # as in C
            _, (*_, out), (*_, value) = self._forward(self._layers(parameters), observation)
            if action is None:
                return value[:, 0], np.zeros(len(out), np.float32)
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
                told[5] = norm = self._norm(gradient)
                if max_norm is not None:
                    limit = np.float32(max_norm) / (norm + np.float32(1e-6))
                    gradient = gradient * (ONE if limit > 1 else limit)
                _descend(adam, gradient, step, deviation)
        adam.steps += len(minibatches)
        return report

    def _layers(self, flat: Floats) -> list[Layers]:
        chains, start = [], self._shape.log_stds
        for sizes in self._shape.chains:
            layout = DenseLayout(sizes, out_first=True)
            chains.append(layout.layers(flat[start:]))
            start += layout.num_parameters
        return chains

    def _forward(self, chains: list[Layers], observation: Floats) -> list[list[Floats]]:
        """What each chain makes of rows, layer by layer, behind what it takes."""
        shape = self._shape
        features, values = observation[:, : shape.numbers], []
        for number, layers in enumerate(chains):
            own = [features]
            for k, (weights, bias) in enumerate(layers):
                x = product(own[-1], weights) + bias
                if number == 0 or k + 1 < len(layers):
                    x = np.where(x < 0, ZERO, x) if shape.activation == "relu" else quick_tangent(x)
                own.append(x)
            values.append(own)
            if number == 0:
                features = own[-1]
        if shape.masked:
            values[1][-1] = np.where(observation[:, shape.numbers :] != 0, values[1][-1], np.float32(LOWEST))
        return values

    def _gradient(
        self, parameters: Floats, sample: Sample, rows: NDArray[np.int64], objective: Surrogate
    ) -> tuple[Floats, list[float]]:
        """The gradient of a minibatch's mean loss [P], and what is reported of it but the norm."""
        shape, count = self._shape, len(rows)
        mean, deviation = _scale(sample.advantage[rows], objective)
        advantage = (sample.advantage[rows] - mean) / deviation
        parts = min(max(count // BLOCK, 1), MOST_PARTS)
        borders = [count * part // parts for part in range(parts + 1)]
        chains, log_std = self._layers(parameters), parameters[: shape.log_stds]
        values = self._forward(chains, sample.observation[rows])
        by_out, by_value, pulls, told = self._lose(values, log_std, sample, rows, advantage, objective)
        total: Floats | None = None
        report = np.zeros(5)
        for part, (first, last) in enumerate(itertools.pairwise(borders)):
            own = np.zeros(len(parameters), np.float32)
            own[: shape.log_stds] = np.float32(-objective.entropy_coef) if part == 0 else ZERO
            for row in pulls[first:last]:
                own[: shape.log_stds] += row
            among = slice(first, last)
            self._backward(chains, [[x[among] for x in chain] for chain in values], by_out[among], by_value[among], own)
            total = own if total is None else total + own
            report += _in_order(told[:, among])
        assert total is not None
        report[1] *= 0.5
        return total, list(report / count * [-1, 1, 1, 1, 1])

    def _lose(
        self,
        values: list[list[Floats]],
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

    def _backward(
        self, chains: list[Layers], values: list[list[Floats]], by_out: Floats, by_value: Floats, gradient: Floats
    ) -> None:
        """Fill the gradient behind the log standard deviations."""
        slots = self._layers(gradient)
        trunk = bool(chains[0])
        by = [self._back(chains[k], values[k], slots[k], given, trunk) for k, given in ((1, by_out), (2, by_value))]
        if trunk:
            features = values[0][-1]
            self._back(chains[0], values[0], slots[0], self._activation_gradient(by[0] + by[1], features), False)

    def _back(self, layers: Layers, values: list[Floats], slots: Layers, by: Floats, further: bool) -> Floats:
        """Fill the gradients of a chain; returns the gradient by what it took, if that is asked for."""
        for k in range(len(layers) - 1, -1, -1):
            weights, bias = slots[k]
            weights[:] = product(values[k].T, by)
            bias[:] = ZERO
            for row in by:
                bias += row
            if k == 0 and not further:
                break
            by = product(by, layers[k][0].T)
            if k > 0:
                by = self._activation_gradient(by, values[k])
        return by

    def _activation_gradient(self, by: Floats, h: Floats) -> Floats:
        return np.where(h > 0, by, ZERO) if self._shape.activation == "relu" else by * (ONE - h * h)

    def _norm(self, gradient: Floats) -> np.float32:
        """Squares summed by rows of weights: CHUNK of them together, in 16 columns."""
        log_stds = gradient[: self._shape.log_stds]
        chunks = [log_stds[None, :]]
        for weights, bias in (layer for chain in self._layers(gradient) for layer in chain):
            rows = np.concatenate([weights, bias[None]])
            chunks += [rows[first : first + CHUNK] for first in range(0, len(rows), CHUNK)]
        squares = 0.0
        for rows in chunks:
            columns = np.zeros(16, np.float32)
            for row in rows:
                padded = np.zeros(-(-len(row) // 16) * 16, np.float32)
                padded[: len(row)] = row * row
                for part in padded.reshape(-1, 16):
                    columns += part
            total = ZERO
            for column in columns:
                total = total + column
            squares += float(total)
        return np.float32(np.sqrt(squares))


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


def product(a: Floats, b: Floats) -> Floats:
    """Return a [M, K] times b [K, N], each sum from the first product to the last."""
    out = np.empty((len(a), b.shape[1]), np.float32)
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)  # so that the products lie row by row
    at_once = max(AT_ONCE // max(b.size, 1), 1)
    for first in range(0, len(a), at_once):
        products = a[first : first + at_once, :, None] * b
        # Row by row; NumPy sums pairwise only along the axis that is contiguous in memory.
        out[first : first + at_once] = products.sum(axis=1) if b.shape[1] > 1 else np.cumsum(products, axis=1)[:, -1]
    return out


def _scale(advantage: Floats, objective: Surrogate) -> tuple[np.float32, np.float32]:
    """What is taken from advantages, and what they are divided by."""
    count = len(advantage)
    if not objective.normalize_advantages or count < 2:
        return ZERO, ONE
    mean = _in_order(advantage.astype(np.float64)[None])[0] / count
    difference = advantage - mean
    variance = _in_order((difference * difference)[None])[0] / (count - 1)
    return np.float32(mean), np.float32(np.sqrt(variance)) + np.float32(1e-8)


def _in_order(terms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums of [S, B] over B, from the first to the last."""
    return np.asarray(np.cumsum(terms, axis=1)[:, -1])


def _clamp(x: Floats, low: np.float32, high: np.float32) -> Floats:
    least = np.where(x < high, x, high)
    return np.where(low > least, low, least)


def _descend(adam: AdamState, gradient: Floats, step: np.float32, deviation: np.float32) -> None:
    """One step of Adam (Kingma & Ba 2015, arXiv:1412.6980)."""
    keep_m, keep_v = np.float32(adam.momentum_decay), np.float32(adam.variance_decay)
    adam.momentum[:] = adam.momentum * keep_m + gradient * (ONE - keep_m)
    adam.variance[:] = adam.variance * keep_v + (gradient * gradient) * (ONE - keep_v)
    adam.parameters -= (adam.momentum * step) / (np.sqrt(adam.variance) * deviation + np.float32(adam.epsilon))
