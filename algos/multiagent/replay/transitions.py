"""n-step transitions of several agents with their next observations; shorter at the end of an agent's life."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.learning.replay.batch import Batch, Floats
from paddock.algos.learning.replay.windows import column_of, make_row
from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.algos.multiagent.replay.row_builder import Agents, Array, RowBuilder


def row_of_transitions(obs: np.dtype[Any], action: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of a replay row that holds a complete transition."""
    scalar = np.dtype(np.float32)
    return make_row({"obs": obs, "next_obs": obs, "reward": scalar, "discount": scalar, "action": action})


class TransitionBuilder(RowBuilder):
    """Builder of replay rows with n-step transitions."""

    def __init__(
        self, obs: np.dtype[Any], action: np.dtype[Any], *, num_agents: int, n_step: int, gamma: float
    ) -> None:
        held = make_row({"obs": obs, "reward": np.dtype(np.float32), "action": action})
        super().__init__(row_of_transitions(obs, action), held, obs, num_agents, n_step)
        self._n_step = n_step
        self._powers = np.array([gamma**m for m in range(n_step + 1)], np.float32)
        self._count = np.zeros(num_agents, np.int64)  # number of pending transitions of each agent

    def state_dict(self) -> dict[str, Any]:
        """Return the pending transitions and their number per agent."""
        return {**super().state_dict(), "count": self._count.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        super().load_state_dict(state)
        self._count = np.array(state["count"])

    def _begin(self, agents: Agents, rollout: Rollout, t: int) -> None:
        super()._begin(agents, rollout, t)
        self._count[agents] += 1

    def _abandon(self, agents: Agents) -> Array:
        following = self._last_obs[agents]
        incomplete = self._open[agents]
        following[incomplete] = self._held["obs"][agents, self._newest(agents)][incomplete]
        self._begun[agents] -= incomplete
        self._count[agents] -= incomplete
        self._open[agents] = False
        truncated = np.ones(len(agents), np.bool_)
        return self._end(agents, following, ~truncated, truncated)

    def _end(self, agents: Agents, following: Array, terminated: Array, ended: Array) -> Array:
        n, held = self._n_step, self._held
        num_completed = np.where(ended, self._count[agents], self._count[agents] == n)
        index = np.repeat(np.arange(len(agents)), num_completed)
        rank = np.arange(len(index)) - np.repeat(np.cumsum(num_completed) - num_completed, num_completed)
        agent = agents[index]
        length = self._count[agent] - rank
        first = self._begun[agent] - length
        at = agent, first % n
        reward = held["reward"][at]
        for k in range(1, n):
            extended = reward + self._powers[k] * held["reward"][agent, (first + k) % n]
            reward = np.where(k < length, extended, reward)
        rows = np.zeros(len(agent), self.row)
        rows["obs"], rows["action"], rows["next_obs"] = held["obs"][at], held["action"][at], following[index]
        rows["reward"], rows["discount"] = reward, np.where(terminated[index], np.float32(0), self._powers[length])
        self._count[agents] -= num_completed
        return rows


class AgentWindows:
    """Reader of transitions from a ring buffer of rows."""

    def __init__(self, ring: Array, obs: np.dtype[Any], action: np.dtype[Any]) -> None:
        """Initialize with a ring of [R] rows of `row_of_transitions`; R must be a power of two."""
        self._mask, self._dtypes = len(ring) - 1, {"obs": obs, "next_obs": obs, "action": action}
        self._columns = {name: column_of(ring, name) for name in ring.dtype.names or ()}

    def gather(self, ids: NDArray[np.int64], weight: Floats) -> Batch:
        """Return the transitions at rows [U, B]."""
        columns = {name: column[ids & self._mask] for name, column in self._columns.items()}
        for name, dtype in self._dtypes.items():
            columns[name] = columns[name].view(dtype.base).reshape(*ids.shape, *dtype.shape)
        return Batch(ids=ids, weight=weight, **columns)
