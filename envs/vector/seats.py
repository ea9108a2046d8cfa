"""Elements of the seats of worlds in one array, where they have several roles."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, final

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from paddock.envs.spaces.layout import Layout
from paddock.envs.vector.buffers import Buffer, check_rows
from paddock.envs.vector.contract import VectorMisuse
from paddock.envs.vector.storage import RowIndex, numbers
from paddock.envs.worlds.roles import SeatRows


def buffer_of(space: Space, layout: Layout | SeatRows | None, array: NDArray[Any], packed: bool = False) -> Buffer:
    """Return the buffer of rows of one role or of several; see `Buffer.of`."""
    if isinstance(layout, SeatRows):
        return Seats(space, layout, array, packed)
    return Buffer.of(space, layout, array, packed)


@final
class Seats(Buffer):
    """Elements of the seats of worlds with several roles: rows of which each role's buffer sees its part."""

    def __init__(self, space: Space, layout: SeatRows, array: NDArray[Any], packed: bool) -> None:
        self.array, self._layout, self._packed = array, layout, packed
        assert isinstance(space, spaces.Dict)
        self._space = dict(space.items())
        parts = enumerate(zip(self._space.values(), layout.layouts, strict=True))
        self._roles = [Buffer.of(part, own, layout.view(k, array)) for k, (part, own) in parts]

    def write(self, rows: RowIndex, elements: Sequence[Any]) -> None:
        for role, at, where in self._split(rows):
            role.write(at, [elements[k] for k in where.tolist()])

    def take(self, rows: RowIndex, copy: bool) -> Any:
        if self._packed:
            batch = self.array[rows]
            return batch.copy() if copy and isinstance(rows, slice) else batch
        parts = [role.take(at, copy=True) for role, at, _ in self._split(rows)]
        return dict(zip(self._space, parts, strict=True))

    def take_each(self, rows: RowIndex) -> list[Any]:
        each: list[Any] = [None] * len(numbers(rows))
        for role, at, where in self._split(rows):
            for k, element in zip(where.tolist(), role.take_each(at), strict=True):
                each[k] = element
        return each

    def finals(self, rows: NDArray[np.intp]) -> Iterable[Any]:
        each: list[Any] = [None] * len(rows)
        for role, at, where in self._split(rows):
            for k, element in zip(where.tolist(), role.finals(at), strict=True):
                each[k] = element
        return each

    def put(self, rows: RowIndex, actions: Any, count: int) -> None:
        if isinstance(actions, np.ndarray) and actions.dtype.kind == "V":
            check_rows(self._layout, actions, count)
            self.array[rows] = actions.view(self._layout.row)
            return
        if not isinstance(actions, Mapping) or actions.keys() != self._space.keys():
            got = f"keys {sorted(actions)}" if isinstance(actions, Mapping) else type(actions).__name__
            raise VectorMisuse(f"send: actions must be a mapping with keys {sorted(self._space)}, or rows; got {got}")
        for name, (role, at, _) in zip(self._space, self._split(rows), strict=True):
            role.put(at, actions[name], len(at))

    def pack(self, rows: RowIndex, batch: Any) -> None:
        for name, (role, at, _) in zip(self._space, self._split(rows), strict=True):
            role.pack(at, batch[name])

    def _split(self, rows: RowIndex) -> list[tuple[Buffer, NDArray[np.intp], NDArray[np.intp]]]:
        """Return each role's buffer, which of these rows are its own, and where among them they are."""
        ids = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        parts = zip(self._roles, self._layout.split(ids), strict=True)
        return [(role, ids[where], where) for role, where in parts]
