"""Prioritized replay (Schaul et al. 2016, arXiv:1511.05952): what was learned from with surprise is drawn more often.

A transition is drawn in proportion to |d|^alpha, rounded to a whole number of 2^-20: draws then depend on no order of
sums. Powers are those of `fast_exp` and `fast_log`, which have the same bits everywhere.
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

LEAF_BYTES = 4  # of a transition, or a sequence
ONE = 2**20  # the leaf of a transition whose |d|^alpha is 1


@dataclass(frozen=True, kw_only=True)
class Priorities:
    """How much the error of a transition counts."""

    alpha: UnitFloat  # 0 draws all alike
    beta: UnitFloat  # how much of that the weights undo at the first update, 1 for all of it
    beta_end: UnitFloat  # and from update `beta_updates` on
    beta_updates: Annotated[int, AT_LEAST_ONE]  # between them along a line

    def __post_init__(self) -> None:
        check_fields(self)

    def beta_at(self, update: int) -> float:
        """Return beta for an update, counted from 0."""
        return self.beta + (self.beta_end - self.beta) * min(update / self.beta_updates, 1.0)


class PriorityTree:
    """The priorities of a ring of rows; those that must not be drawn have none."""

    def __init__(self, settings: Priorities, capacity: int) -> None:
        self._settings, self._capacity = settings, capacity
        self._tree = SumTree(capacity)
        self._greatest = ONE  # that a leaf ever was: rows that were never learned from have it

    def enter(self, first: int, offered: tuple[int, int], end: int) -> None:
        """Note that rows first .. end - 1 are new, and that those of `offered` may be drawn from now on."""
        new, drawable = np.arange(first, end), np.arange(*offered)
        at = np.concatenate([new, drawable]) % self._capacity
        leaves = np.zeros(len(at), np.uint32)
        leaves[len(new) :] = self._greatest
        self._tree[at] = leaves

    def set(self, ids: NDArray[np.int64], errors: Floats) -> None:
        """Give rows [M] priorities by their errors [M]; of several for one row, the last one counts."""
        leaves = leaves_of(errors, self._settings.alpha)
        self._greatest = max(self._greatest, int(leaves.max(initial=0)))
        self._tree[ids % self._capacity] = leaves

    def draw(self, words: NDArray[np.uint64], first_update: int, first_row: int) -> tuple[NDArray[np.int64], Floats]:
        """Draw rows [U, B] from `first_row` on, and their weights.

        The weight (N P)^-beta over the greatest of its batch is (leaf / smallest leaf)^-beta.
        """
        at = self._tree.draw(words)
        leaves = self._tree[at]
        ratio = (leaves / leaves.min(axis=1, keepdims=True)).astype(np.float32)
        betas = [self._settings.beta_at(first_update + k) for k in range(len(words))]
        weights = fast_exp(fast_log(ratio) * -np.array(betas, np.float32)[:, None])
        return first_row + (at - first_row) % self._capacity, weights

    def state_dict(self, rows: int) -> dict[str, Any]:
        """The leaves, of so many rows as there are."""
        return {"leaves": self._tree.leaves[:rows], "greatest": self._greatest}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self._tree.load(state["leaves"])
        self._greatest = int(state["greatest"])


def leaves_of(errors: Floats, alpha: float) -> NDArray[np.uint32]:
    """Return |d|^alpha as whole numbers, 1 to LARGEST; of NaN as of 0."""
    size = np.fmin(np.fmax(np.abs(errors, dtype=np.float32), np.float32(1e-30)), np.float32(1e30))
    power = fast_exp(fast_log(size) * np.float32(alpha))
    return np.clip(np.rint(power.astype(np.float64) * ONE), 1, LARGEST).astype(np.uint32)
