"""Archive of quality diversity: the best member of each cell of a space of descriptors (Mouret & Clune 2015).

Each cell has a threshold that a member must exceed to be accepted. With a learning rate below 1 it rises slowly from a
minimum towards the accepted objectives (CMA-MAE; Fontaine & Nikolaidis 2023, arXiv:2205.10752), while the archive keeps
the best member that was accepted.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
EMPTY = float("-inf")  # objective of an empty cell


@dataclass(frozen=True, eq=False)
class Grid:
    """Regular grid of cells in row-major order."""

    low: Floats  # [D]
    high: Floats  # [D]
    shape: tuple[int, ...]  # cells along each dimension

    @property
    def count(self) -> int:
        """Number of cells C."""
        return math.prod(self.shape)

    def index_of(self, descriptors: Floats) -> NDArray[np.int64]:
        """Return the cell [B] of descriptors [B, D]; those outside the range are in a cell at its boundary."""
        scaled = (descriptors - self.low) / (self.high - self.low) * self.shape
        indices = np.clip(np.floor(scaled), 0, np.array(self.shape) - 1).astype(np.int64)
        return np.ravel_multi_index(tuple(indices.T), self.shape).astype(np.int64)


@dataclass(frozen=True, eq=False)
class CVT:
    """Centroidal Voronoi tessellation: a cell holds the descriptors nearest to its centroid."""

    low: Floats
    high: Floats
    centroids: Floats  # [C, D], in the unit cube: distances are relative to the ranges of the descriptors
    _tree: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        from scipy.spatial import KDTree  # slow to import

        object.__setattr__(self, "_tree", KDTree(self.centroids))

    @property
    def count(self) -> int:
        """Number of cells C."""
        return len(self.centroids)

    def index_of(self, descriptors: Floats) -> NDArray[np.int64]:
        """Return the cell [B] of descriptors [B, D]."""
        return self._tree.query((descriptors - self.low) / (self.high - self.low))[1].astype(np.int64)


Cells = Grid | CVT


@dataclass(frozen=True)
class Added:
    """Result of adding a batch."""

    improvement: Floats  # [B], objective minus the cell's threshold: positive if accepted, NaN if lost
    new: int  # cells that were empty before
    improved: int  # other cells whose elite was replaced
    clipped: int  # members with descriptors outside the box


class Archive:
    """Elites by cell. Empty cells have objective -inf.

    Attributes:
        objective: [C], of the elites.
        threshold: [C], to exceed for acceptance.
        descriptors: [C, D], of the elites.
        solutions: [C, P] float32.
        born: [C], iteration in which the elite was found.
    """

    def __init__(self, cells: Cells, num_parameters: int, learning_rate: float, threshold_min: float) -> None:
        """Create an empty archive; `threshold_min` is the threshold of empty cells, -inf to accept any objective."""
        count = cells.count
        self.cells = cells
        self.objective = np.full(count, EMPTY)
        self.threshold = np.full(count, threshold_min, np.float64)
        self.descriptors = np.zeros((count, len(cells.low)))
        self.solutions = np.zeros((count, num_parameters), np.float32)
        self.born = np.zeros(count, np.int64)
        self._learning_rate = learning_rate

    @property
    def occupied(self) -> NDArray[np.intp]:
        """Indices of the occupied cells, sorted."""
        return np.flatnonzero(self.objective > EMPTY)

    @property
    def best(self) -> int:
        """Cell with the highest objective, the first of equals."""
        return int(np.argmax(self.objective))

    def nearest(self, descriptors: Sequence[float]) -> int:
        """Return the occupied cell whose elite is nearest to descriptors [D], relative to their ranges."""
        offsets = (self.descriptors[self.occupied] - descriptors) / (self.cells.high - self.cells.low)
        return int(self.occupied[np.argmin(np.sum(offsets**2, axis=1))])

    def score(self, offset: float) -> float:
        """Return the QD score: the sum of the elites' objectives minus `offset`."""
        return float(np.sum(self.objective[self.occupied] - offset))

    def add(self, solutions: NDArray[np.float32], objective: Floats, descriptors: Floats, iteration: int) -> Added:
        """Add members [B]; the best of each cell becomes its elite if it is better, the first of equals.

        Members with a non-finite objective or descriptor are ignored.
        """
        valid = np.flatnonzero(np.isfinite(objective) & np.isfinite(descriptors).all(axis=1))
        values, places = objective[valid], descriptors[valid]
        cell = self.cells.index_of(places)
        improvement = np.full(len(objective), np.nan)
        improvement[valid] = values - self.threshold[cell]
        accepted = improvement[valid] > 0
        self._raise_thresholds(cell[accepted], values[accepted])
        # Sorted by cell, then by descending objective, then by index: the first of each cell is its best.
        order = np.lexsort((-values, cell))
        order = order[accepted[order]]
        first = order[np.unique(cell[order], return_index=True)[1]]
        first = first[values[first] > self.objective[cell[first]]]
        chosen, new = cell[first], int(np.sum(self.objective[cell[first]] == EMPTY))
        self.objective[chosen], self.descriptors[chosen] = values[first], places[first]
        self.solutions[chosen], self.born[chosen] = solutions[valid[first]], iteration
        clipped = ((places < self.cells.low) | (places > self.cells.high)).any(axis=1)
        return Added(improvement, new, len(first) - new, int(clipped.sum()))

    def _raise_thresholds(self, cell: NDArray[np.int64], objective: Floats) -> None:
        """Move thresholds towards the mean of the accepted objectives, as far as that many single steps would."""
        touched, inverse, counts = np.unique(cell, return_inverse=True, return_counts=True)
        if self._learning_rate == 1:
            np.maximum.at(self.threshold, cell, objective)
            return
        remaining = (1 - self._learning_rate) ** counts
        mean = np.bincount(inverse, objective, len(touched)) / counts
        self.threshold[touched] = remaining * self.threshold[touched] + (1 - remaining) * mean

    def state_dict(self) -> dict[str, Any]:
        """Return the arrays, by name."""
        return {name: getattr(self, name) for name in ("objective", "threshold", "descriptors", "solutions", "born")}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the arrays."""
        for name, array in state.items():
            setattr(self, name, array.copy())  # changed in place
