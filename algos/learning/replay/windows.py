"""n-step windows of stored transitions: up to n steps of one environment within an episode."""

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.learning.replay import library
from paddock.algos.learning.replay.batch import Batch, Floats
from paddock.algos.learning.replay.segments import HEADER
from paddock.envs.stacks import Stack

CONTINUES, TERMINATED = 0, -1  # how a step ended; k > 0: truncated, with final observation k - 1

LINE = 64  # bytes of a cache line, to which medium-sized rows are aligned; large rows are aligned to pages

Array = NDArray[Any]

_POINTER, _INTEGER = ctypes.c_void_p, ctypes.c_int64


class _Rows(ctypes.Structure):
    _fields_ = (
        *((name, _POINTER) for name in ("ring", "finals")),
        *((name, _INTEGER) for name in ("mask", "finals_mask")),
        *((name, _INTEGER) for name in ("row_bytes", "final_bytes", "obs_bytes", "action_bytes")),
        *((name, _INTEGER) for name in ("obs_at", "action_at", "reward_at", "end_at", "final_at")),
        *((name, _INTEGER) for name in ("num_envs", "steps", "frames", "zeros")),
        ("powers", _POINTER),
    )


class _Gathered(ctypes.Structure):
    _fields_ = tuple((name, _POINTER) for name in ("obs", "action", "next_obs", "reward", "discount"))


class Windows:
    """Gatherer of n-step windows from a ring of rows."""

    def __init__(
        self,
        ring: Array,
        finals: Array,
        num_envs: int,
        obs: np.dtype[Any],
        stack: Stack | None,
        n_step: int,
        gamma: float,
    ) -> None:
        """Initialize from mapped rings, whose lengths are powers of two.

        `ring` [R] has rows of obs, end, reward and action, in which row j + num_envs follows row j; `finals` [F] has
        rows of obs. With a stack, rows hold only the newest frame of an observation of dtype `obs`.
        """
        self._ring, self._finals, self._num_envs, self._n_step = ring, finals, num_envs, n_step
        self._powers = np.array([gamma**m for m in range(n_step + 1)], np.float32)
        self._obs, self._action = obs, field_of(ring, "action")[0]
        self._compiled = library.usable()
        self._rows = _Rows(
            ring.ctypes.data,
            finals.ctypes.data,
            len(ring) - 1,
            len(finals) - 1,
            ring.itemsize,
            finals.itemsize,
            field_of(ring, "obs")[0].itemsize,
            self._action.itemsize,
            *(field_of(ring, name)[1] for name in ("obs", "action", "reward", "end")),
            field_of(finals, "obs")[1],
            num_envs,
            n_step,
            1 if stack is None else stack.frames,
            stack is not None and stack.zeros,
            self._powers.ctypes.data,
        )
        self._columns = {name: column_of(ring, name) for name in ("obs", "action", "reward", "end")}
        self._observations = Observations(self._columns, column_of(finals, "obs"), num_envs, obs, stack)

    def gather(self, ids: NDArray[np.int64], weight: Floats) -> Batch:
        """Return the windows that begin at rows [U, B]."""
        ids = np.ascontiguousarray(ids)
        gather = self._gather_plain if self._compiled is None else self._gather_compiled
        obs, action, reward, next_obs, discount = gather(ids)
        return Batch(ids, obs, action, reward, next_obs, discount, weight)

    def _gather_compiled(self, ids: NDArray[np.int64]) -> tuple[Array, Array, Floats, Array, Floats]:
        assert self._compiled is not None
        obs, next_obs = (np.empty((*ids.shape, *self._obs.shape), self._obs.base) for _ in range(2))
        action = np.empty((*ids.shape, *self._action.shape), self._action.base)
        reward, discount = np.empty(ids.shape, np.float32), np.empty(ids.shape, np.float32)
        out = _Gathered(*(array.ctypes.data for array in (obs, action, next_obs, reward, discount)))
        self._compiled.gather_windows(ctypes.byref(self._rows), ids.ctypes.data, ids.size, ctypes.byref(out))
        return obs, action, reward, next_obs, discount

    def _gather_plain(self, ids: NDArray[np.int64]) -> tuple[Array, Array, Floats, Array, Floats]:
        columns, mask = self._columns, len(self._ring) - 1
        at = ids.reshape(-1)
        total, end, m = columns["reward"][at & mask], columns["end"][at & mask], np.ones(len(at), np.int64)
        for k in range(1, self._n_step):
            going, step = end == CONTINUES, (at + k * self._num_envs) & mask
            total = np.where(going, total + self._powers[k] * columns["reward"][step], total)
            end = np.where(going, columns["end"][step], end)
            m += going
        next_obs, cut = self._observations.at(at + m * self._num_envs), np.flatnonzero(end > 0)
        next_obs[cut] = self._observations.final((at + (m - 1) * self._num_envs)[cut], end[cut])
        discount = np.where(end == TERMINATED, np.float32(0), self._powers[m])
        return (
            self._observations.at(ids),
            columns["action"][at & mask].view(self._action.base).reshape(*ids.shape, *self._action.shape),
            total.reshape(ids.shape),
            next_obs.reshape(*ids.shape, *self._obs.shape),
            discount.reshape(ids.shape),
        )


class Observations:
    """Observations of a ring of rows, gathered by NumPy."""

    def __init__(
        self, columns: dict[str, Array], finals: Array, num_envs: int, obs: np.dtype[Any], stack: Stack | None
    ):
        """Initialize from columns obs and end [R] and final observations [F]; see `Windows`."""
        self._frames, self._end, self._finals = columns["obs"], columns["end"], finals
        self._num_envs, self._obs, self._stack = num_envs, obs, stack

    def at(self, rows: NDArray[np.int64]) -> Array:
        """Return the observations [..., *shape] of rows [...]."""
        return self._stacked(self._of(rows), rows, rows)

    def final(self, rows: NDArray[np.int64], end: NDArray[np.int64]) -> Array:
        """Return the final observations of truncated rows [...], which ended as `end` says."""
        newest = self._finals[(end - 1) & (len(self._finals) - 1)]
        return self._stacked(newest, rows + self._num_envs, rows)

    def _of(self, rows: NDArray[np.int64]) -> Array:
        return self._frames[rows & (len(self._frames) - 1)]

    def _stacked(self, newest: Array, at: NDArray[np.int64], row: NDArray[np.int64]) -> Array:
        """Stack older frames before the newest one, at rows `at`; `row` is `at`, or the row before a final one."""
        if self._stack is None:
            return newest.view(self._obs.base).reshape(*at.shape, *self._obs.shape)
        frames, going = [newest], np.ones(at.shape, np.bool_)
        for _ in range(self._stack.frames - 1):
            before = at - self._num_envs
            follows = before >= 0
            follows &= (self._end[before & (len(self._end) - 1)] == CONTINUES) | (before == row)
            going &= follows
            at = np.where(going, before, at)
            frame = self._of(at)
            if self._stack.zeros:
                frame[~going] = np.zeros(1, frame.dtype)
            frames.append(frame)
        whole = np.stack(frames[::-1], axis=-1)
        return whole.view(self._obs.base).reshape(*whole.shape[:-1], *self._obs.shape)


def make_row(fields: Mapping[str, np.dtype[Any]]) -> np.dtype[Any]:
    """Return a structured dtype with these fields, aligned."""
    offsets, end = [], 0
    for field in fields.values():
        end += -end % min(8, field.itemsize & -field.itemsize)
        offsets.append(end)
        end += field.itemsize
    end += -end % (16 if end <= 3 * 16 else LINE if end <= 16 * HEADER else HEADER)
    return np.dtype({"names": [*fields], "formats": [*fields.values()], "offsets": offsets, "itemsize": end})


def field_of(rows: Array, name: str) -> tuple[np.dtype[Any], int]:
    """Return a field's dtype and offset."""
    assert rows.dtype.fields is not None
    return rows.dtype.fields[name][:2]


def column_of(rows: Array, name: str) -> Array:
    """Return a view [rows] of one field that NumPy can gather in one operation."""
    dtype, offset = field_of(rows, name)
    whole = dtype if not dtype.shape else np.dtype(f"V{dtype.itemsize}")
    alone = np.dtype({"names": [name], "formats": [whole], "offsets": [offset], "itemsize": rows.dtype.itemsize})
    return rows.view(alone)[name]
