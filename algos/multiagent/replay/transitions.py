"""n-step transitions of several agents, which may wait, die and spawn, so their steps are no regular grid of a replay.

A transition runs from an agent's action to its next action or to the end of its life; its rewards are summed, and gamma
applies once to each, as in `paddock.algos.multiagent.aec`. Transitions of n steps are stored with their next observation
when they are complete, shorter ones at the end of a life; until then they are held here.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.learning.replay.batch import Batch, Floats
from paddock.algos.learning.replay.windows import column_of, make_row
from paddock.algos.learning.rollouts.rollout import Rollout

Array = NDArray[Any]
Agents = NDArray[np.intp]


def row_of_transitions(obs: np.dtype[Any], action: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of a replay row that holds a complete transition."""
    scalar = np.dtype(np.float32)
    return make_row({"obs": obs, "next_obs": obs, "reward": scalar, "discount": scalar, "action": action})


class TransitionBuilder:
    """Builder of replay rows with n-step transitions from consecutive rollouts."""

    def __init__(
        self, obs: np.dtype[Any], action: np.dtype[Any], *, num_agents: int, n_step: int, gamma: float
    ) -> None:
        self.row, self._n_step = row_of_transitions(obs, action), n_step
        self._held = np.zeros(
            (num_agents, n_step), make_row({"obs": obs, "reward": np.dtype(np.float32), "action": action})
        )
        self._begun = np.zeros(num_agents, np.int64)  # transitions so far; index of the next one modulo n
        self._open = np.zeros(num_agents, np.bool_)  # whether the newest transition is incomplete
        self._count = np.zeros(num_agents, np.int64)  # number of pending transitions of each agent
        self._last_obs = np.zeros((num_agents, *obs.shape), obs.base)
        self._powers = np.array([gamma**m for m in range(n_step + 1)], np.float32)

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

    def state_dict(self) -> dict[str, Any]:
        """Return the pending transitions and their number per agent."""
        held = self._held.view(np.uint8).reshape(len(self._held), -1).copy()
        counters = {"begun": self._begun.copy(), "open": self._open.copy(), "count": self._count.copy()}
        return {"held": held, **counters, "last_obs": self._last_obs}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        self._held = np.array(state["held"]).view(self._held.dtype).reshape(self._held.shape)
        self._begun, self._open, self._count = (np.array(state[name]) for name in ("begun", "open", "count"))
        self._last_obs = state["last_obs"]

    def _newest(self, agents: Agents) -> NDArray[np.int64]:
        return (self._begun[agents] - 1) % self._n_step

    def _begin(self, agents: Agents, rollout: Rollout, t: int) -> None:
        """Hold the transitions that agents start in a step."""
        at, held = (agents, self._begun[agents] % self._n_step), self._held
        held["obs"][at], held["action"][at], held["reward"][at] = rollout.obs[t, agents], rollout.action[t, agents], 0
        self._begun[agents] += 1
        self._count[agents] += 1
        self._open[agents] = True

    def _abandon(self, agents: Agents) -> Array:
        """End lives in restarted environments with their last observations; drop their incomplete transitions."""
        following = self._last_obs[agents]
        incomplete = self._open[agents]
        following[incomplete] = self._held["obs"][agents, self._newest(agents)][incomplete]
        self._begun[agents] -= incomplete
        self._count[agents] -= incomplete
        self._open[agents] = False
        truncated = np.ones(len(agents), np.bool_)
        return self._end(agents, following, ~truncated, truncated)

    def _end(self, agents: Agents, following: Array, terminated: Array, ended: Array) -> Array:
        """Complete the newest transitions of agents [L] with next observations [L, ...]; return the completed rows."""
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
