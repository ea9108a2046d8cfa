"""PPO's objective on the outputs of a network, and its gradient by hand, in NumPy: `PPO._loss` is the reference."""

from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from algos.learning.learner import BatchValues
from algos.networks.actor import as_features
from algos.networks.dense import DenseNetwork
from algos.networks.heads import LOG_2PI, Head, LeafHead, MixedHead

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
            Gradients by the outputs [B, W], the values [B] and, where some actions are of a Gaussian, its log standard
            deviations; and what is reported: policy loss, value loss, entropy, divergence, clipped share.
        """
        old, advantage, target, before = known
        B = len(value)
        if self.normalize_advantages and B > 1:
            advantage = (advantage - advantage.mean()) / (advantage.std(ddof=1) + np.float32(1e-8))
        drawn = _draws(self.head, out, log_std, action)
        logprob = drawn.logprob()
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

        by_out, by_log_std, entropy = drawn.gradient(by_logprob, np.float32(self.entropy_coef))
        report = (
            -float(np.minimum(free, bound).mean()),
            0.5 * float(squares.mean()),
            entropy,
            float((ratio - 1 - difference).mean()),
            float((np.abs(ratio - 1) > np.float32(self.clip_coef)).mean()),
        )
        return by_out, by_value, by_log_std, report


class Draws(Protocol):
    """Actions that were drawn, and the outputs that they are drawn from now."""

    def logprob(self) -> Floats:
        """Log-probability, or log-density, [B]."""
        ...

    def gradient(self, by_logprob: Floats, bonus: np.float32) -> tuple[Floats, Floats | None, float]:
        """Return the loss's gradients, and the mean entropy, which lowers the loss by `bonus` a unit.

        Args:
            by_logprob: [B], the loss's gradient by the log-probabilities.

        Returns:
            Gradients by the outputs [B, W] and, of a Gaussian, the log standard deviations; and the entropy.
        """
        ...


@final
class Choices:
    """Indices of choices [B, K], of logits [B, W]."""

    def __init__(self, head: LeafHead, out: Floats, action: NDArray[np.int64]) -> None:
        self._action, self._rows = action, np.arange(len(action))
        self._logs = []  # log-probabilities of each component's choices
        for block in np.split(out, np.cumsum(head.sizes)[:-1], axis=1) if len(head.sizes) > 1 else [out]:
            shifted = block - block.max(axis=1, keepdims=True)
            shifted -= np.log(np.exp(shifted).sum(axis=1, keepdims=True))
            self._logs.append(shifted)

    def logprob(self) -> Floats:
        """See `Draws.logprob`."""
        chosen = [block[self._rows, self._action[:, k]] for k, block in enumerate(self._logs)]
        return chosen[0] if len(chosen) == 1 else np.sum(chosen, axis=0, dtype=np.float32)

    def gradient(self, by_logprob: Floats, bonus: np.float32) -> tuple[Floats, Floats | None, float]:
        """See `Draws.gradient`."""
        rows = self._rows
        parts, entropy = [], 0.0
        for k, block in enumerate(self._logs):
            shares = np.exp(block)
            spread = -(shares * block).sum(axis=1)
            part = -by_logprob[:, None] * shares
            part[rows, self._action[:, k]] += by_logprob
            if bonus:
                part += (bonus / np.float32(len(rows))) * shares * (block + spread[:, None])
            parts.append(part)
            entropy += float(spread.mean())
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1), None, entropy


@final
class Samples:
    """Gaussian samples [B, K], of means [B, K]."""

    def __init__(self, head: LeafHead, out: Floats, log_std: Floats, action: Floats) -> None:
        self._head, self._log_std, self._action = head, log_std, action
        self._scaled = (action - out) * np.exp(-log_std)

    def logprob(self) -> Floats:
        """See `Draws.logprob`."""
        scaled, log_std = self._scaled, self._log_std
        constant = log_std.sum() + np.float32(0.5 * LOG_2PI * len(log_std))
        logprob = np.float32(-0.5) * np.einsum("bw,bw->b", scaled, scaled) - constant
        return logprob - self._head.log_slope(self._action) if self._head.kind == "squashed" else logprob

    def gradient(self, by_logprob: Floats, bonus: np.float32) -> tuple[Floats, Floats | None, float]:
        """See `Draws.gradient`; how squashing spreads samples depends on nothing that is learned."""
        scaled, log_std = self._scaled, self._log_std
        pull = by_logprob[:, None] * scaled
        by_out = pull * np.exp(-log_std)
        by_log_std = (pull * scaled).sum(axis=0) - by_logprob.sum() - bonus
        return by_out, by_log_std, float(log_std.sum()) + 0.5 * (1 + LOG_2PI) * len(log_std)


@final
class Mixed:
    """Actions of several kinds, drawn independently of each other."""

    def __init__(self, head: MixedHead, out: Floats, log_std: Floats, action: NDArray[Any]) -> None:
        self._parts = [
            _draws(at.leaf, out[:, at.outputs], log_std[at.log_std], head.part(at, action)) for at in head.sections
        ]

    def logprob(self) -> Floats:
        """See `Draws.logprob`."""
        return np.sum([part.logprob() for part in self._parts], axis=0, dtype=np.float32)

    def gradient(self, by_logprob: Floats, bonus: np.float32) -> tuple[Floats, Floats | None, float]:
        """See `Draws.gradient`."""
        by_out, by_log_std, entropy = zip(*(part.gradient(by_logprob, bonus) for part in self._parts), strict=True)
        learned = [part for part in by_log_std if part is not None]
        return np.concatenate(by_out, axis=1), np.concatenate(learned) if learned else None, sum(entropy)


def _draws(head: Head, out: Floats, log_std: Floats, action: NDArray[Any]) -> Draws:
    if isinstance(head, LeafHead):
        return Samples(head, out, log_std, action) if head.is_gaussian else Choices(head, out, action)
    assert isinstance(head, MixedHead), head
    return Mixed(head, out, log_std, action)


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
