"""Elements of N environments in one array, as `storage.allocate` gives it: written, read and handed on in batches."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from functools import cached_property
from operator import index
from typing import Any, final

import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector.utils import concatenate, create_empty_array
from numpy.typing import NDArray

from paddock.envs.spaces.columns import DOUBTS, Fill
from paddock.envs.spaces.layout import Layout
from paddock.envs.spaces.parts import Index, Misfit, Read, Write
from paddock.envs.spaces.views import select
from paddock.envs.vector.contract import VectorMisuse
from paddock.envs.vector.storage import RowIndex, numbers
from paddock.envs.worlds.roles import SeatRows

MANY = 16  # elements, from which it is faster to write them part by part


class Refused(Exception):
    """An element could not be written; `cause` says why.

    Attributes:
        row: for which environment.
    """

    def __init__(self, row: int, cause: Exception) -> None:
        super().__init__(row, cause)
        self.row, self.cause = row, cause


class Buffer(ABC):
    """An array that `allocate` gave, and its elements.

    Attributes:
        array: [N, ...].
    """

    array: NDArray[Any]

    @staticmethod
    def of(space: Space, layout: Layout | None, array: NDArray[Any], packed: bool = False) -> "Buffer":
        """Return the buffer of a space.

        Args:
            packed: whether batches are rows, and not in Gymnasium's form.
        """
        if layout is None:
            return Objects(space, array)
        if array.dtype.kind == "V":
            return RowBuffer(space, layout, array, packed)
        return NumberBuffer(layout, array, packed)

    @abstractmethod
    def write(self, rows: RowIndex, elements: Sequence[Any]) -> None:
        """Write one element into each row.

        Raises:
            Refused: an element is not of the space. Of a space with a structure, what was written before it stays.
        """

    @abstractmethod
    def take(self, rows: RowIndex, copy: bool) -> Any:
        """Return a batch [len(rows), ...]; without `copy`, consecutive rows come as views."""

    @abstractmethod
    def take_each(self, rows: RowIndex) -> list[Any]:
        """Return each row's element by itself, apart from the array: an environment may keep what it is given."""

    @abstractmethod
    def finals(self, rows: NDArray[np.intp]) -> Iterable[Any]:
        """Return each row as infos have it in Gymnasium's form: an element of the space, apart from the array."""

    @abstractmethod
    def put(self, rows: RowIndex, actions: Any, count: int) -> None:
        """Write a batch of so many actions, in Gymnasium's form or as rows.

        Raises:
            VectorMisuse: wrong shape, dtype or structure.
        """

    @abstractmethod
    def pack(self, rows: RowIndex, batch: Any) -> None:
        """Write a batch of observations in Gymnasium's form.

        Raises:
            Misfit: it is not of that form.
        """


@final
class NumberBuffer(Buffer):
    """Elements that are one array of numbers, or a number."""

    def __init__(self, layout: Layout, array: NDArray[Any], packed: bool) -> None:
        self.array, self._layout, self._opaque = array, layout, packed and not layout.plain
        self._dtype, self._inner = array.dtype, array.shape[1:]
        self._joined = (-1, *array.shape[2:])  # shape of elements that are joined
        self._given = as_rows(layout, array) if self._opaque else array  # what batches are taken from
        self._joins = layout.plain and array.ndim > 1
        self._casting: Any = "same_kind" if array.dtype.kind == "f" else "safe"  # by which integers wrap around
        leaf = layout.leaves[0]
        self._choices = (leaf.starts[0], leaf.starts[0] + leaf.sizes[0] - 1) if leaf.kind == "choice" else None

    def write(self, rows: RowIndex, elements: Sequence[Any]) -> None:
        inner = self._inner
        if self._joins:
            try:
                # Joined end to end, and not stacked: a third of the time, and a wrong shape does not broadcast.
                if set(map(len, elements)) != {inner[0]}:
                    raise ValueError  # or one's surplus could fill what another lacks
                if isinstance(rows, slice):
                    np.concatenate(elements, out=self.array[rows].reshape(self._joined), casting=self._casting)
                else:
                    joined = np.concatenate(elements, dtype=self._dtype, casting=self._casting)
                    if joined.shape[1:] != inner[1:]:
                        raise ValueError
                    self.array[rows] = joined.reshape(-1, *inner)
                return
            except ValueError:
                pass  # one by one, they say what is wrong
            except TypeError:  # also of integers of a wider dtype, as int64 into int32
                if self._write_wider(rows, elements):
                    return
        elif self._choices is not None:
            low, high = self._choices
            try:
                chosen = list(map(index, elements))
                if low <= min(chosen) and max(chosen) <= high:
                    self.array[rows] = chosen
                    return
            except TypeError:
                pass  # as above
        beside, write = self._beside
        write_each(write, rows, elements)
        self.array[rows] = beside[rows]

    def _write_wider(self, rows: RowIndex, elements: Sequence[Any]) -> bool:
        """Write integers of a dtype that the array's does not include; False, and none written, where one changes."""
        if self._dtype.kind not in "iu":
            return False
        try:
            joined = np.concatenate(elements)
        except (ValueError, TypeError):
            return False
        if joined.dtype.kind not in "iu" or joined.shape[1:] != self._inner[1:]:
            return False
        cast = joined.astype(self._dtype)
        if not (cast == joined).all():
            return False
        self.array[rows] = cast.reshape(-1, *self._inner)
        return True

    def take(self, rows: RowIndex, copy: bool) -> Any:
        batch = self._given[rows]
        return batch.copy() if copy and isinstance(rows, slice) else batch

    def take_each(self, rows: RowIndex) -> list[Any]:
        return list(self.array[rows].copy() if isinstance(rows, slice) else self.array[rows])

    def finals(self, rows: NDArray[np.intp]) -> Iterable[Any]:
        return self.array[rows] if self._inner else self.array[rows].tolist()

    def put(self, rows: RowIndex, actions: Any, count: int) -> None:
        array, expected = np.asarray(actions), (count, *self._inner)
        if array.dtype.kind == "V" and not self._layout.plain:
            check_rows(self._layout, array, count)
            array = self._layout.fields(array)
        if array.shape != expected:
            if array.ndim and array.shape[1:] == self._inner:
                raise VectorMisuse(f"send: got {len(array)} actions for {count} environments; pass one each")
            raise VectorMisuse(f"send: actions have shape {array.shape}; pass {expected}, one row per environment")
        if array.dtype != self._dtype and not np.can_cast(array.dtype, self._dtype, "same_kind"):
            remedy = f"convert them, as by actions.astype(np.{self._dtype})"
            raise VectorMisuse(f"send: actions have dtype {array.dtype}; expected {self._dtype}; {remedy}")
        self.array[rows] = array

    def pack(self, rows: RowIndex, batch: Any) -> None:
        array, expected = np.asarray(batch), (len(numbers(rows)), *self._inner)
        if array.shape != expected:
            raise Misfit(f"shape {array.shape} where {expected} is declared")
        self.array[rows] = array

    @cached_property
    def _beside(self) -> tuple[NDArray[Any], Write]:
        """An array like this one, and its writer: until all elements have proved good, none is written here."""
        rows = self._layout.zeros(len(self.array))
        return self._layout.fields(rows), self._layout.writer(rows)


@final
class RowBuffer(Buffer):
    """Elements with a structure, as opaque rows."""

    def __init__(self, space: Space, layout: Layout, array: NDArray[Any], packed: bool) -> None:
        self.array, self._space, self._layout, self._packed = array, space, layout, packed
        self._sized = not any(leaf.kind in ("length", "tag", "text", "links") for leaf in layout.leaves)

    def write(self, rows: RowIndex, elements: Sequence[Any]) -> None:
        if self._fill is not None and len(elements) >= MANY:
            try:
                self._fill(rows, elements)
                return
            except DOUBTS:
                pass  # one by one, they say what is wrong
        write_each(self._write, rows, elements)

    def take(self, rows: RowIndex, copy: bool) -> Any:
        if self._packed or copy or not self._sized or not isinstance(rows, slice):
            batch = self.array[rows]
            batch = batch.copy() if copy and isinstance(rows, slice) else batch
            return batch if self._packed else self._layout.batch(batch)
        return select(self._views, rows)

    def take_each(self, rows: RowIndex) -> list[Any]:
        batch = self.array[rows]
        return apart(self._space, self._layout.batch(batch.copy() if isinstance(rows, slice) else batch))

    def finals(self, rows: NDArray[np.intp]) -> Iterable[Any]:
        return [self._read(i) for i in rows.tolist()]

    def put(self, rows: RowIndex, actions: Any, count: int) -> None:
        if isinstance(actions, np.ndarray) and actions.dtype.kind == "V":
            check_rows(self._layout, actions, count)
            self.array[rows] = actions.view(self._layout.row)
            return
        check_form(self._space, actions, count, "")
        try:
            self._pack(rows, actions, choices=False)  # those of agents that do not act are not looked at
        except Misfit as misfit:
            remedy = f"pass a batch in Gymnasium's form, one for each of {count} environments"
            raise VectorMisuse(f"send: actions have {misfit}; {remedy}") from None

    def pack(self, rows: RowIndex, batch: Any) -> None:
        self._pack(rows, batch, choices=True)

    def _pack(self, rows: RowIndex, batch: Any, choices: bool) -> None:
        packed = self._layout.zeros(len(numbers(rows)))
        self._layout.pack(batch, packed, choices)
        self.array[rows] = packed

    # Made when they are needed, as each is compiled for this space and this array.

    @cached_property
    def _write(self) -> Write:
        return self._layout.writer(self.array)

    @cached_property
    def _fill(self) -> Fill | None:
        return self._layout.filler(self.array)

    @cached_property
    def _read(self) -> Read:
        return self._layout.reader(self.array)

    @cached_property
    def _views(self) -> Any:
        return self._layout.fields(self.array)


@final
class Objects(Buffer):
    """Elements of no known size, as they are."""

    def __init__(self, space: Space, array: NDArray[Any]) -> None:
        self.array, self._space = array, space

    def write(self, rows: RowIndex, elements: Sequence[Any]) -> None:
        write_each(self._write, rows, elements)

    def take(self, rows: RowIndex, copy: bool) -> Any:
        return join(self._space, self.array[rows])

    def take_each(self, rows: RowIndex) -> list[Any]:
        return list(self.array[rows])

    def finals(self, rows: NDArray[np.intp]) -> Iterable[Any]:
        return list(self.array[rows])

    def put(self, rows: RowIndex, actions: Any, count: int) -> None:
        check_form(self._space, actions, count, "")
        self.write(rows, apart(self._space, actions))

    def pack(self, rows: RowIndex, batch: Any) -> None:
        self.write(rows, apart(self._space, batch))

    def _write(self, row: Index, element: Any) -> None:
        try:
            join(self._space, [element])
        except (ValueError, TypeError, LookupError) as error:
            raise Misfit(f"what {self._space} has not: {' '.join(str(error).split())}") from error
        self.array[row] = deepcopy(element)  # an environment may go on with it


def write_each(write: Write, rows: RowIndex, elements: Sequence[Any]) -> None:
    """Write elements one by one; raises Refused."""
    row = 0
    try:
        for row, element in zip(numbers(rows), elements, strict=True):
            write(row, element)
    except Exception as error:
        raise Refused(row, error) from error


def as_rows(layout: Layout, array: NDArray[Any]) -> NDArray[Any]:
    """Return an array [B, ...] of numbers as rows [B], without a copy."""
    return array.reshape(len(array), -1).view(layout.row).reshape(len(array))


def apart(space: Space, batch: Any) -> list[Any]:
    """Return the elements of a batch in Gymnasium's form, one by one."""
    if isinstance(space, spaces.Dict):
        columns = [apart(part, batch[key]) for key, part in space.items()]
        return [dict(zip(space, values, strict=True)) for values in zip(*columns, strict=True)]
    if isinstance(space, spaces.Tuple):
        return list(zip(*(apart(part, one) for part, one in zip(space, batch, strict=True)), strict=True))
    return list(batch)


def join(space: Space, elements: Sequence[Any] | NDArray[Any]) -> Any:
    """Return a batch of elements in Gymnasium's form."""
    out: Any = create_empty_array(space, len(elements))
    return concatenate(space, elements, out)


def check_rows(layout: Layout | SeatRows, rows: NDArray[Any], count: int) -> None:
    """Raise VectorMisuse unless these are so many rows of a layout."""
    if rows.shape != (count,):
        raise VectorMisuse(f"send: got rows of shape {rows.shape} for {count} environments; pass one row each")
    if rows.dtype.itemsize != layout.itemsize:
        what = f"rows of {rows.dtype.itemsize} bytes where {layout.itemsize} are declared"
        raise VectorMisuse(f"send: got {what}; lay them out by the environment's own EnvSpec.actions")


def check_form(space: Space, actions: Any, count: int, name: str) -> None:
    """Raise VectorMisuse unless a batch of so many actions has the mappings, tuples and lengths of its space."""
    if isinstance(space, spaces.Dict):
        if not isinstance(actions, Mapping) or set(actions) != set(space):
            got = f"keys {sorted(actions)}" if isinstance(actions, Mapping) else type(actions).__name__
            raise VectorMisuse(f"send: actions{name} must be a mapping with keys {sorted(space)}; got {got}")
        for key, part in space.items():
            check_form(part, actions[key], count, f"{name}[{key!r}]")
        return
    parts = len(space) if isinstance(space, spaces.Tuple) else count
    if not isinstance(actions, Sequence | np.ndarray) or len(actions) != parts:
        got = f"{len(actions)}" if isinstance(actions, Sequence | np.ndarray) else type(actions).__name__
        raise VectorMisuse(f"send: actions{name} must be a sequence of {parts}; got {got}")
    for k, part in enumerate(space if isinstance(space, spaces.Tuple) else ()):
        check_form(part, actions[k], count, f"{name}[{k}]")
