"""How an evolution strategy moves its mean: ranks, the gradient estimated from mirrored pairs, and Adam.

Salimans et al. 2017 (arXiv:1703.03864), Kingma & Ba 2015 (arXiv:1412.6980).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from paddock.envs.errors import PaddockError
from paddock.envs.ranges import Range

Floats = NDArray[np.float64]
Decay = Annotated[float, Range("must lie in (0, 1]; 1 keeps it constant", above=0, high=1)]  # a factor an iteration

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


class EvaluationLost(PaddockError):
    """Not one member of the population could be evaluated."""


def centred_ranks(returns: Floats) -> NDArray[np.float32]:
    """Map returns to ranks in [-0.5, 0.5]; ties share their mean rank.

    Args:
        returns: any shape, one per member; NaN marks a lost evaluation.

    Returns:
        The same shape, float32, summing to zero over the finite entries; NaN becomes 0.

    Raises:
        EvaluationLost: every entry is NaN.
    """
    finite = np.isfinite(returns)
    count = int(finite.sum())
    if count == 0:
        raise EvaluationLost("no return to rank: every evaluation was lost")
    ranks = np.zeros(returns.shape, np.float32)
    if count > 1:
        _, inverse, repeats = np.unique(returns[finite], return_inverse=True, return_counts=True)
        mean_rank = np.cumsum(repeats) - (repeats + 1) / 2  # 0-based, averaged over ties
        ranks[finite] = mean_rank[inverse] / (count - 1) - 0.5
    return ranks


def estimate_gradient(returns: Floats, noise: Callable[[int], NDArray[np.float32]], size: int, sigma: float) -> Floats:
    """Ascent direction [P]: the sum over pairs of (rank+ - rank-) noise, over (surviving pairs x sigma).

    Args:
        returns: [pairs, 2], of both signs; NaN for both signs of a lost pair.
        noise: gives a pair's noise vector [P].
        size: P.
    """
    ranks = centred_ranks(returns).astype(np.float64)
    weights = ranks[:, 0] - ranks[:, 1]
    gradient = np.zeros(size)
    # Summed in index order, vector by vector: a matrix product may round differently by its thread count.
    for pair in np.flatnonzero(weights):
        gradient += weights[pair] * noise(int(pair))
    return gradient / (np.isfinite(returns[:, 0]).sum() * sigma)


@dataclass(frozen=True, eq=False)
class Adam:
    """Adam's state after some updates."""

    momentum: Floats  # [P], first moment
    variance: Floats  # [P], second moment
    updates: int

    @classmethod
    def fresh(cls, size: int) -> "Adam":
        """Before the first update of P = size parameters."""
        return cls(np.zeros(size), np.zeros(size), 0)

    def apply_gradient(self, gradient: Floats, rate: float) -> tuple[Floats, "Adam"]:
        """The change [P] that one step of size `rate` makes, and the state after it."""
        updates = self.updates + 1
        momentum = BETA1 * self.momentum + (1 - BETA1) * gradient
        variance = BETA2 * self.variance + (1 - BETA2) * gradient**2
        corrected = np.sqrt(1 - BETA2**updates) / (1 - BETA1**updates)
        return rate * corrected * momentum / (np.sqrt(variance) + EPSILON), Adam(momentum, variance, updates)


def decayed(start: float, factor: float, floor: float, updates: int) -> float:
    """What is left of a step size or a deviation after some updates."""
    return max(start * factor**updates, floor)
