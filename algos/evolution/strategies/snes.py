"""Separable natural evolution strategy (Wierstra et al. 2014): natural gradient of the mean and of log deviations."""

import math
from dataclasses import dataclass

import numpy as np

from paddock.algos.evolution.ranks import centred_ranks
from paddock.algos.evolution.strategies.openai import LearningRate, Sigma
from paddock.algos.evolution.strategies.protocol import Floats, Gaussian, Metrics, Noise, metrics_of, sum_pairs
from paddock.envs.ranges import PositiveFloat, check_fields


@dataclass(frozen=True, kw_only=True)
class SNESSettings:
    """Settings; conf/algo/strategy/snes.yaml explains each."""

    sigma: Sigma
    learning_rate: LearningRate
    sigma_learning_rate: PositiveFloat | None

    def __post_init__(self) -> None:
        check_fields(self)

    def start(self, mean: Floats, population: int) -> "SNES":
        """See `StrategySettings`."""
        return SNES(self, mean, np.full(mean.size, self.sigma))


@dataclass(frozen=True, eq=False)
class SNES:
    """Normal distribution with a deviation per parameter."""

    settings: SNESSettings
    mean: Floats  # [P]
    sigma: Floats  # [P]

    def sample(self, noise: Noise) -> Gaussian:
        """See `Strategy`."""
        return Gaussian(self.mean.astype(np.float32), self.sigma.astype(np.float32), mirrored=True)

    def tell(self, returns: Floats, noise: Noise) -> tuple["SNES", Metrics]:
        """Follow the natural gradient of the utilities."""
        size, settings = self.mean.size, self.settings
        along, squares = sum_pairs(utilities(returns), noise, size)
        rate = settings.sigma_learning_rate or (3 + math.log(size)) / (5 * math.sqrt(size))
        update = settings.learning_rate * self.sigma * along
        mean = self.mean + update
        metrics = metrics_of(self.sigma.mean(), update, mean, settings.learning_rate)
        return SNES(settings, mean, self.sigma * np.exp(rate / 2 * squares)), metrics


def utilities(returns: Floats) -> Floats:
    """Map returns to utilities that sum to 0; the worse half has the same one, ties share a rank, and NaN becomes 0."""
    finite = np.isfinite(returns)
    count = int(finite.sum())
    position = 1 + (0.5 - centred_ranks(returns).astype(np.float64)) * (count - 1)  # 1: the best
    raw = np.where(finite, np.maximum(0, math.log(count / 2 + 1) - np.log(position)), 0)
    return np.where(finite, raw / raw.sum() - 1 / count, 0)
