"""Evolution paths of CMA-ES, and its control of the step size (Hansen 2016, arXiv:1604.00772)."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from paddock.algos.evolution.strategies.protocol import Floats, norm


class Rates(NamedTuple):
    """Recombination weights and learning rates."""

    weights: Floats  # best first; the positive ones sum to 1
    mu_eff: float
    c_1: float
    c_mu: float
    c_sigma: float
    c_c: float


@dataclass(frozen=True, eq=False)
class Paths:
    """Evolution paths, which adapt the step size and the covariance."""

    p_sigma: Floats  # [P]
    p_c: Floats  # [P]
    generation: int

    @classmethod
    def start(cls, size: int) -> "Paths":
        """Return the paths before the first generation."""
        return cls(np.zeros(size), np.zeros(size), 0)

    def follow(self, step: Floats, whitened: Floats, rates: Rates) -> tuple["Paths", float, float]:
        """Add a step of the mean; return the paths, the factor of the step size, and the lost variance of p_c.

        `step` [P] is in units of the step size, and `whitened` [P] is the step before its scaling by the covariance.
        """
        size, generation = step.size, self.generation + 1
        mu_eff, c_sigma, c_c = rates.mu_eff, rates.c_sigma, rates.c_c
        p_sigma = (1 - c_sigma) * self.p_sigma + math.sqrt(c_sigma * (2 - c_sigma) * mu_eff) * whitened
        expected = math.sqrt(size) * (1 - 1 / (4 * size) + 1 / (21 * size**2))  # norm of a standard normal vector
        length = norm(p_sigma)
        damping = 1 + 2 * max(0, math.sqrt((mu_eff - 1) / (size + 1)) - 1) + c_sigma
        factor = math.exp(c_sigma / damping * (length / expected - 1))
        bound = (1.4 + 2 / (size + 1)) * expected
        slow = length / math.sqrt(1 - (1 - c_sigma) ** (2 * (generation + 1))) < bound
        p_c = (1 - c_c) * self.p_c + slow * math.sqrt(c_c * (2 - c_c) * mu_eff) * step
        return Paths(p_sigma, p_c, generation), factor, (1 - slow) * c_c * (2 - c_c)
