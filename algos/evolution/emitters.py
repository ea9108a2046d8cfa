"""Emitters: sources of new members for an archive, which learn from how much the members improved it.

`ask` returns members [B, P], given the archive's elites. `tell` returns whether the emitter was restarted; it takes the
archive with these members, their objective and improvement [B], as `Archive.add` returned it, and the generator of the
last `ask`, which has advanced. `search` is the state, which changes only in `tell`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.evolution.archive import Archive, Floats
from paddock.algos.evolution.strategies.protocol import Recombines, StrategySettings


@dataclass(eq=False)
class Variation:
    """Random variation of elites: Gaussian noise, and with `line_sigma` the iso-line operator.

    The operator moves an elite along the line to another one (Vassiliades & Mouret 2018, arXiv:1804.03906).
    """

    batch_size: int
    sigma: float
    line_sigma: float  # 0: Gaussian noise only
    start: NDArray[np.float32]  # [P], mean of the first members
    start_std: float  # their standard deviation
    search: Recombines | None = None

    def ask(self, archive: Archive, generator: np.random.Generator) -> NDArray[np.float32]:
        """Return variations of random elites; the first members are random."""
        occupied = archive.occupied
        noise = generator.standard_normal((self.batch_size, self.start.size), dtype=np.float32)
        if not len(occupied):
            return self.start + np.float32(self.start_std) * noise
        parents = archive.solutions[generator.choice(occupied, self.batch_size)]
        members = parents + np.float32(self.sigma) * noise
        if self.line_sigma:
            others = archive.solutions[generator.choice(occupied, self.batch_size)]
            steps = generator.normal(0, self.line_sigma, (self.batch_size, 1)).astype(np.float32)
            members += steps * (others - parents)
        return members

    def tell(self, archive: Archive, objective: Floats, improvement: Floats, generator: np.random.Generator) -> bool:
        """Return False: there is nothing to learn."""
        return False


class Improvement:
    """Evolution strategy that maximizes the improvement of the archive (CMA-ME; Fontaine et al. 2020).

    Members of empty cells without threshold rank first, by their objective.
    """

    def __init__(
        self, settings: StrategySettings, batch_size: int, start: NDArray[np.float32], *, filters: bool, basic: bool
    ) -> None:
        """Initialize the strategy at `start` [P].

        With `filters`, all accepted members are parents, otherwise the better half of the members. With `basic`, only
        a degenerate distribution restarts, otherwise also a batch of which no member is accepted.
        """
        self._settings, self._batch_size, self._start = settings, batch_size, start
        self._filters, self._basic = filters, basic
        self._noise = np.zeros((0, start.size), np.float32)  # [B, P], of the last members
        self.search = self._restart(start)

    def ask(self, archive: Archive, generator: np.random.Generator) -> NDArray[np.float32]:
        """Return members of the strategy."""
        self._noise = generator.standard_normal((self._batch_size, self._start.size), dtype=np.float32)
        members = self.search.sample(self._noise.__getitem__)
        return np.stack([members.member(k, self._noise.__getitem__) for k in range(self._batch_size)])

    def tell(self, archive: Archive, objective: Floats, improvement: Floats, generator: np.random.Generator) -> bool:
        """Update the strategy, or restart it at a random elite."""
        order = np.lexsort((-objective, -improvement))[: np.sum(~np.isnan(improvement))]  # NaN is last
        ranks = np.full(self._batch_size, np.nan)
        ranks[order] = -np.arange(len(order))
        accepted = int((improvement > 0).sum())
        if accepted or (len(order) and not self._filters):
            parents = accepted if self._filters else None
            self.search, _ = self.search.tell(ranks.reshape(-1, 2), self._noise.__getitem__, parents)
        values = np.stack([improvement, objective], axis=1)[order]
        flat = len(order) > 1 and bool((values == values[0]).all())
        smallest, largest = self.search.axes
        # Bounds of Hansen's implementation, pycma; NaN is degenerate, too.
        healthy = smallest > 0 and 1e-11 < largest < 1e7 * smallest and np.isfinite(self.search.mean).all()
        if healthy and not flat and (accepted or self._basic):
            return False
        occupied = archive.occupied
        self.search = self._restart(archive.solutions[generator.choice(occupied)] if len(occupied) else self._start)
        return True

    def _restart(self, mean: NDArray[np.float32]) -> Recombines:
        search: Any = self._settings.start(mean.astype(np.float64), self._batch_size)
        return search


Emitter = Variation | Improvement
