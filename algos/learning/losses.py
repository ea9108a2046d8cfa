"""PPO's objective on the outputs of a network, and its gradient by hand, in NumPy: `PPO._loss` is the reference."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from algos.learning.learner import BatchValues
from algos.networks.actor import as_features
from algos.networks.dense import DenseNetwork
from algos.networks.heads import LOG_2PI, Head

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class SurrogateLoss:
    """The objective's settings."""

    head: Head
    clip_coef: float
    value_clip_coef: float | None
    value_coef: float
    entropy_coef: float
    normalize_advantages: bool

    def gradient(
        self, out: Floats, value: Floats, log_std: Floats, action: NDArray, known: Floats
    ) -> tuple[Floats, Floats, Floats | None, tuple[float, ...]]:
        """The mean loss's gradient on a minibatch.

        Args:
            out: [B, W], outputs of the head.
            action: [B, K].
            known: [4, B]: log-probability when the action was taken, advantage, target, value before the update.

        Returns:
            Gradients by the outputs [B, W], the values [B] and, of a Gaussian, the log standard deviations [W]; and
            what is reported: policy loss, value loss, entropy, divergence, clipped share.
        """
        old, advantage, target, before = known
        B = len(value)
        if self.normalize_advantages and B > 1:
            advantage = (advantage - advantage.mean()) / (advantage.std(ddof=1) + np.float32(1e-8))
        scaled, logs = (
            ((action - out) * np.exp(-log_std), []) if self.head.kind == "gaussian" else (out, self._log_softmax(out))
        )
        logprob = self._logprob(scaled, logs, log_std, action)
        difference = logprob - old
        ratio = np.exp(difference)
        low, high = np.float32(1 - self.clip_coef), np.float32(1 + self.clip_coef)
        free, bound = advantage * ratio, advantage * np.minimum(np.maximum(ratio, low), high)
        by_logprob = np.where(free <= bound, free, np.float32(0)) * np.float32(-1 / B)

        errors = value - target
        squares, by_value = errors * errors, errors
        if self.value_clip_coef is not None:
            moved = value - before
            kept = np.minimum(np.maximum(moved, np.float32(-self.value_clip_coef)), np.float32(self.value_clip_coef))
            others = before + kept - target
            worse = others * others > squares
            by_value = np.where(worse, np.where(kept == moved, others, np.float32(0)), errors)
            squares = np.maximum(squares, others * others)
        by_value = by_value * np.float32(self.value_coef / B)

        bonus = np.float32(self.entropy_coef)
        by_log_std: Floats | None = None
        if self.head.kind == "gaussian":
            pull = by_logprob[:, None] * scaled
            by_out = pull * np.exp(-log_std)
            by_log_std = (pull * scaled).sum(axis=0) - by_logprob.sum() - bonus
            entropy = float(log_std.sum()) + 0.5 * (1 + LOG_2PI) * len(log_std)
        else:
            by_out, entropy = self._choices(logs, by_logprob, action, bonus)
        report = (
            -float(np.minimum(free, bound).mean()),
            0.5 * float(squares.mean()),
            entropy,
            float((ratio - 1 - difference).mean()),
            float((np.abs(ratio - 1) > np.float32(self.clip_coef)).mean()),
        )
        return by_out, by_value, by_log_std, report

    def _log_softmax(self, out: Floats) -> list[Floats]:
        """Log-probabilities of each component's choices."""
        logs = []
        for block in np.split(out, np.cumsum(self.head.sizes)[:-1], axis=1) if len(self.head.sizes) > 1 else [out]:
            shifted = block - block.max(axis=1, keepdims=True)
            shifted -= np.log(np.exp(shifted).sum(axis=1, keepdims=True))
            logs.append(shifted)
        return logs

    def _logprob(self, scaled: Floats, logs: list[Floats], log_std: Floats, action: NDArray) -> Floats:
        if self.head.kind == "gaussian":
            constant = log_std.sum() + np.float32(0.5 * LOG_2PI * len(log_std))
            return np.float32(-0.5) * np.einsum("bw,bw->b", scaled, scaled) - constant
        rows = np.arange(len(action))
        chosen = [block[rows, action[:, k]] for k, block in enumerate(logs)]
        return chosen[0] if len(chosen) == 1 else np.sum(chosen, axis=0, dtype=np.float32)

    def _choices(
        self, logs: list[Floats], by_logprob: Floats, action: NDArray, bonus: np.float32
    ) -> tuple[Floats, float]:
        """The gradient by all logits, and the mean entropy."""
        rows = np.arange(len(action))
        parts, entropy = [], 0.0
        for k, block in enumerate(logs):
            shares = np.exp(block)
            spread = -(shares * block).sum(axis=1)
            part = -by_logprob[:, None] * shares
            part[rows, action[:, k]] += by_logprob
            if bonus:
                part += (bonus / np.float32(len(rows))) * shares * (block + spread[:, None])
            parts.append(part)
            entropy += float(spread.mean())
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1), entropy


class ManualGradient:
    """A rollout, and the dense network that learns from it: fills the gradient, minibatch by minibatch."""

    def __init__(self, surrogate: SurrogateLoss, dense: DenseNetwork, values: BatchValues, known: list[Tensor]) -> None:
        """Take the rollout out of torch, which shares its memory.

        Args:
            known: log-probabilities, advantages, targets and values, [T, N] each.
        """
        self._surrogate = surrogate
        self._dense = dense
        obs = values.obs.flatten(1).numpy()
        self._obs = as_features(obs) if obs.dtype == np.uint8 else obs
        self._action = values.action.flatten(0, 1).numpy()
        # Side by side, so that one index picks all four.
        self._known = np.ascontiguousarray(np.stack([column.numpy().ravel() for column in known]).T)

    def fill(self, rows: NDArray[np.int64]) -> tuple[float, ...]:
        """Compute the gradient of these rows' mean loss; what is reported of it, see `SurrogateLoss.gradient`."""
        dense = self._dense
        out, value = dense.forward(self._obs[rows])
        by_out, by_value, by_log_std, report = self._surrogate.gradient(
            out, value, dense.log_std, self._action[rows], self._known[rows].T
        )
        dense.backward(by_out, by_value)
        if by_log_std is not None:
            dense.log_std_gradient[:] = by_log_std
        return report
