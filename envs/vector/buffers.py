"""Buffers: elements of N environments in one array of `storage.allocate`, written and read in batches."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, final

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from paddock.envs.multiagent.roles import SeatRows
from paddock.envs.spaces.codecs import Read, SpaceMismatch, Write
from paddock.envs.spaces.columns import FILL_ERRORS, Fill
from paddock.envs.spaces.layout import Layout
from paddock.envs.spaces.views import select
from paddock.envs.vector.contract import VectorMisuse
from paddock.envs.vector.storage import RowIndex, numbers


class WriteError(Exception):
    """An element could not be written, because of `cause`.

    Attributes:
        row: of the environment.
    """

    def __init__(self, row: int, cause: Exception) -> None:
        super().__init__(row, cause)
        self.row, self.cause = row, cause


@final
class Buffer:
    """Elements of known size, one per row."""

    def __init__(self, space: Space, layout: Layout, array: NDArray[Any], packed: bool = False) -> None:
        """Use an array of `allocate`; with `packed`, batches are rows instead of Gymnasium's form."""
        self.array, self._space, self._layout = array, space, layout
        as_rows = layout.plain or array.dtype.kind == "V"
        self._rows = array if as_rows else array.reshape(len(array), -1).view(layout.row).reshape(len(array))
        self._packed = packed and not layout.plain
        self._dtype, self._inner = array.dtype, array.shape[1:]
        self._numbers = array.dtype.kind != "V"  # an element is an array of numbers or a number
        self._sized = not any(leaf.kind in ("length", "text") for leaf in layout.leaves)

    def write(self, rows: RowIndex, elements: Sequence[Any]) -> None:
        """Write one element into each row.

        Raises:
            WriteError: an element does not belong to the space; those before it may have been written.
        """
        if self._numbers and self._fill is not None:
            try:
                self._fill(rows, elements)
                return
            except FILL_ERRORS:
                pass  # writing one by one reports the cause
        write_each(self._write, rows, elements)

    def take(self, rows: RowIndex, copy: bool) -> Any:
        """Return a batch [len(rows), ...]; without `copy`, consecutive rows are views."""
        batch = self._rows[rows] if self._packed else self.array[rows]
        batch = batch.copy() if copy and isinstance(rows, slice) else batch
        if self._packed or self._numbers:
            return batch
        if copy or not isinstance(rows, slice) or not self._sized:
            return self._layout.batch(batch)
        return select(self._views, rows)

    def take_each(self, rows: RowIndex) -> list[Any]:
        """Return a copy of each row's element, which an environment may keep."""
        batch = self.array[rows].copy() if isinstance(rows, slice) else self.array[rows]
        return list(batch) if self._numbers else unbatch(self._space, self._layout.batch(batch))

    def finals(self, rows: NDArray[np.intp]) -> Iterable[Any]:
        """Return a copy of each row as an element of the space, for infos in Gymnasium's form."""
        return [self._read(i) for i in rows.tolist()]

    def put(self, rows: RowIndex, actions: Any, count: int) -> None:
        """Write a batch of `count` actions, in Gymnasium's form or as rows; raise VectorMisuse for other batches."""
        if self._numbers:
            actions = np.asarray(actions)
            if actions.dtype == self._dtype and actions.shape == (count, *self._inner):
                self.array[rows] = actions
                return
        if isinstance(actions, np.ndarray) and actions.dtype.kind == "V" and not self._layout.plain:
            check_rows(self._layout, actions, count)
            self._rows[rows] = actions.view(self._layout.row)
            return
        packed = self._layout.zeros(count)
        try:
            self._layout.pack(actions, packed)  # choices are not checked: inactive agents' are ignored
        except SpaceMismatch as misfit:
            remedy = f"pass a batch in Gymnasium's form, one for each of {count} environments"
            raise VectorMisuse(f"send: actions have {misfit}; {remedy}") from None
        self._rows[rows] = packed

    # Lazy, since each is compiled for this space and this array.

    @cached_property
    def _write(self) -> Write:
        return self._layout.writer(self._rows)

    @cached_property
    def _fill(self) -> Fill | None:
        return self._layout.filler(self._rows)

    @cached_property
    def _read(self) -> Read:
        return self._layout.reader(self._rows)

    @cached_property
    def _views(self) -> Any:
        return self._layout.fields(self._rows)


@final
class RoleBuffers:
    """Elements of environments with several roles, in wide rows that each role's buffer views."""

    def __init__(self, space: Space, layout: SeatRows, array: NDArray[Any], packed: bool) -> None:
        """Use an array of `allocate`; `packed` as in `Buffer`."""
        self.array, self._layout, self._packed = array, layout, packed
        assert isinstance(space, spaces.Dict)
        self._space = dict(space.items())
        parts = enumerate(zip(self._space.values(), layout.layouts, strict=True))
        self._roles = [Buffer(part, own, layout.view(k, array)) for k, (part, own) in parts]

    def write(self, rows: RowIndex, elements: Sequence[Any]) -> None:
        """See `Buffer.write`."""
        for role, at, where in self._split(rows):
            role.write(at, [elements[k] for k in where.tolist()])

    def take(self, rows: RowIndex, copy: bool) -> Any:
        """See `Buffer.take`."""
        if self._packed:
            batch = self.array[rows]
            return batch.copy() if copy and isinstance(rows, slice) else batch
        parts = [role.take(at, copy=True) for role, at, _ in self._split(rows)]
        return dict(zip(self._space, parts, strict=True))

    def take_each(self, rows: RowIndex) -> list[Any]:
        """See `Buffer.take_each`."""
        return self._each(rows, Buffer.take_each)

    def finals(self, rows: NDArray[np.intp]) -> Iterable[Any]:
        """See `Buffer.finals`."""
        return self._each(rows, Buffer.finals)

    def put(self, rows: RowIndex, actions: Any, count: int) -> None:
        """See `Buffer.put`."""
        if isinstance(actions, np.ndarray) and actions.dtype.kind == "V":
            check_rows(self._layout, actions, count)
            self.array[rows] = actions.view(self._layout.row)
            return
        if not isinstance(actions, Mapping) or actions.keys() != self._space.keys():
            got = f"keys {sorted(actions)}" if isinstance(actions, Mapping) else type(actions).__name__
            raise VectorMisuse(f"send: actions must be a mapping with keys {sorted(self._space)}, or rows; got {got}")
        for name, (role, at, _) in zip(self._space, self._split(rows), strict=True):
            role.put(at, actions[name], len(at))

    def _each(self, rows: RowIndex, method: Any) -> list[Any]:
        each: list[Any] = [None] * len(numbers(rows))
        for role, at, where in self._split(rows):
            for k, element in zip(where.tolist(), method(role, at), strict=True):
                each[k] = element
        return each

    def _split(self, rows: RowIndex) -> list[tuple[Buffer, NDArray[np.intp], NDArray[np.intp]]]:
        """Return each role's buffer, its rows among these, and their positions."""
        ids = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        parts = zip(self._roles, self._layout.split(ids), strict=True)
        return [(role, ids[where], where) for role, where in parts]


AnyBuffer = Buffer | RoleBuffers


def buffer_of(space: Space, layout: Layout | SeatRows, array: NDArray[Any], packed: bool = False) -> AnyBuffer:
    """Return a buffer for an array of `allocate`; `packed` as in `Buffer`."""
    if isinstance(layout, SeatRows):
        return RoleBuffers(space, layout, array, packed)
    return Buffer(space, layout, array, packed)


def write_each(write: Write, rows: RowIndex, elements: Sequence[Any]) -> None:
    """Write elements one by one; raise WriteError for the first that fails."""
    row = 0
    try:
        for row, element in zip(numbers(rows), elements, strict=True):
            write(row, element)
    except Exception as error:
        raise WriteError(row, error) from error


def unbatch(space: Space, batch: Any) -> list[Any]:
    """Return the elements of a batch in Gymnasium's form as a list."""
    if isinstance(space, spaces.Dict):
        columns = [unbatch(part, batch[key]) for key, part in space.items()]
        return [dict(zip(space, values, strict=True)) for values in zip(*columns, strict=True)]
    if isinstance(space, spaces.Tuple):
        return list(zip(*(unbatch(part, one) for part, one in zip(space, batch, strict=True)), strict=True))
    return list(batch)


def check_rows(layout: Layout | SeatRows, rows: NDArray[Any], count: int) -> None:
    """Raise VectorMisuse unless these are `count` rows of a layout."""
    if rows.shape != (count,):
        raise VectorMisuse(f"send: got rows of shape {rows.shape} for {count} environments; pass one row each")
    if rows.dtype.itemsize != layout.itemsize:
        what = f"rows of {rows.dtype.itemsize} bytes, expected {layout.itemsize}"
        raise VectorMisuse(f"send: got {what}; lay them out by the environment's EnvSpec.actions")
