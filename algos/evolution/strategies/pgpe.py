"""Parameter-exploring policy gradients: a deviation per parameter is learned (Sehnke et al. 2010).

Returns become centred ranks, and ClipUp moves the mean (Toklu et al. 2020, arXiv:2008.02387).
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from paddock.algos.evolution.optimizers import OPTIMIZERS, Optimizer, OptimizerName
from paddock.algos.evolution.ranks import centred_ranks
from paddock.algos.evolution.strategies.openai import LearningRate, Sigma
from paddock.algos.evolution.strategies.protocol import Floats, Gaussian, Metrics, Noise, metrics_of, sum_pairs
from paddock.envs.ranges import NonNegativeFloat, Range, check_fields


@dataclass(frozen=True, kw_only=True)
class PGPESettings:
    """Settings; conf/algo/strategy/pgpe.yaml explains each."""

    sigma: Sigma
    sigma_learning_rate: NonNegativeFloat
    sigma_max_change: Annotated[float, Range("must be in (0, 1)", above=0, high=0.999)]
    optimizer: OptimizerName
    learning_rate: LearningRate

    def __post_init__(self) -> None:
        check_fields(self)

    def start(self, mean: Floats, population: int) -> "PGPE":
        """See `StrategySettings`."""
        return PGPE(self, mean, np.full(mean.size, self.sigma), OPTIMIZERS[self.optimizer](mean.size))


@dataclass(frozen=True, eq=False)
class PGPE:
    """Gradient ascent on the ranks, by the mean and the deviations."""

    settings: PGPESettings
    mean: Floats  # [P]
    sigma: Floats  # [P]
    optimizer: Optimizer

    def sample(self, noise: Noise) -> Gaussian:
        """See `Strategy`."""
        return Gaussian(self.mean.astype(np.float32), self.sigma.astype(np.float32), mirrored=True)

    def tell(self, returns: Floats, noise: Noise) -> tuple["PGPE", Metrics]:
        """Follow both gradients, averaged over the pairs that were not lost."""
        settings = self.settings
        along, squares = sum_pairs(centred_ranks(returns).astype(np.float64), noise, self.mean.size)
        pairs = np.isfinite(returns[:, 0]).sum()
        gradient = self.sigma * along / (2 * pairs)
        update, optimizer = self.optimizer.step(gradient, settings.learning_rate)
        change = settings.sigma_learning_rate * squares / (2 * pairs)
        bound = settings.sigma_max_change
        sigma = self.sigma * (1 + np.clip(change, -bound, bound))
        mean = self.mean + update
        metrics = metrics_of(self.sigma.mean(), update, mean, settings.learning_rate, gradient)
        return PGPE(settings, mean, sigma, optimizer), metrics
