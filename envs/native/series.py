"""Sums along time and over rows in a fixed order, in native code or with the same bits in NumPy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.envs.native import library

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]


def carry_back(delta: NDArray[np.floating[Any]], carry: Floats) -> Floats:
    """Compute the backward recursion sums[t] = delta[t] + carry[t] * sums[t + 1] over arrays [T, B]."""
    delta, sums = delta.astype(np.float32, copy=False), np.empty(delta.shape, np.float32)
    if library.usable():
        pointers = _pointers(delta, np.float32), _pointers(carry, np.float32)
        library.load().carry_back(pointers[0][1], pointers[1][1], sums.ctypes.data, *delta.shape)
        return sums
    running = np.zeros(delta.shape[1:], np.float32)
    with np.errstate(all="ignore"):  # as in native code
        for t in range(len(delta) - 1, -1, -1):
            running = delta[t] + carry[t] * running
            sums[t] = running
    return sums


def discount(reward: Floats, ended: NDArray[np.bool_], gamma: float, running: Doubles) -> tuple[Doubles, Doubles]:
    """Compute the discounted returns of running episodes after each step.

    Rewards and ends are [T, B], `running` is [B] before the first step.

    Returns:
        Returns [T, B], and [B] after the last step, 0 where the episode ended.
    """
    returns = np.empty(reward.shape)
    running = running.copy()
    if library.usable():
        pointers = _pointers(reward, np.float32), _pointers(ended, np.bool_)
        data = pointers[0][1], pointers[1][1], gamma, running.ctypes.data, returns.ctypes.data
        library.load().discount(*data, *reward.shape)
        return returns, running
    with np.errstate(all="ignore"):
        for t in range(len(reward)):
            returns[t] = running * gamma + reward[t]
            running = np.where(ended[t], 0.0, returns[t])
    return returns, running


def moments(rows: NDArray[Any]) -> tuple[Doubles, Doubles]:
    """Compute mean and sum of squared deviations [O] of the columns of rows [B, O], in double precision; B > 0."""
    count, columns = rows.shape
    if library.usable():
        mean, m2 = np.empty((2, columns))
        kept, data = _pointers(rows, np.float32 if rows.dtype == np.float32 else np.float64)
        library.load().moments(data, kept.dtype == np.float32, count, columns, mean.ctypes.data, m2.ctypes.data)
        return mean, m2
    wide = np.ascontiguousarray(rows, np.float64)
    with np.errstate(all="ignore"):
        mean = _sum_rows(wide) / count
        return mean, _sum_rows((wide - mean) ** 2)


def _sum_rows(rows: Doubles) -> Doubles:
    """Sum rows [B, O] from the first to the last."""
    if rows.shape[1] > 1:
        total: Doubles = rows.sum(axis=0)  # NumPy sums pairwise only along the axis that is contiguous in memory
        return total
    return np.cumsum(rows, axis=0)[-1]


def _pointers(array: NDArray[Any], dtype: Any) -> tuple[NDArray[Any], int]:
    """Return a contiguous array, which must outlive the call, and its address."""
    array = np.ascontiguousarray(array, dtype)
    return array, array.ctypes.data
