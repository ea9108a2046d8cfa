"""Transitions of several agents, which may wait, die and spawn, so their steps are no regular grid of a replay.

A turn spans from where a seat acted to its next turn, or to the end of its life: the rewards on the way are summed, and
gamma counts turns, as `paddock.algos.learning.returns` has them. What is stored of turns is stored whole, once all of it has
been seen; until then turns are held back here.
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
    """Makes rows of rollouts, each of which goes on where the last one ended.

    Attributes:
        row: what is stored.
    """

    def __init__(
        self, row: np.dtype[Any], held: np.dtype[Any], obs: np.dtype[Any], num_agents: int, places: int
    ) -> None:
        """Args:
        held: of a turn, with obs, reward, action and whatever else its fields name.
        obs: of one observation, as `np.dtype((inputs.dtype, inputs.shape))`.
        num_agents: N, agents of all environments.
        places: turns of a seat that are held back at most.
        """
        self.row, self._places = row, places
        self._held = np.zeros((num_agents, places), held)
        self._begun = np.zeros(num_agents, np.int64)  # turns so far; the next one is held at that, modulo places
        self._open = np.zeros(num_agents, np.bool_)  # whether the newest of them goes on
        self._last_obs = np.zeros((num_agents, *obs.shape), obs.base)

    def finish(self, rollout: Rollout) -> Array:
        """Return the rows that a rollout brings to their end, in the order of steps and rows."""
        assert rollout.acts is not None
        T, acts, ended = len(rollout.reward), rollout.acts, rollout.terminated | rollout.truncated
        finals = {(int(t), int(n)): k for k, (t, n) in enumerate(rollout.final_at)}
        found = [self._give_up(np.flatnonzero(np.repeat(rollout.start.length == 0, rollout.start.rows_per_env)))]
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
        # As bytes: NumPy would lay out anew what it concatenates.
        return np.concatenate([rows.view(f"V{self.row.itemsize}") for rows in found]).view(self.row)

    @property
    def finals(self) -> Array:
        """What the truncated turns led to [F, ...] of the rows that `finish` gave last, where rows do not have it."""
        return self._last_obs[:0]

    def state_dict(self) -> dict[str, Any]:
        """What is held back."""
        held = self._held.view(np.uint8).reshape(len(self._held), -1)
        return {"held": held.copy(), "begun": self._begun.copy(), "open": self._open.copy(), "last_obs": self._last_obs}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self._held = np.array(state["held"]).view(self._held.dtype).reshape(self._held.shape)
        self._begun, self._open = (np.array(state[name]) for name in ("begun", "open"))
        self._last_obs = state["last_obs"]

    def _newest(self, agents: Agents) -> NDArray[np.int64]:
        """Where the newest turns are held."""
        return (self._begun[agents] - 1) % self._places

    def _begin(self, agents: Agents, rollout: Rollout, t: int) -> None:
        """Hold the turns that agents begin in a step."""
        at = agents, self._begun[agents] % self._places
        held = self._held
        held["obs"][at], held["action"][at], held["reward"][at] = rollout.obs[t, agents], rollout.action[t, agents], 0
        if "memory" in (held.dtype.names or ()):
            assert rollout.memory is not None
            held["memory"][at] = rollout.memory[t, agents]
        self._begun[agents] += 1
        self._open[agents] = True

    @abc.abstractmethod
    def _end(self, agents: Agents, following: Array, terminated: Array, ended: Array) -> Array:
        """End the newest turns of agents, and return the rows that are whole by that.

        Args:
            following: [L, ...], the observations that they led to.
            ended: [L], whether their lives did, too.
        """

    @abc.abstractmethod
    def _give_up(self, agents: Agents) -> Array:
        """End the lives of seats whose worlds were given up, by what they saw last: nobody knows what came after.

        A turn that went on is left out, as nobody saw what came of it.
        """
