"""OpenAI's evolution strategy: centred ranks and mirrored noise of one deviation (Salimans et al. 2017)."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from paddock.algos.evolution.optimizers import OPTIMIZERS, Optimizer, OptimizerName
from paddock.algos.evolution.ranks import centred_ranks
from paddock.algos.evolution.strategies.protocol import Floats, Gaussian, Metrics, Noise, metrics_of, sum_noise
from paddock.envs.errors import require
from paddock.envs.ranges import NonNegativeFloat, Range, check_fields

Sigma = Annotated[float, Range("must be positive and at most 1e6; try 0.1", above=0, high=1e6)]
LearningRate = Annotated[float, Range("must be positive and at most 1e6; try 0.01", above=0, high=1e6)]
Decay = Annotated[float, Range("must be in (0, 1]; 1 keeps it constant", above=0, high=1)]  # factor per iteration


@dataclass(frozen=True, kw_only=True)
class OpenAISettings:
    """Settings; conf/algo/strategy/openai.yaml explains each."""

    sigma: Sigma
    sigma_decay: Decay
    sigma_floor: float
    optimizer: OptimizerName
    learning_rate: LearningRate
    learning_rate_decay: Decay
    learning_rate_floor: float
    weight_decay: NonNegativeFloat

    def __post_init__(self) -> None:
        check_fields(self)
        for key, floor in (("sigma", self.sigma_floor), ("learning_rate", self.learning_rate_floor)):
            value = getattr(self, key)
            require(0 <= floor <= value, f"{key}_floor={floor} must be in [0, {key}={value}]")

    def start(self, mean: Floats, population: int) -> "OpenAI":
        """See `StrategySettings`."""
        return OpenAI(self, mean, OPTIMIZERS[self.optimizer](mean.size))


@dataclass(frozen=True, eq=False)
class OpenAI:
    """Gradient ascent on the returns' ranks."""

    settings: OpenAISettings
    mean: Floats  # [P]
    optimizer: Optimizer

    @property
    def sigma(self) -> float:
        """Standard deviation of the next generation."""
        settings = self.settings
        return max(settings.sigma * settings.sigma_decay**self.optimizer.updates, settings.sigma_floor)

    def sample(self, noise: Noise) -> Gaussian:
        """See `Strategy`."""
        return Gaussian(self.mean.astype(np.float32), np.float32(self.sigma), mirrored=True)

    def tell(self, returns: Floats, noise: Noise) -> tuple["OpenAI", Metrics]:
        """Follow the sum over pairs of (rank+ - rank-) noise, over (pairs not lost x sigma)."""
        settings = self.settings
        ranks = centred_ranks(returns).astype(np.float64)
        ascent = sum_noise(ranks[:, 0] - ranks[:, 1], noise, self.mean.size)
        gradient = ascent / (np.isfinite(returns[:, 0]).sum() * self.sigma)
        decayed = settings.learning_rate * settings.learning_rate_decay**self.optimizer.updates
        rate = max(decayed, settings.learning_rate_floor)
        update, optimizer = self.optimizer.step(gradient - settings.weight_decay * self.mean, rate)
        mean = self.mean + update
        return OpenAI(settings, mean, optimizer), metrics_of(self.sigma, update, mean, rate, gradient)
