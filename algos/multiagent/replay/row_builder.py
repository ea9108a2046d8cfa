"""Transitions of several agents, which may wait, die and spawn, so their steps are no regular grid of a replay.

A transition runs from an agent's action to its next action or to the end of its life; its rewards are summed, and gamma
applies once to each, as in `paddock.algos.multiagent.aec`. Rows are stored when they are complete; until then their
transitions are held here.
"""

import abc
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.learning.rollouts.rollout import Rollout

Array = NDArray[Any]
Agents = NDArray[np.intp]


class RowBuilder(abc.ABC):
    """Builder of replay rows, of dtype `row`, from consecutive rollouts."""

    def __init__(
        self, row: np.dtype[Any], held: np.dtype[Any], obs: np.dtype[Any], num_agents: int, capacity: int
    ) -> None:
        """Set the dtypes of rows, held transitions and observations, and the number of held transitions per agent."""
        self.row, self._capacity = row, capacity
        self._held = np.zeros((num_agents, capacity), held)
        self._begun = np.zeros(num_agents, np.int64)  # transitions so far; index of the next one modulo capacity
        self._open = np.zeros(num_agents, np.bool_)  # whether the newest transition is incomplete
        self._last_obs = np.zeros((num_agents, *obs.shape), obs.base)

    def finish(self, rollout: Rollout) -> Array:
        """Return the rows that a rollout completes, ordered by step and agent."""
        assert rollout.acts is not None
        T, acts, ended = len(rollout.reward), rollout.acts, rollout.terminated | rollout.truncated
        finals = {(int(t), int(n)): k for k, (t, n) in enumerate(rollout.final_at)}
        found = [self._abandon(np.flatnonzero(np.repeat(rollout.start.length == 0, rollout.start.rows_per_env)))]
        for t in range(T):
            self._begin(np.flatnonzero(acts[t]), rollout, t)
            going = np.flatnonzero(self._open)
            self._held["reward"][going, self._newest(going)] += rollout.reward[t, going]
            done = np.flatnonzero(self._open & (acts[t + 1] | ended[t]))
            if len(done):
                following = (rollout.obs[t + 1] if t + 1 < T else rollout.last_obs)[done]
                for k, n in enumerate(done.tolist()):
                    if rollout.truncated[t, n]:
                        following[k] = rollout.final_obs[finals[t, n]]
                self._open[done] = False
                found.append(self._end(done, following, rollout.terminated[t, done], ended[t, done]))
        self._last_obs = np.array(rollout.last_obs)
        # As bytes, since NumPy would change the layout of structured dtypes.
        return np.concatenate([rows.view(f"V{self.row.itemsize}") for rows in found]).view(self.row)

    @property
    def finals(self) -> Array:
        """Final observations [F, ...] of truncated lives in the last result of `finish`, if rows do not contain them."""
        return self._last_obs[:0]

    def state_dict(self) -> dict[str, Any]:
        """Return the held transitions."""
        held = self._held.view(np.uint8).reshape(len(self._held), -1)
        return {"held": held.copy(), "begun": self._begun.copy(), "open": self._open.copy(), "last_obs": self._last_obs}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        self._held = np.array(state["held"]).view(self._held.dtype).reshape(self._held.shape)
        self._begun, self._open = (np.array(state[name]) for name in ("begun", "open"))
        self._last_obs = state["last_obs"]

    def _newest(self, agents: Agents) -> NDArray[np.int64]:
        return (self._begun[agents] - 1) % self._capacity

    def _begin(self, agents: Agents, rollout: Rollout, t: int) -> None:
        """Hold the transitions that agents start in a step."""
        at = agents, self._begun[agents] % self._capacity
        held = self._held
        held["obs"][at], held["action"][at], held["reward"][at] = rollout.obs[t, agents], rollout.action[t, agents], 0
        if "memory" in (held.dtype.names or ()):
            assert rollout.memory is not None
            held["memory"][at] = rollout.memory[t, agents]
        self._begun[agents] += 1
        self._open[agents] = True

    @abc.abstractmethod
    def _end(self, agents: Agents, following: Array, terminated: Array, ended: Array) -> Array:
        """Complete the newest transitions of agents [L] with next observations [L, ...]; return the completed rows."""

    @abc.abstractmethod
    def _abandon(self, agents: Agents) -> Array:
        """End lives in restarted environments with their last observations; drop their incomplete transitions."""
