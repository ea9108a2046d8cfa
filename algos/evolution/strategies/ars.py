"""Augmented random search: only the best directions count (Mania et al. 2018, arXiv:1803.07055)."""

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from paddock.algos.evolution.ranks import best_first
from paddock.algos.evolution.strategies.openai import LearningRate, Sigma
from paddock.algos.evolution.strategies.protocol import Floats, Gaussian, Metrics, Noise, metrics_of, sum_noise
from paddock.envs.ranges import Range, check_fields

Share = Annotated[float, Range("must be in (0, 1]", above=0, high=1)]


@dataclass(frozen=True, kw_only=True)
class ARSSettings:
    """Settings; conf/algo/strategy/ars.yaml explains each."""

    sigma: Sigma
    learning_rate: LearningRate
    elites: Share

    def __post_init__(self) -> None:
        check_fields(self)

    def start(self, mean: Floats, population: int) -> "ARS":
        """See `StrategySettings`."""
        return ARS(self, mean)


@dataclass(frozen=True, eq=False)
class ARS:
    """Gradient ascent on returns divided by their standard deviation."""

    settings: ARSSettings
    mean: Floats  # [P]

    def sample(self, noise: Noise) -> Gaussian:
        """See `Strategy`."""
        return Gaussian(self.mean.astype(np.float32), np.float32(self.settings.sigma), mirrored=True)

    def tell(self, returns: Floats, noise: Noise) -> tuple["ARS", Metrics]:
        """Follow the pairs whose better member has the highest returns."""
        settings = self.settings
        order = best_first(returns.max(axis=1))
        best = order[: math.ceil(settings.elites * len(order))]
        weights = np.zeros(len(returns))
        weights[best] = returns[best, 0] - returns[best, 1]
        deviation = returns[best].std() or 1.0  # equal returns give no direction
        gradient = sum_noise(weights, noise, self.mean.size) / (len(best) * deviation)
        update = settings.learning_rate * gradient
        mean = self.mean + update
        return ARS(settings, mean), metrics_of(settings.sigma, update, mean, settings.learning_rate, gradient)
