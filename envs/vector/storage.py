"""Observations or actions of N environments as arrays: one for each leaf of their space, row i for environment i."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from envs.vector.contract import VectorMisuse

Storage = Any  # an array [N, ...], or a dict or tuple of Storage where the space is a Dict or Tuple
NewArray = Callable[[tuple[int, ...], np.dtype[Any]], NDArray[Any]]  # (shape, dtype) to an array of zeros
RowIndex = slice | NDArray[np.intp]  # environments: consecutive ones as a slice with start and stop, or distinct ones

SIZED = spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary


def allocate(space: Space, num_envs: int, new: NewArray) -> Storage:
    """Arrays for one element of the space per environment; of objects where elements have no fixed size."""
    if isinstance(space, spaces.Dict):
        return {key: allocate(part, num_envs, new) for key, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(allocate(part, num_envs, new) for part in space)
    if isinstance(space, SIZED) and space.dtype is not None and space.shape is not None:
        return new((num_envs, *space.shape), space.dtype)
    return new((num_envs,), np.dtype(object))


def fill(storage: Storage, rows: RowIndex, values: Sequence[Any]) -> None:
    """Write one element of the space into each row.

    Raises:
        ValueError, TypeError, KeyError, IndexError: an element does not fit; `misfit` says how.
    """
    if isinstance(storage, dict):
        for key, part in storage.items():
            fill(part, rows, [value[key] for value in values])
    elif isinstance(storage, tuple):
        for k, part in enumerate(storage):
            fill(part, rows, [value[k] for value in values])
    elif storage.dtype.hasobject:
        for row, value in zip(numbers(rows), values, strict=True):
            storage[row] = value
    elif storage.ndim == 1:
        storage[rows] = values
    else:
        # Joined end to end, and not stacked: a third of the time, and a wrong shape does not broadcast.
        inner = storage.shape[1:]
        if isinstance(rows, slice):
            np.concatenate(values, out=storage[rows].reshape(-1, *inner[1:]))
        else:
            joined = np.concatenate(values, dtype=storage.dtype, casting="same_kind")
            storage[rows] = joined.reshape(-1, *inner)


def misfit(storage: Storage, value: Any, name: str = "") -> str | None:
    """What is wrong with an element that `fill` refused: "shape (3,) where (4,) is declared"; None if it fits."""
    if isinstance(storage, dict | tuple):
        parts: Any = storage.items() if isinstance(storage, dict) else enumerate(storage)
        for key, part in parts:
            try:
                inner = value[key]
            except (KeyError, IndexError, TypeError):
                return f"no {name}[{key!r}], which is declared" if name else f"no {key!r}, which is declared"
            if wrong := misfit(part, inner, f"{name}[{key!r}]"):
                return wrong
        return None
    if storage.dtype.hasobject:
        return None
    at = f" at {name}" if name else ""
    try:
        array = np.asarray(value)
    except ValueError:
        return f"a ragged {type(value).__name__}{at} where shape {storage.shape[1:]} is declared"
    if array.shape != storage.shape[1:]:
        return f"shape {array.shape}{at} where {storage.shape[1:]} is declared"
    if not np.can_cast(array.dtype, storage.dtype, "same_kind"):
        return f"dtype {array.dtype}{at} where {storage.dtype} is declared"
    return None


def take(storage: Storage, rows: RowIndex, copy: bool) -> Any:
    """A batch [len(rows), ...], in Gymnasium's form; without `copy`, consecutive rows come as views."""
    if isinstance(storage, dict):
        return {key: take(part, rows, copy) for key, part in storage.items()}
    if isinstance(storage, tuple):
        return tuple(take(part, rows, copy) for part in storage)
    batch = storage[rows]
    if batch.dtype.hasobject:
        return tuple(batch)
    return batch.copy() if copy and isinstance(rows, slice) else batch


def take_one(storage: Storage, row: int) -> Any:
    """One environment's element of the space, apart from the storage; a number as Python's own."""
    if isinstance(storage, dict):
        return {key: take_one(part, row) for key, part in storage.items()}
    if isinstance(storage, tuple):
        return tuple(take_one(part, row) for part in storage)
    if storage.ndim > 1:
        return storage[row].copy()
    return storage[row] if storage.dtype.hasobject else storage[row].item()


def take_each(storage: Storage, rows: RowIndex) -> list[Any]:
    """Each row's element by itself, apart from the storage: an environment may keep what it is given."""
    if isinstance(storage, dict):
        columns = [take_each(part, rows) for part in storage.values()]
        return [dict(zip(storage, values, strict=True)) for values in zip(*columns, strict=True)]
    if isinstance(storage, tuple):
        return list(zip(*(take_each(part, rows) for part in storage), strict=True))
    return list(storage[rows].copy() if isinstance(rows, slice) else storage[rows])


def move(source: Storage, target: Storage, rows: RowIndex | int) -> None:
    """Copy rows from one storage to another of the same space."""
    if isinstance(source, dict):
        for key, part in source.items():
            move(part, target[key], rows)
    elif isinstance(source, tuple):
        for one, other in zip(source, target, strict=True):
            move(one, other, rows)
    else:
        target[rows] = source[rows]


def put(storage: Storage, rows: RowIndex, actions: Any, count: int, name: str = "") -> None:
    """Write a batch of so many actions, in Gymnasium's form.

    Raises:
        VectorMisuse: wrong shape, dtype or structure.
    """
    if isinstance(storage, dict):
        if not isinstance(actions, Mapping) or set(actions) != set(storage):
            got = f"keys {sorted(actions)}" if isinstance(actions, Mapping) else type(actions).__name__
            raise VectorMisuse(f"send: actions{name} must be a mapping with keys {sorted(storage)}; got {got}")
        for key, part in storage.items():
            put(part, rows, actions[key], count, f"{name}[{key!r}]")
    elif isinstance(storage, tuple) or storage.dtype.hasobject:
        parts = len(storage) if isinstance(storage, tuple) else count
        if not isinstance(actions, Sequence | np.ndarray) or len(actions) != parts:
            got = f"{len(actions)}" if isinstance(actions, Sequence | np.ndarray) else type(actions).__name__
            raise VectorMisuse(f"send: actions{name} must be a sequence of {parts}; got {got}")
        if isinstance(storage, tuple):
            for k, part in enumerate(storage):
                put(part, rows, actions[k], count, f"{name}[{k}]")
        else:
            fill(storage, rows, list(actions))
    else:
        _put_array(storage, rows, actions, name, count)


def _put_array(storage: NDArray[Any], rows: RowIndex, actions: Any, name: str, count: int) -> None:
    array = np.asarray(actions)
    expected = (count, *storage.shape[1:])
    if array.shape != expected:
        if array.ndim and array.shape[1:] == expected[1:]:
            raise VectorMisuse(f"send: got {len(array)} actions{name} for {count} environments; pass one each")
        raise VectorMisuse(f"send: actions{name} have shape {array.shape}; pass {expected}, one row per environment")
    if array.dtype != storage.dtype and not np.can_cast(array.dtype, storage.dtype, "same_kind"):
        remedy = f"convert them, as by actions.astype(np.{storage.dtype})"
        raise VectorMisuse(f"send: actions{name} have dtype {array.dtype}; expected {storage.dtype}; {remedy}")
    storage[rows] = array


def numbers(rows: RowIndex) -> Sequence[int]:
    """The environments' numbers, as plain ints."""
    return range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist()
