"""Gaussian of independent numbers, whose samples are clipped to the bounds as the environment takes them."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.heads.head import Floats, Graph
from paddock.algos.networks.heads.numbers import Numbers
from paddock.envs.native.functions import fast_exp

if TYPE_CHECKING:
    from torch import Tensor

LOG_2PI = math.log(2 * math.pi)


@final
@dataclass(frozen=True)
class Gaussian(Numbers):
    """Outputs are means; log standard deviations are learned beside the network."""

    kind = family = "gaussian"
    native_mode = native_sampler = "clipped"
    learns_log_std = True

    def sample(self, out: Floats, log_std: Floats, noise: Floats | None) -> NDArray[Any]:
        return sample(out, log_std, noise)

    def logprob(self, out: Floats, log_std: Floats, action: NDArray[Any]) -> Floats:
        return logprob(out, log_std, action)

    def logprob_and_entropy(self, out: "Tensor", log_std: "Tensor", action: "Tensor") -> "tuple[Tensor, Tensor]":
        return logprob_and_entropy(out, log_std, action)

    def to_env(self, action: NDArray[Any]) -> NDArray[Any]:
        return self.clip(action)

    def to_onnx(self, graph: Graph, out: str) -> str:
        return self.clip_in_onnx(graph, out)


def sample(mean: Floats, log_std: Floats, noise: Floats | None) -> Floats:
    """Draw numbers [B, K] by standard normal noise, or return the means."""
    return mean if noise is None else mean + fast_exp(log_std) * noise


def logprob(mean: Floats, log_std: Floats, action: Floats) -> Floats:
    """Return log-densities [B] of numbers [B, K]."""
    scaled = (action - mean) * fast_exp(-log_std)
    return sum_columns((scaled * scaled) * np.float32(-0.5) - log_std - np.float32(0.5 * LOG_2PI))


def logprob_and_entropy(mean: "Tensor", log_std: "Tensor", action: "Tensor") -> "tuple[Tensor, Tensor]":
    """Return log-densities and entropies [B] of numbers [B, K]."""
    scaled = (action - mean) * (-log_std).exp()
    logprob = (-0.5 * scaled**2 - log_std - 0.5 * LOG_2PI).sum(1)
    return logprob, (log_std + 0.5 * (1 + LOG_2PI)).sum().expand(len(mean))


def sum_columns(terms: Floats) -> Floats:
    """Sums [B] of rows [B, K], from the first to the last: NumPy's own would depend on how rows lie in memory."""
    total = np.zeros(len(terms), np.float32)
    for column in terms.T:
        total += column
    return total
