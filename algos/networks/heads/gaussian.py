"""Diagonal Gaussian, whose samples are clipped to the action bounds."""

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
    """Diagonal Gaussian; outputs are means, log standard deviations are separate parameters."""

    kind = family = "gaussian"
    native_mode = native_sampler = "clipped"
    learns_log_std = True

    def sample(self, out: Floats, log_std: Floats, noise: Floats | None) -> NDArray[Any]:
        """Return actions [B, K] for outputs [B, W]; the most likely ones without noise."""
        return sample(out, log_std, noise)

    def logprob(self, out: Floats, log_std: Floats, action: NDArray[Any]) -> Floats:
        """Return log-probabilities [B] of actions [B, K]."""
        return logprob(out, log_std, action)

    def logprob_and_entropy(self, out: "Tensor", log_std: "Tensor", action: "Tensor") -> "tuple[Tensor, Tensor]":
        """Return log-probabilities and entropies [B], in torch."""
        return logprob_and_entropy(out, log_std, action)

    def to_env(self, action: NDArray[Any]) -> NDArray[Any]:
        """Clip actions to the bounds."""
        return self.clip(action)

    def to_onnx(self, graph: Graph, out: str) -> str:
        """Add the most likely actions to the graph; return their name."""
        return self.clip_in_onnx(graph, out)


def sample(mean: Floats, log_std: Floats, noise: Floats | None) -> Floats:
    """Return samples [B, K] from standard normal noise; the means without noise."""
    return mean if noise is None else mean + fast_exp(log_std) * noise


def logprob(mean: Floats, log_std: Floats, action: Floats) -> Floats:
    """Return log-densities [B] of actions [B, K]."""
    scaled = (action - mean) * fast_exp(-log_std)
    return sum_columns((scaled * scaled) * np.float32(-0.5) - log_std - np.float32(0.5 * LOG_2PI))


def logprob_and_entropy(mean: "Tensor", log_std: "Tensor", action: "Tensor") -> "tuple[Tensor, Tensor]":
    """Return log-densities and entropies [B] of actions [B, K]."""
    scaled = (action - mean) * (-log_std).exp()
    logprob = (-0.5 * scaled**2 - log_std - 0.5 * LOG_2PI).sum(1)
    return logprob, (log_std + 0.5 * (1 + LOG_2PI)).sum().expand(len(mean))


def sum_columns(terms: Floats) -> Floats:
    """Sum rows [B, K] from first to last; NumPy's order would depend on the memory layout."""
    total = np.zeros(len(terms), np.float32)
    for column in terms.T:
        total += column
    return total
