"""Infos of many environments in Gymnasium's form: one dictionary with an array and a mask `_key` for each key."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.envs.vector.contract import EnvError

OWN = ("acts", "over", "final_obs", "final_info", "env_id", "stray_reward")  # keys set by vectors
RESERVED = frozenset((*OWN, *(f"_{key}" for key in OWN)))
ZERO_RETURN, ZERO_LENGTH = np.zeros((), np.float64), np.zeros((), np.int64)  # avoid repeated conversions


def add_info(infos: dict[str, Any], info: dict[str, Any], row: int, rows: int) -> None:
    """Add one environment's info at its row of `rows`.

    Like `gymnasium.vector.VectorEnv._add_info`, but a column's dtype is widened for a value that does not fit, instead
    of rounding the value, so that the result does not depend on the order of environments. A mapping takes precedence
    over other values of its key, such as None.
    """
    for key, value in info.items():
        if isinstance(value, dict):
            add_info(_columns(infos, key, rows), value, row, rows)
        elif isinstance(infos.get(key), dict):
            continue
        else:
            shape, dtype = _kind(value)
            _column(infos, key, shape, dtype, rows)[row] = value
        _mask(infos, key, rows)[row] = True


def split_infos(infos: Mapping[str, Any], rows: int) -> list[dict[str, Any]]:
    """Return the info of each row."""
    each: list[dict[str, Any]] = [{} for _ in range(rows)]
    for key, value in infos.items():
        if f"_{key}" in infos:
            column = split_infos(value, rows) if isinstance(value, Mapping) else value
            for i in np.flatnonzero(infos[f"_{key}"]).tolist():
                one = column[i]
                each[i][key] = one.item() if isinstance(one, np.bool_ | np.int64 | np.float64) else one
    return each


def read_numbers(infos: Mapping[str, Any], names: Sequence[str], row: int) -> list[float]:
    """Return numbers of one row's info by dotted keys; raise EnvError if one is missing or not a number."""
    return [_read_number(infos, name, row) for name in names]


def _read_number(infos: Mapping[str, Any], name: str, row: int) -> float:
    *parents, last = name.split(".")
    inner: Any = infos
    for key in parents:
        inner = inner.get(key) if isinstance(inner, Mapping) else None
    column = inner.get(last) if isinstance(inner, Mapping) else None
    found = column is not None and not isinstance(column, Mapping)
    if found and f"_{last}" in inner:
        found = bool(inner[f"_{last}"][row])
    value = np.asarray(column[row] if column is not None and found else None)
    if value.shape != () or value.dtype.kind not in "biuf":
        has = sorted(key for key in infos if not key.startswith("_") and key != "episode") or ["nothing"]
        got = f"it is {value.tolist()!r}" if found else f"it has {', '.join(has)}"
        raise EnvError(f"env.metrics={name}: the info at an episode's end has no such number; {got}")
    return float(value)


def episode_info(returns: NDArray[Any], lengths: NDArray[Any], ended: NDArray[np.bool_]) -> dict[str, Any]:
    """Return the `final_info` of ended episodes: `episode` with return `r` and length `l`, 0 for running ones."""
    returns, lengths = np.where(ended, returns, ZERO_RETURN), np.where(ended, lengths, ZERO_LENGTH)
    return {"episode": {"r": returns, "_r": ended, "l": lengths, "_l": ended}, "_episode": ended}


def merge_infos(infos: dict[str, Any], part: dict[str, Any], at: NDArray[np.intp], rows: int) -> None:
    """Add infos [len(at)] of some environments at their rows `at` of `rows`."""
    for key, value in part.items():
        mask = part.get(f"_{key}")
        if mask is None:
            continue  # a mask itself
        if isinstance(value, dict):
            merge_infos(_columns(infos, key, rows), value, at, rows)
        elif isinstance(infos.get(key), dict):
            continue
        else:
            column = _column(infos, key, value.shape[1:], value.dtype, rows)
            if column.shape[1:] == value.shape[1:]:
                column[at[mask]] = value[mask]
            else:
                for row, one in zip(at[mask], value[mask], strict=True):
                    column[row] = one
        _mask(infos, key, rows)[at[mask]] = True


def pick_infos(infos: Mapping[str, Any], rows: NDArray[np.bool_]) -> dict[str, Any]:
    """Return the infos of chosen rows, without keys that none of them has.

    A key without a mask applies to all rows, with a value for each or one for all.
    """
    picked: dict[str, Any] = {}
    masks = {f"_{key}" for key in infos}
    for key, value in infos.items():
        if key in masks:
            continue
        mask = infos[f"_{key}"][rows] if f"_{key}" in infos else np.ones(np.count_nonzero(rows), np.bool_)
        if not mask.any():
            continue
        if isinstance(value, Mapping):
            picked[key] = pick_infos(value, rows)
        else:
            column = np.asarray(value)
            picked[key] = column[rows] if column.ndim else np.full(len(mask), column)
        picked[f"_{key}"] = mask
    return picked


def _kind(value: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    if type(value) is int and not -(2**63) <= value < 2**63:  # such as a hash
        return (), np.dtype(object)
    if type(value) in (int, float, bool) or (isinstance(value, np.number) and not isinstance(value, np.timedelta64)):
        return (), np.dtype(type(value))
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype
    return (), np.dtype(object)


def _column(infos: dict[str, Any], key: str, shape: tuple[int, ...], dtype: np.dtype[Any], rows: int) -> NDArray[Any]:
    """Return the array of a key with a dtype wide enough for `dtype`, or of objects if shapes differ."""
    column = infos.get(key)
    if column is None:
        column = infos[key] = np.full((rows, *shape), None if dtype.hasobject else 0, dtype)
    elif column.shape[1:] != shape:
        if column.dtype != object or column.ndim > 1:
            each, infos[key] = column, np.full(rows, None, object)
            column = infos[key]
            for row in np.flatnonzero(infos[f"_{key}"]):
                column[row] = each[row]
    elif column.dtype != dtype:
        try:
            wider = np.result_type(column.dtype, dtype)
        except TypeError:  # such as times and numbers
            wider = np.dtype(object)
        if wider != column.dtype:
            column = infos[key] = column.astype(wider)
            if wider.hasobject:
                column[~infos[f"_{key}"]] = None
    return column


def _columns(infos: dict[str, Any], key: str, rows: int) -> dict[str, Any]:
    """Return the columns of a key whose values are mappings."""
    if not isinstance(infos.get(key), dict):
        infos[key], infos[f"_{key}"] = {}, np.zeros(rows, np.bool_)
    return infos[key]


def _mask(infos: dict[str, Any], key: str, rows: int) -> NDArray[np.bool_]:
    mask = infos.get(f"_{key}")
    if mask is None:
        mask = infos[f"_{key}"] = np.zeros(rows, np.bool_)
    return mask
