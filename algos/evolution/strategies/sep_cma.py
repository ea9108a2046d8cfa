"""Separable CMA-ES: a deviation per parameter and a step size (Ros & Hansen 2008)."""

import math
from dataclasses import dataclass

import numpy as np

from paddock.algos.evolution.ranks import best_first
from paddock.algos.evolution.strategies.evolution_paths import Paths, Rates
from paddock.algos.evolution.strategies.openai import Sigma
from paddock.algos.evolution.strategies.protocol import Floats, Gaussian, Metrics, Noise, metrics_of
from paddock.envs.ranges import check_fields


@dataclass(frozen=True, kw_only=True)
class SepCMASettings:
    """Settings; conf/algo/strategy/sep_cma.yaml explains each."""

    sigma: Sigma

    def __post_init__(self) -> None:
        check_fields(self)

    def start(self, mean: Floats, population: int) -> "SepCMA":
        """See `StrategySettings`."""
        return SepCMA(self, mean, self.sigma, np.ones(mean.size), Paths.start(mean.size))


def rates_of(size: int, mu: int) -> Rates:
    """Return the published weights of mu parents and the learning rates, for P = size."""
    weights = math.log(mu + 1) - np.log(np.arange(1, mu + 1))
    weights /= weights.sum()
    mu_eff = 1 / float(np.sum(weights**2))
    c_mu = 2 / mu_eff / (size + math.sqrt(2)) ** 2
    c_mu += (1 - 1 / mu_eff) * min(1, (2 * mu_eff - 1) / ((size + 2) ** 2 + mu_eff))
    c_1 = 2 / ((size + 1.3) ** 2 + mu_eff)
    c_sigma = (mu_eff + 2) / (size + mu_eff + 3)
    return Rates(weights, mu_eff, c_1, (size + 2) / 3 * c_mu, c_sigma, 4 / (size + 4))


@dataclass(frozen=True, eq=False)
class SepCMA:
    """CMA-ES with a diagonal covariance matrix."""

    settings: SepCMASettings
    mean: Floats  # [P]
    sigma: float  # step size
    variance: Floats  # [P], diagonal of the covariance matrix
    paths: Paths

    def sample(self, noise: Noise) -> Gaussian:
        """See `Strategy`."""
        return Gaussian(self.mean.astype(np.float32), self._scale().astype(np.float32), mirrored=False)

    @property
    def axes(self) -> tuple[float, float]:
        """Smallest and largest standard deviation along an axis."""
        scale = self._scale()
        return float(scale.min()), float(scale.max())

    def tell(self, returns: Floats, noise: Noise, parents: int | None = None) -> tuple["SepCMA", Metrics]:
        """Recombine the best `parents`, or the better half, of the members that were not lost."""
        order = best_first(returns)
        rates = rates_of(self.mean.size, max(len(order) // 2, 1) if parents is None else parents)
        whitened, squares = np.zeros_like(self.mean), np.zeros_like(self.mean)
        for weight, index in zip(rates.weights, order, strict=False):
            z = noise(int(index)).astype(np.float64)
            whitened += weight * z
            squares += weight * z**2
        step = np.sqrt(self.variance) * whitened
        paths, factor, lost = self.paths.follow(step, whitened, rates)
        kept = 1 + rates.c_1 * lost - rates.c_1 - rates.c_mu
        variance = kept * self.variance + rates.c_1 * paths.p_c**2 + rates.c_mu * self.variance * squares
        mean = self.mean + self.sigma * step
        metrics = metrics_of(self._scale().mean(), self.sigma * step, mean)
        return SepCMA(self.settings, mean, self.sigma * factor, variance, paths), metrics

    def _scale(self) -> Floats:
        return self.sigma * np.sqrt(self.variance)
