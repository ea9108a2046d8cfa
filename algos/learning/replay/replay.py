"""Replay buffer of N environments: transitions in chronological order, and sampling of batches.

Row t N + n is step t of environment n: observation, action, reward, and how the step ended. The next observation is in
row (t + 1) N + n; final observations of truncated steps are a separate stream. Rows lie in `Segments`, so a checkpoint
only refers to files, and a run killed at any moment resumes bit-identically.

A batch holds transitions from any row, or sequences that begin on a grid (`Sequences`), for which recurrent states are
stored in a third stream.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.learning.replay.priorities import Priorities
from paddock.algos.learning.replay.row_store import RowStore
from paddock.algos.learning.replay.sequences import Sequences
from paddock.algos.learning.replay.stacks import check_stacks, newest_of
from paddock.algos.learning.replay.streams import AnyWindows, Streams
from paddock.algos.learning.replay.windows import CONTINUES, TERMINATED
from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.envs.errors import require

Array = NDArray[Any]


class Replay(RowStore):
    """Replay buffer with the newest transitions of N environments."""

    def __init__(self, streams: Streams, *, seed: int, priorities: Priorities | None = None) -> None:
        """Initialize without touching any file; `priorities` None: uniform sampling.

        The capacity is rounded down to whole steps of all environments; sequences need rollouts of `period` steps.
        """
        drawn = streams.sequences or Sequences(period=1, burn_in=0, length=1, state_width=0)
        period, num_envs, capacity = drawn.period, streams.num_envs, streams.capacity
        span = drawn.span(streams.n_step)
        least = -(-(span + 1) // period) * period * num_envs
        given = f"algo.buffer_size={capacity} is less than {least} (n_step={streams.n_step}, {num_envs} environments)"
        require(capacity >= least, f"{given}; increase it")
        streams = replace(streams, capacity=capacity // (period * num_envs) * period * num_envs)
        drawing: dict[str, Any] = {"seed": seed, "priorities": priorities}
        super().__init__(streams, num_envs=num_envs, period=period, span=span, **drawing)
        obs = streams.obs
        self._obs, self._action, self._stack = obs, streams.action, streams.stack
        # The newest step of each environment is rewritten with the next one, which shows whether its episode continued.
        self._newest = np.zeros(0, self._rows.dtype)
        self._last_obs = np.zeros((0, *obs.shape), obs.base)

    def describe(self) -> str:
        """See `RowStore.describe`."""
        rows = f"{self._capacity:,} transitions of {self._rows.dtype.itemsize} bytes"
        if self._stack is not None:
            rows += f", in stacks of {self._stack.frames} frames"
        if self.sequences is not None:
            rows += f", in sequences of {self._span} from every {self._period}th step"
        return f"{rows}, {self.format_size()}"

    def append(self, rollout: Rollout) -> None:
        """See `RowStore.append`."""
        T, N = rollout.reward.shape
        count = T * N
        assert self._num_envs == N, (self._num_envs, N)
        assert self.sequences is None or self._period == T, (self._period, T)
        require(
            count <= self._capacity, f"algo.buffer_size={self._capacity} is less than the {count} steps of one rollout"
        )
        self._open()
        pending, finals = len(self._newest), self._collect_finals(rollout)
        if self._stack is not None:
            check_stacks(rollout, self._stack)
        rows = np.zeros(pending + count + N, self._rows.dtype)
        rows[:pending] = self._newest
        made = rows[pending:-N]
        made["obs"] = newest_of(rollout.obs.reshape(count, *self._obs.shape), self._stack)
        made["action"] = rollout.action.reshape(count, *self._action.shape)
        made["reward"] = rollout.reward.reshape(count)
        made["end"] = np.where(rollout.terminated, TERMINATED, CONTINUES).reshape(count)
        rows["obs"][-N:] = newest_of(rollout.last_obs, self._stack)
        stream = self._streams["finals"]
        if len(finals):
            rows["end"][finals["row"] - (self.steps - pending)] = 1 + stream.committed + np.arange(len(finals))
        offered, new = self.first + self.count, self.steps // self._period
        self.steps += count
        first = self.steps - self.size
        self._drop_finals(first)
        if len(finals):
            stream.put(finals, len(finals))
        self._rows.drop(max(first - self._form.ahead, 0))
        self._rows.put(rows, pending + count - N)
        if "states" in self._streams:
            states = np.zeros(N, self._streams["states"].dtype)
            states["state"] = rollout.start.state
            self._streams["states"].drop(self.first)
            self._streams["states"].put(states, N)
        # Copy as bytes: NumPy does not copy padding between fields.
        self._newest = rows[-2 * N : -N].view(np.uint8).copy().view(rows.dtype)
        self._last_obs = np.array(rollout.last_obs)
        if self._priorities is not None:
            drawable = max(offered, self.first), self.first + self.count
            self._priorities.enter(new, drawable, self.steps // self._period)

    def state_dict(self) -> dict[str, Any]:
        """See `RowStore.state_dict`."""
        newest = self._newest.view(np.uint8).reshape(-1, self._rows.dtype.itemsize)
        return {**super().state_dict(), "newest": newest, "last_obs": self._last_obs}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `RowStore.load_state_dict`."""
        super().load_state_dict(state)
        self._newest = np.ascontiguousarray(state["newest"]).view(self._rows.dtype).reshape(-1)
        self._last_obs = state["last_obs"]

    def _open(self) -> AnyWindows:
        """Map the existing files and rewrite the uncommitted rows."""
        if self._windows is None and self.steps:
            self.check_disk_space()
            rows = np.zeros(len(self._newest) + self._num_envs, self._rows.dtype)
            rows[: len(self._newest)] = self._newest
            rows["obs"][len(self._newest) :] = newest_of(self._last_obs, self._stack)
            self._rows.put(rows, 0)
        return super()._open()

    def _collect_finals(self, rollout: Rollout) -> Array:
        """Return the final observations of truncated steps, in row order, also of episodes abandoned on resume."""
        N, before, stream = self._num_envs, len(self._newest), self._streams["finals"]
        given_up = np.flatnonzero((rollout.start.length[:before] == 0) & (self._newest["end"] == CONTINUES))
        if not len(given_up) and not len(rollout.final_at):
            return np.zeros(0, stream.dtype)
        at = np.concatenate([self.steps - N + given_up, self.steps + rollout.final_at @ np.array([N, 1])])
        order = np.argsort(at)
        finals = np.zeros(len(at), stream.dtype)
        finals["row"] = at[order]
        finals["obs"] = newest_of(np.concatenate([self._last_obs[given_up], rollout.final_obs]), self._stack)[order]
        return finals
