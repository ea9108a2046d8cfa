"""Centred ranks of returns (Salimans et al. 2017, arXiv:1703.03864)."""

import numpy as np
from numpy.typing import NDArray

from paddock.envs.errors import PaddockError

Floats = NDArray[np.float64]


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


def best_first(returns: Floats) -> NDArray[np.int64]:
    """Return the indices of the finite returns, flattened, from the highest down; of equal ones the first leads."""
    flat = returns.ravel()
    finite = np.flatnonzero(np.isfinite(flat))
    if not len(finite):
        raise EvaluationLost("no return to rank: every evaluation was lost")
    return finite[np.argsort(-flat[finite], kind="stable")]
