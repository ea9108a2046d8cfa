"""Gradient estimate of an evolution strategy: centred ranks and mirrored noise (Salimans et al. 2017)."""

from collections.abc import Callable
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from paddock.envs.errors import PaddockError
from paddock.envs.ranges import Range

Floats = NDArray[np.float64]
Decay = Annotated[float, Range("must be in (0, 1]; 1 keeps it constant", above=0, high=1)]  # factor per iteration


class EvaluationLost(PaddockError):
    """No member of the population could be evaluated."""


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
    """Return the ascent direction [P]: the sum over pairs of (rank+ - rank-) noise, over (surviving pairs x sigma).

    `returns` [pairs, 2] has NaN for both signs of a lost pair; `noise` maps a pair's index to its vector [size].
    """
    ranks = centred_ranks(returns).astype(np.float64)
    weights = ranks[:, 0] - ranks[:, 1]
    gradient = np.zeros(size)
    # Sum in index order, vector by vector: the rounding of a matrix product may depend on its thread count.
    for pair in np.flatnonzero(weights):
        gradient += weights[pair] * noise(int(pair))
    return gradient / (np.isfinite(returns[:, 0]).sum() * sigma)


def decayed(start: float, factor: float, floor: float, updates: int) -> float:
    """Return `start * factor**updates`, at least `floor`."""
    return max(start * factor**updates, floor)
