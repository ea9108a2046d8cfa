"""Which rows are which block's, and in what order blocks came: what a batch of whoever is READY first is made of.

Rows that came together are often stepped together; whose they are is then remembered, and not found again.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.envs.vector.storage import RowIndex
from paddock.envs.vector.table import READY, Table


class Arrivals:
    """The blocks whose rows became READY, first come first."""

    def __init__(self, rows: Sequence[slice], table: Table) -> None:
        """Divide the table's rows: each block has as many, in their order."""
        self._rows = rows  # each block's environments
        self.ids = [np.arange(part.start, part.stop) for part in rows]
        self._each = table.num_envs // len(rows)
        self._table = table
        self._arrived: dict[int, None] = {}
        self._latest: tuple[Any, list[int]] = (None, [])  # rows that came together, and the blocks whose they are

    def split(self, rows: RowIndex) -> dict[int, RowIndex]:
        """Return the blocks of some environments, and which of these are whose."""
        ids = np.sort(np.arange(self._table.num_envs)[rows])
        owners = ids // self._each
        parts = {block: ids[owners == block] for block in np.unique(owners).tolist()}
        return {block: self._rows[block] if len(part) == self._each else part for block, part in parts.items()}

    def whole(self, rows: RowIndex) -> Sequence[int] | None:
        """Return the blocks whose environments these are, if they are all of theirs.

        None too where it takes long to say.
        """
        if isinstance(rows, slice):
            each = self._each
            if rows.start % each == 0 and rows.stop % each == 0:
                return range(rows.start // each, rows.stop // each)
        elif rows is self._latest[0]:
            return self._latest[1]
        return None

    def add(self, ids: NDArray[np.intp]) -> None:
        """Note that environments are READY without a step; their blocks keep the places that they have."""
        self._arrived |= dict.fromkeys((ids // self._each).tolist())

    def came(self, block: int) -> None:
        """Note that a block has done a step, as the last of all."""
        self._arrived.pop(block, None)
        self._arrived[block] = None

    def take(self, size: int) -> RowIndex:
        """Return READY rows of the blocks that came first, as many as a batch takes; there are so many.

        Who is interrupted before they are received may take them again.
        """
        chosen: list[int] = []
        found = 0
        rest: NDArray[np.intp] | None = None
        for block in list(self._arrived):
            ready = self._table.flags.count(READY, self._rows[block].start, self._rows[block].stop)
            if found + ready > size:  # some of an earlier block's were received by their numbers
                rest = self._ready(block)[: size - found]
                break
            if not ready:
                del self._arrived[block]
                continue
            found += ready
            chosen.append(block)
            if found == size:
                break
        chosen.sort()
        if rest is None:
            first, last = self._rows[chosen[0]], self._rows[chosen[-1]]
            if last.stop - first.start == found:
                return slice(first.start, last.stop)
            ids = np.concatenate([self.ids[block] for block in chosen])
            if len(ids) == found:
                self._latest = ids, chosen
                return ids
        parts = [self._ready(block) for block in chosen]
        return np.sort(np.concatenate(parts if rest is None else [*parts, rest]))

    def _ready(self, block: int) -> NDArray[np.intp]:
        ids = self.ids[block]
        return ids[self._table.flag[ids] == READY[0]]
