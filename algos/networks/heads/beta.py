"""Beta distribution on the action bounds (Chou et al. 2017, "Improving stochastic policy gradients", ICML)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from paddock.algos.networks.heads.head import Floats, Graph
from paddock.algos.networks.heads.numbers import Numbers

if TYPE_CHECKING:
    from torch import Tensor

EDGE = 1e-6  # samples are clipped to [EDGE, 1 - EDGE], where densities are finite


@final
@dataclass(frozen=True)
class Beta(Numbers):
    """Beta distribution with alpha = 1 + softplus(output), beta alike, so that it is unimodal.

    Unscaled actions lie in (0, 1), so no probability mass is clipped at the bounds.
    """

    kind = family = "beta"
    needs_bounds = True
    learns_in_c = False

    @property
    def width(self) -> int:
        """Number of network outputs W."""
        return 2 * self.components

    @property
    def log_width(self) -> float:
        """Logarithm of the volume between the bounds."""
        return float(np.sum(self.log_half.astype(np.float64) + np.log(2)))

    def sample_noise(self, generator: np.random.Generator, lead: tuple[int, ...]) -> Floats:
        """Return uniform noise [*lead, K] in (0, 1)."""
        return generator.random((*lead, self.components), dtype=np.float32) + np.float32(2**-25)

    def sample(self, out: Floats, log_std: Floats, noise: Floats | None) -> NDArray[Any]:
        """Return actions [B, K] for outputs [B, W]; the most likely ones without noise."""
        alpha, beta = self._parameters(out)
        if noise is None:
            return ((alpha - 1) / (alpha + beta - 2)).astype(np.float32)  # the mode
        return np.clip(special.betaincinv(alpha, beta, noise), EDGE, 1 - EDGE).astype(np.float32)

    def logprob(self, out: Floats, log_std: Floats, action: NDArray[Any]) -> Floats:
        """Return log-probabilities [B] of actions [B, K]."""
        (alpha, beta), x = self._parameters(out), action.astype(np.float64)
        density = special.xlogy(alpha - 1, x) + special.xlog1py(beta - 1, -x) - special.betaln(alpha, beta)
        return (density.sum(axis=1) - self.log_width).astype(np.float32)

    def logprob_and_entropy(self, out: "Tensor", log_std: "Tensor", action: "Tensor") -> "tuple[Tensor, Tensor]":
        """Return log-probabilities and entropies [B], in torch."""
        from torch.nn.functional import softplus

        alpha, beta = (softplus(part) + 1 for part in out.split(self.components, 1))
        log_normalizer = alpha.lgamma() + beta.lgamma() - (alpha + beta).lgamma()
        logprob = (alpha - 1) * action.log() + (beta - 1) * (-action).log1p() - log_normalizer
        entropy = (
            log_normalizer
            - (alpha - 1) * alpha.digamma()
            - (beta - 1) * beta.digamma()
            + (alpha + beta - 2) * (alpha + beta).digamma()
        )
        return logprob.sum(1) - self.log_width, entropy.sum(1) + self.log_width

    def to_env(self, action: NDArray[Any]) -> NDArray[Any]:
        """Scale actions from (0, 1) to the bounds."""
        return self.scale(np.float32(2) * action - np.float32(1))

    def to_onnx(self, graph: Graph, out: str) -> str:
        """Add the most likely actions to the graph; return their name."""
        alpha, beta = (graph.add("Softplus", part) for part in graph.split(out, [self.components] * 2))
        mode = graph.add("Div", alpha, graph.add("Add", alpha, beta))
        doubled = graph.add("Mul", mode, graph.constant(2.0, np.float32))
        return self.scale_in_onnx(graph, graph.add("Sub", doubled, graph.constant(1.0, np.float32)))

    def _parameters(self, out: Floats) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        alpha, beta = np.split(np.logaddexp(0, out.astype(np.float64)) + 1, 2, axis=1)
        return alpha, beta
