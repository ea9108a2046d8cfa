"""Tanh-squashed Gaussians: PPO's, with standard deviations as parameters, and SAC's, with state-dependent ones."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.heads import gaussian
from paddock.algos.networks.heads.head import Floats, Graph
from paddock.algos.networks.heads.numbers import Numbers
from paddock.envs.native.functions import fast_exp, fast_tanh, log_tanh_derivative

if TYPE_CHECKING:
    from torch import Tensor

LOG_2 = math.log(2)
LOG_STD = -20.0, 2.0  # bounds of log standard deviations that are network outputs


@final
@dataclass(frozen=True)
class SquashedGaussian(Numbers):
    """Squashed Gaussian; outputs are means before tanh, log standard deviations are separate parameters.

    The entropy is that of the Gaussian, since the squashed one has no closed form.
    """

    kind, family = "squashed", "squashed_gaussian"
    native_mode, native_sampler = "bounded", "squashed"
    needs_bounds = True
    learns_log_std = True

    def sample(self, out: Floats, log_std: Floats, noise: Floats | None) -> NDArray[Any]:
        """Return actions [B, K] for outputs [B, W]; the most likely ones without noise."""
        return gaussian.sample(out, log_std, noise)

    def logprob(self, out: Floats, log_std: Floats, action: NDArray[Any]) -> Floats:
        """Return log-probabilities [B] of actions [B, K]."""
        return gaussian.logprob(out, log_std, action) - self.log_slope(action)

    def logprob_and_entropy(self, out: "Tensor", log_std: "Tensor", action: "Tensor") -> "tuple[Tensor, Tensor]":
        """Return log-probabilities and entropies [B], in torch."""
        from torch.nn.functional import softplus

        logprob, entropy = gaussian.logprob_and_entropy(out, log_std, action)
        half = action.new_tensor(self.log_half)
        return logprob - (2 * (LOG_2 - action - softplus(-2 * action)) + half).sum(1), entropy

    def log_slope(self, action: Floats) -> Floats:
        """Return the log-derivative [B] of squashing and scaling."""
        return gaussian.sum_columns(log_tanh_derivative(action) + self.log_half)

    def to_env(self, action: NDArray[Any]) -> NDArray[Any]:
        """Squash actions with tanh, and scale them to the bounds."""
        return self.scale(fast_tanh(action))


@final
@dataclass(frozen=True)
class SoftGaussian(Numbers):
    """SAC's squashed Gaussian; outputs are means and log standard deviations, unscaled actions lie in [-1, 1]."""

    kind, family = "soft", "squashed_gaussian"
    native_mode, native_sampler = "bounded", "soft"
    needs_bounds = True

    @property
    def width(self) -> int:
        """Number of network outputs W."""
        return 2 * self.components

    def sample(self, out: Floats, log_std: Floats, noise: Floats | None) -> NDArray[Any]:
        """Return actions [B, K] for outputs [B, W]; the most likely ones without noise."""
        mean, raw = out[:, : self.components], out[:, self.components :]
        if noise is None:
            return fast_tanh(mean)
        low, high = map(np.float32, LOG_STD)
        return fast_tanh(mean + fast_exp(np.minimum(np.maximum(raw, low), high)) * noise)

    def logprob(self, out: Floats, log_std: Floats, action: NDArray[Any]) -> Floats:
        """Return zeros [B]."""
        return np.zeros(len(out), np.float32)  # SAC computes it with its own samples

    def logprob_and_entropy(self, out: "Tensor", log_std: "Tensor", action: "Tensor") -> "tuple[Tensor, Tensor]":
        """Raise NotImplementedError."""
        raise NotImplementedError("SAC samples actions together with their log-densities")

    def to_onnx(self, graph: Graph, out: str) -> str:
        """Add the most likely actions to the graph; return their name."""
        return self.scale_in_onnx(graph, graph.add("Tanh", graph.split(out, [self.components] * 2)[0]))
