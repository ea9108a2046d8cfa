"""Gaussians that tanh squashes between the bounds: PPO's, whose deviations are parameters, and SAC's, from the network."""

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
LOG_STD = -20.0, 2.0  # between which a log standard deviation that is an output is clipped


@final
@dataclass(frozen=True)
class SquashedGaussian(Numbers):
    """Outputs are means before squashing; log standard deviations are learned beside the network.

    The entropy is that of the Gaussian before squashing: what squashed numbers have has no closed form.
    """

    kind, family = "squashed", "squashed_gaussian"
    native_mode, native_sampler = "bounded", "squashed"
    needs_bounds = True
    learns_log_std = True

    def sample(self, out: Floats, log_std: Floats, noise: Floats | None) -> NDArray[Any]:
        return gaussian.sample(out, log_std, noise)

    def logprob(self, out: Floats, log_std: Floats, action: NDArray[Any]) -> Floats:
        return gaussian.logprob(out, log_std, action) - self.log_slope(action)

    def logprob_and_entropy(self, out: "Tensor", log_std: "Tensor", action: "Tensor") -> "tuple[Tensor, Tensor]":
        from torch.nn.functional import softplus

        logprob, entropy = gaussian.logprob_and_entropy(out, log_std, action)
        half = action.new_tensor(self.log_half)
        return logprob - (2 * (LOG_2 - action - softplus(-2 * action)) + half).sum(1), entropy

    def log_slope(self, action: Floats) -> Floats:
        return gaussian.sum_columns(log_tanh_derivative(action) + self.log_half)

    def to_env(self, action: NDArray[Any]) -> NDArray[Any]:
        return self.scale(fast_tanh(action))

    def to_onnx(self, graph: Graph, out: str) -> str:
        return self.scale_in_onnx(graph, graph.add("Tanh", out))


@final
@dataclass(frozen=True)
class SoftGaussian(Numbers):
    """SAC's: outputs are means and log standard deviations before squashing; actions inside lie in [-1, 1]."""

    kind, family = "soft", "squashed_gaussian"
    native_mode, native_sampler = "bounded", "soft"
    needs_bounds = True

    @property
    def width(self) -> int:
        return 2 * self.components

    def sample(self, out: Floats, log_std: Floats, noise: Floats | None) -> NDArray[Any]:
        mean, raw = out[:, : self.components], out[:, self.components :]
        if noise is None:
            return fast_tanh(mean)
        low, high = map(np.float32, LOG_STD)
        return fast_tanh(mean + fast_exp(np.minimum(np.maximum(raw, low), high)) * noise)

    def logprob(self, out: Floats, log_std: Floats, action: NDArray[Any]) -> Floats:
        return np.zeros(len(out), np.float32)  # its algorithm asks for that of actions that it draws itself

    def logprob_and_entropy(self, out: "Tensor", log_std: "Tensor", action: "Tensor") -> "tuple[Tensor, Tensor]":
        raise NotImplementedError("soft actor-critic draws its actions together with their log-densities")

    def to_env(self, action: NDArray[Any]) -> NDArray[Any]:
        return self.scale(action)

    def to_onnx(self, graph: Graph, out: str) -> str:
        return self.scale_in_onnx(graph, graph.add("Tanh", graph.split(out, [self.components] * 2)[0]))
