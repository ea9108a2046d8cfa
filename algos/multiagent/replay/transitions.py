"""Turns of several agents as transitions: n turns make one, and fewer where a life ended.

A transition is stored whole, with the observation that it led to.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.learning.replay.batch import Batch, Floats
from paddock.algos.learning.replay.windows import column_of, make_row
from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.algos.multiagent.replay.row_builder import Array, Lanes, RowBuilder


def row_of_transitions(obs: np.dtype[Any], action: np.dtype[Any]) -> np.dtype[Any]:
    """Return a row that has a whole transition."""
    number = np.dtype(np.float32)
    return make_row({"obs": obs, "next_obs": obs, "reward": number, "discount": number, "action": action})


class TransitionBuilder(RowBuilder):
    """Makes transitions, of which all that end in a step are whole."""

    def __init__(self, obs: np.dtype[Any], action: np.dtype[Any], *, lanes: int, n_step: int, gamma: float) -> None:
        """Args:
        obs: of one observation, as `np.dtype((inputs.dtype, inputs.shape))`.
        lanes: N, seats of all worlds.
        n_step: n, turns of a transition.
        """
        held = make_row({"obs": obs, "reward": np.dtype(np.float32), "action": action})
        super().__init__(row_of_transitions(obs, action), held, obs, lanes, n_step)
        self._n_step = n_step
        self._powers = np.array([gamma**m for m in range(n_step + 1)], np.float32)
        self._count = np.zeros(lanes, np.int64)  # that are held

    def state_dict(self) -> dict[str, Any]:
        """See `RowBuilder.state_dict`."""
        return {**super().state_dict(), "count": self._count.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `RowBuilder.load_state_dict`."""
        super().load_state_dict(state)
        self._count = np.array(state["count"])

    def _begin(self, lanes: Lanes, rollout: Rollout, t: int) -> None:
        super()._begin(lanes, rollout, t)
        self._count[lanes] += 1

    def _give_up(self, lanes: Lanes) -> Array:
        following = self._last_obs[lanes]
        going = self._open[lanes]
        following[going] = self._held["obs"][lanes, self._newest(lanes)][going]
        self._begun[lanes] -= going
        self._count[lanes] -= going
        self._open[lanes] = False
        lost = np.ones(len(lanes), np.bool_)
        return self._end(lanes, following, ~lost, lost)

    def _end(self, lanes: Lanes, following: Array, terminated: Array, ended: Array) -> Array:
        n, held = self._n_step, self._held
        whole = np.where(ended, self._count[lanes], self._count[lanes] == n)
        which = np.repeat(np.arange(len(lanes)), whole)
        nth = np.arange(len(which)) - np.repeat(np.cumsum(whole) - whole, whole)
        lane = lanes[which]
        turns = self._count[lane] - nth
        first = self._begun[lane] - turns
        at = lane, first % n
        reward = held["reward"][at]
        for k in range(1, n):
            more = reward + self._powers[k] * held["reward"][lane, (first + k) % n]
            reward = np.where(k < turns, more, reward)
        rows = np.zeros(len(lane), self.row)
        rows["obs"], rows["action"], rows["next_obs"] = held["obs"][at], held["action"][at], following[which]
        rows["reward"], rows["discount"] = reward, np.where(terminated[which], np.float32(0), self._powers[turns])
        self._count[lanes] -= whole
        return rows


class AgentWindows:
    """The transitions of a ring of rows, to be gathered."""

    def __init__(self, ring: Array, obs: np.dtype[Any], action: np.dtype[Any]) -> None:
        """Args:
        ring: [R] rows as `row_of_transitions` has them; R is a power of two.
        """
        self._mask, self._kinds = len(ring) - 1, {"obs": obs, "next_obs": obs, "action": action}
        self._columns = {name: column_of(ring, name) for name in ring.dtype.names or ()}

    def gather(self, ids: NDArray[np.int64], weight: Floats) -> Batch:
        """Return those at rows [U, B]."""
        found = {name: column[ids & self._mask] for name, column in self._columns.items()}
        for name, kind in self._kinds.items():
            found[name] = found[name].view(kind.base).reshape(*ids.shape, *kind.shape)
        return Batch(ids=ids, weight=weight, **found)
