"""n-step transitions of several agents, shorter at the end of a life, stored with their next observations."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.learning.replay.batch import Batch, Floats
from paddock.algos.learning.replay.windows import column_of, make_row
from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.algos.multiagent.replay.row_builder import Agents, Array, RowBuilder


def row_of_transitions(obs: np.dtype[Any], action: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of a row with a whole transition."""
    number = np.dtype(np.float32)
    return make_row({"obs": obs, "next_obs": obs, "reward": number, "discount": number, "action": action})


class TransitionBuilder(RowBuilder):
    """Builder of n-step transitions."""

    def __init__(
        self, obs: np.dtype[Any], action: np.dtype[Any], *, num_agents: int, n_step: int, gamma: float
    ) -> None:
        """Set the dtypes of observations and actions, and the length of transitions."""
        held = make_row({"obs": obs, "reward": np.dtype(np.float32), "action": action})
        super().__init__(row_of_transitions(obs, action), held, obs, num_agents, n_step)
        self._n_step = n_step
        self._powers = np.array([gamma**m for m in range(n_step + 1)], np.float32)
        self._count = np.zeros(num_agents, np.int64)  # held transitions

    def state_dict(self) -> dict[str, Any]:
        """See `RowBuilder.state_dict`."""
        return {**super().state_dict(), "count": self._count.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `RowBuilder.load_state_dict`."""
        super().load_state_dict(state)
        self._count = np.array(state["count"])

    def _begin(self, agents: Agents, rollout: Rollout, t: int) -> None:
        super()._begin(agents, rollout, t)
        self._count[agents] += 1

    def _abandon(self, agents: Agents) -> Array:
        following = self._last_obs[agents]
        going = self._open[agents]
        following[going] = self._held["obs"][agents, self._newest(agents)][going]
        self._begun[agents] -= going
        self._count[agents] -= going
        self._open[agents] = False
        lost = np.ones(len(agents), np.bool_)
        return self._end(agents, following, ~lost, lost)

    def _end(self, agents: Agents, following: Array, terminated: Array, ended: Array) -> Array:
        n, held = self._n_step, self._held
        whole = np.where(ended, self._count[agents], self._count[agents] == n)
        which = np.repeat(np.arange(len(agents)), whole)
        nth = np.arange(len(which)) - np.repeat(np.cumsum(whole) - whole, whole)
        agent = agents[which]
        length = self._count[agent] - nth
        first = self._begun[agent] - length
        at = agent, first % n
        reward = held["reward"][at]
        for k in range(1, n):
            more = reward + self._powers[k] * held["reward"][agent, (first + k) % n]
            reward = np.where(k < length, more, reward)
        rows = np.zeros(len(agent), self.row)
        rows["obs"], rows["action"], rows["next_obs"] = held["obs"][at], held["action"][at], following[which]
        rows["reward"], rows["discount"] = reward, np.where(terminated[which], np.float32(0), self._powers[length])
        self._count[agents] -= whole
        return rows


class AgentWindows:
    """Reader of transitions from a ring buffer of rows."""

    def __init__(self, ring: Array, obs: np.dtype[Any], action: np.dtype[Any]) -> None:
        """Set the buffer: [R] rows of `row_of_transitions`, R a power of two, and the dtypes of obs and action."""
        self._mask, self._kinds = len(ring) - 1, {"obs": obs, "next_obs": obs, "action": action}
        self._columns = {name: column_of(ring, name) for name in ring.dtype.names or ()}

    def gather(self, ids: NDArray[np.int64], weight: Floats) -> Batch:
        """Return the transitions at rows [U, B]."""
        found = {name: column[ids & self._mask] for name, column in self._columns.items()}
        for name, kind in self._kinds.items():
            found[name] = found[name].view(kind.base).reshape(*ids.shape, *kind.shape)
        return Batch(ids=ids, weight=weight, **found)
