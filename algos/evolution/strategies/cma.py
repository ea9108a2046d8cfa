"""CMA-ES with active updates of the full covariance matrix (Hansen 2016, arXiv:1604.00772).

Matrix products round differently on different processor models, so its results are reproducible on one model only.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from paddock.algos.common.threads import one_thread
from paddock.algos.evolution.ranks import best_first
from paddock.algos.evolution.strategies.evolution_paths import Paths, Rates
from paddock.algos.evolution.strategies.openai import Sigma
from paddock.algos.evolution.strategies.protocol import Floats, Members, Metrics, Noise, metrics_of
from paddock.envs.errors import require
from paddock.envs.ranges import check_fields

MAX_PARAMETERS = 3000  # a generation decomposes a matrix of this size squared
SMALLEST_VARIANCE = 1e-8  # replaces negative eigenvalues


@dataclass(frozen=True, kw_only=True)
class CMASettings:
    """Settings; conf/algo/strategy/cma.yaml explains each."""

    sigma: Sigma

    def __post_init__(self) -> None:
        check_fields(self)

    def start(self, mean: Floats, population: int) -> "CMA":
        """See `StrategySettings`."""
        size = mean.size
        fits = f"strategy: cma takes at most {MAX_PARAMETERS:,} parameters, and the policy has {size:,}"
        require(size <= MAX_PARAMETERS, f"{fits}; use algo/strategy=sep_cma")
        return CMA(self, mean, self.sigma, np.eye(size), Paths.start(size), population)


def rates_of(size: int, members: int) -> Rates:
    """Return the published weights of at least 4 members, with negative ones, and the learning rates, for P = size."""
    raw = math.log((members + 1) / 2) - np.log(np.arange(1, members + 1))
    better, worse = raw[: members // 2], raw[members // 2 :]
    mu_eff, mu_eff_worse = (float(half.sum() ** 2 / np.sum(half**2)) for half in (better, worse))
    c_1 = 2 / ((size + 1.3) ** 2 + mu_eff)
    c_mu = min(1 - c_1 - 1e-8, 2 * (mu_eff - 2 + 1 / mu_eff) / ((size + 2) ** 2 + mu_eff))
    limit = min(1 + c_1 / c_mu, 1 + 2 * mu_eff_worse / (mu_eff + 2), (1 - c_1 - c_mu) / (size * c_mu))
    weights = np.where(raw >= 0, raw / raw[raw > 0].sum(), limit * raw / -raw[raw < 0].sum())
    c_sigma = (mu_eff + 2) / (size + mu_eff + 5)
    c_c = (4 + mu_eff / size) / (size + 4 + 2 * mu_eff / size)
    return Rates(weights, mu_eff, c_1, c_mu, c_sigma, c_c)


@dataclass(frozen=True, eq=False)
class CMA:
    """Normal distribution whose covariance matrix is learned."""

    settings: CMASettings
    mean: Floats  # [P]
    sigma: float  # step size
    covariance: Floats  # [P, P]
    paths: Paths
    members: int

    def sample(self, noise: Noise) -> Members:
        """See `Strategy`."""
        steps, _ = self._steps(noise, np.arange(self.members))
        return Members((self.mean + self.sigma * steps).astype(np.float32))

    @property
    def axes(self) -> tuple[float, float]:
        """Smallest and largest standard deviation along an axis."""
        deviations = self.sigma * self._axes[1]
        return float(deviations[0]), float(deviations[-1])

    def tell(self, returns: Floats, noise: Noise, parents: int | None = None) -> tuple["CMA", Metrics]:
        """Recombine the best `parents`, or the better half, of the members that were not lost, and avoid the others."""
        order = best_first(returns)
        rates = rates_of(self.mean.size, max(len(order) if parents is None else 2 * parents, 4))
        ranked = rates.weights[: len(order)]
        steps, z = self._steps(noise, order[: len(ranked)])
        with one_thread():
            better = np.maximum(ranked, 0)
            step, whitened = better @ steps, self._axes[0] @ (better @ z)
            paths, factor, lost = self.paths.follow(step, whitened, rates)
            weights = rates.c_mu * ranked * np.where(ranked >= 0, 1, self.mean.size / np.sum(z**2, axis=1))
            kept = 1 + rates.c_1 * lost - rates.c_1 - rates.c_mu * ranked.sum()
            covariance = kept * self.covariance + rates.c_1 * np.outer(paths.p_c, paths.p_c)
            covariance += (steps.T * weights) @ steps
        mean = self.mean + self.sigma * step
        after = replace(self, mean=mean, sigma=self.sigma * factor, covariance=covariance, paths=paths)
        return after, metrics_of(self.sigma * np.sqrt(np.diag(self.covariance)).mean(), self.sigma * step, mean)

    @cached_property
    def _axes(self) -> tuple[Floats, Floats]:
        """Principal axes [P, P], as columns, and the standard deviations [P] along them."""
        with one_thread():
            variances, axes = np.linalg.eigh((self.covariance + self.covariance.T) / 2)
        return axes, np.sqrt(np.where(variances < 0, SMALLEST_VARIANCE, variances))

    def _steps(self, noise: Noise, indices: np.ndarray) -> tuple[Floats, Floats]:
        """Return the steps [N, P] of members from the mean, in units of sigma, and their noise [N, P]."""
        axes, deviations = self._axes
        z = np.array([noise(int(index)) for index in indices], np.float64)
        with one_thread():
            return (z * deviations) @ axes.T, z
