"""Genetic algorithm with truncation selection and Gaussian mutation (Such et al. 2017, arXiv:1712.06567)."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paddock.algos.evolution.ranks import best_first
from paddock.algos.evolution.strategies.ars import Share
from paddock.algos.evolution.strategies.openai import Sigma
from paddock.algos.evolution.strategies.protocol import Floats, Members, Metrics, Noise, metrics_of
from paddock.algos.networks.flat import check_memory
from paddock.envs.errors import require
from paddock.envs.ranges import NonNegativeInt, check_fields


@dataclass(frozen=True, kw_only=True)
class GASettings:
    """Settings; conf/algo/strategy/ga.yaml explains each."""

    sigma: Sigma
    parents: Share
    elites: NonNegativeInt

    def __post_init__(self) -> None:
        check_fields(self)

    def start(self, mean: Floats, population: int) -> "GA":
        """See `StrategySettings`."""
        check_memory(f"population={population}", population * mean.size, "members", 100)
        parents = math.ceil(self.parents * population)
        require(self.elites <= parents, f"strategy.elites={self.elites} must be at most the {parents} parents")
        return GA(self, np.tile(mean.astype(np.float32), (parents, 1)), population)


@dataclass(frozen=True, eq=False)
class GA:
    """Mutation of the best members."""

    settings: GASettings
    parents: NDArray[np.float32]  # [N, P], best first
    members: int

    @property
    def mean(self) -> Floats:
        """Parameters [P] of the member with the highest return in the last generation."""
        return self.parents[0].astype(np.float64)

    def sample(self, noise: Noise) -> Members:
        """Repeat the elites, and mutate the parents in turn."""
        elites, sigma = self.settings.elites, np.float32(self.settings.sigma)
        mutated = [self.parents[k % len(self.parents)] + sigma * noise(k) for k in range(elites, self.members)]
        return Members(np.concatenate([self.parents[:elites], mutated]))

    def tell(self, returns: Floats, noise: Noise) -> tuple["GA", Metrics]:
        """Select the members with the highest returns as parents."""
        best = np.resize(best_first(returns), len(self.parents))  # repeats survivors if few are left
        after = GA(self.settings, self.sample(noise).parameters[best], self.members)
        return after, metrics_of(self.settings.sigma, after.mean - self.mean, after.mean)
