"""Proportional prioritized replay (Schaul et al. 2016, arXiv:1511.05952).

A transition's priority is |td_error|^alpha, rounded to a multiple of 2^-20, so that sums of priorities are exact in any
order. Powers use `fast_exp` and `fast_log`, which are bit-identical on all platforms.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.learning.replay.batch import Floats
from paddock.algos.learning.replay.sum_tree import LARGEST, SumTree
from paddock.envs.native.functions import fast_exp, fast_log
from paddock.envs.ranges import AT_LEAST_ONE, UnitFloat, check_fields

LEAF_BYTES = 4  # per transition or sequence
ONE = 2**20  # leaf value of |td_error|^alpha = 1


@dataclass(frozen=True, kw_only=True)
class Priorities:
    """Hyperparameters of prioritized sampling."""

    alpha: UnitFloat  # priority exponent; 0: uniform sampling
    beta: UnitFloat  # importance-sampling exponent at the first update; 1: full correction
    beta_end: UnitFloat  # exponent from update `beta_updates` on
    beta_updates: Annotated[int, AT_LEAST_ONE]  # number of updates over which beta is annealed linearly

    def __post_init__(self) -> None:
        check_fields(self)

    def beta_at(self, update: int) -> float:
        """Return beta for an update, counted from 0."""
        return self.beta + (self.beta_end - self.beta) * min(update / self.beta_updates, 1.0)


class PriorityTree:
    """Priorities of the rows of a ring buffer; rows that cannot be sampled have priority 0."""

    def __init__(self, settings: Priorities, capacity: int) -> None:
        self._settings, self._capacity = settings, capacity
        self._tree = SumTree(capacity)
        self._max_leaf = ONE  # largest leaf so far, assigned to new rows

    def enter(self, first: int, sampleable: tuple[int, int], end: int) -> None:
        """Add new rows first .. end - 1, and make the rows in the range `sampleable` available for sampling."""
        new, enabled = np.arange(first, end), np.arange(*sampleable)
        at = np.concatenate([new, enabled]) % self._capacity
        leaves = np.zeros(len(at), np.uint32)
        leaves[len(new) :] = self._max_leaf
        self._tree[at] = leaves

    def set(self, ids: NDArray[np.int64], errors: Floats) -> None:
        """Set the priorities of rows [M] from their TD errors [M]; the last error of a repeated row is used."""
        leaves = leaves_of(errors, self._settings.alpha)
        self._max_leaf = max(self._max_leaf, int(leaves.max(initial=0)))
        self._tree[ids % self._capacity] = leaves

    def draw(self, words: NDArray[np.uint64], first_update: int, first_row: int) -> tuple[NDArray[np.int64], Floats]:
        """Sample row ids [U, B] from `first_row` on; return them with importance-sampling weights [U, B].

        Weights (N P)^-beta are divided by the largest of a batch, which gives (leaf / smallest leaf)^-beta.
        """
        at = self._tree.draw(words)
        leaves = self._tree[at]
        ratio = (leaves / leaves.min(axis=1, keepdims=True)).astype(np.float32)
        betas = [self._settings.beta_at(first_update + k) for k in range(len(words))]
        weights = fast_exp(fast_log(ratio) * -np.array(betas, np.float32)[:, None])
        return first_row + (at - first_row) % self._capacity, weights

    def state_dict(self, rows: int) -> dict[str, Any]:
        """Return the priorities of the first `rows` rows."""
        return {"leaves": self._tree.leaves[:rows], "greatest": self._max_leaf}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        self._tree.load(state["leaves"])
        self._max_leaf = int(state["greatest"])


def leaves_of(errors: Floats, alpha: float) -> NDArray[np.uint32]:
    """Return |error|^alpha as leaf values from 1 to LARGEST; NaN is treated as 0."""
    magnitude = np.fmin(np.fmax(np.abs(errors, dtype=np.float32), np.float32(1e-30)), np.float32(1e30))
    power = fast_exp(fast_log(magnitude) * np.float32(alpha))
    return np.clip(np.rint(power.astype(np.float64) * ONE), 1, LARGEST).astype(np.uint32)
