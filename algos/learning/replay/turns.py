"""Turns of several agents as transitions: a seat waits, dies and is born, so its steps are no lane of a replay.

A turn spans from where a seat acted to its next turn, or to the end of its life: the rewards on the way are summed, and
gamma counts turns, as `algos.learning.returns` has them. n turns make a transition, and fewer where a life ended; it is
stored whole, with the observation that it led to, once all of it has been seen. Until then turns are held back here.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from algos.learning.replay.batch import Batch, Floats
from algos.learning.replay.windows import column_of, make_row
from algos.learning.rollouts.rollout import Rollout

Array = NDArray[Any]
Lanes = NDArray[np.intp]


def row_of_turns(obs: np.dtype[Any], action: np.dtype[Any]) -> np.dtype[Any]:
    """Return a row that has a whole transition."""
    number = np.dtype(np.float32)
    return make_row({"obs": obs, "next_obs": obs, "reward": number, "discount": number, "action": action})


class TransitionMaker:
    """Makes transitions of rollouts, each of which goes on where the last one ended.

    Attributes:
        row: what a transition is.
    """

    def __init__(self, obs: np.dtype[Any], action: np.dtype[Any], *, lanes: int, n_step: int, gamma: float) -> None:
        """Args:
        obs: of one observation, as `np.dtype((inputs.dtype, inputs.shape))`.
        lanes: N, seats of all worlds.
        n_step: n, turns of a transition.
        """
        self.row, self._n_step = row_of_turns(obs, action), n_step
        self._powers = np.array([gamma**m for m in range(n_step + 1)], np.float32)
        self._held = np.zeros((lanes, n_step), make_row({"obs": obs, "reward": np.dtype(np.float32), "action": action}))
        self._begun = np.zeros(lanes, np.int64)  # turns so far, modulo n: where the next one is held
        self._count = np.zeros(lanes, np.int64)  # that are held
        self._open = np.zeros(lanes, np.bool_)  # whether the newest of them goes on
        self._last_obs = np.zeros((lanes, *obs.shape), obs.base)

    def finish(self, rollout: Rollout) -> Array:
        """Return the transitions that a rollout brings to their end, in the order of steps and rows."""
        assert rollout.acts is not None
        T, acts, ended = len(rollout.reward), rollout.acts, rollout.terminated | rollout.truncated
        finals = {(int(t), int(n)): k for k, (t, n) in enumerate(rollout.final_at)}
        found = [self._give_up(np.flatnonzero(np.repeat(rollout.start.length == 0, rollout.start.seats)))]
        for t in range(T):
            self._begin(np.flatnonzero(acts[t]), rollout.obs[t], rollout.action[t])
            going = np.flatnonzero(self._open)
            self._held["reward"][going, self._newest(going)] += rollout.reward[t, going]
            done = np.flatnonzero(self._open & (acts[t + 1] | ended[t]))
            if len(done):
                following = (rollout.obs[t + 1] if t + 1 < T else rollout.last_obs)[done]
                for k, n in enumerate(done.tolist()):
                    if rollout.truncated[t, n]:
                        following[k] = rollout.final_obs[finals[t, n]]
                found.append(self._end(done, following, rollout.terminated[t, done], ended[t, done]))
        self._last_obs = np.array(rollout.last_obs)
        # As bytes: NumPy would lay out anew what it concatenates.
        return np.concatenate([rows.view(f"V{self.row.itemsize}") for rows in found]).view(self.row)

    def state_dict(self) -> dict[str, Any]:
        """What is held back."""
        held = self._held.view(np.uint8).reshape(len(self._held), -1)
        return {
            "held": held.copy(),
            "begun": self._begun.copy(),
            "count": self._count.copy(),
            "open": self._open.copy(),
            "last_obs": self._last_obs,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self._held = np.array(state["held"]).view(self._held.dtype).reshape(self._held.shape)
        self._begun, self._count, self._open = (np.array(state[name]) for name in ("begun", "count", "open"))
        self._last_obs = state["last_obs"]

    def _newest(self, lanes: Lanes) -> NDArray[np.int64]:
        """Where the newest turns are held."""
        return (self._begun[lanes] - 1) % self._n_step

    def _begin(self, lanes: Lanes, obs: Array, action: Array) -> None:
        at = lanes, self._begun[lanes]
        self._held["obs"][at], self._held["action"][at], self._held["reward"][at] = obs[lanes], action[lanes], 0
        self._begun[lanes] = (self._begun[lanes] + 1) % self._n_step
        self._count[lanes] += 1
        self._open[lanes] = True

    def _give_up(self, lanes: Lanes) -> Array:
        """End the lives of seats whose worlds were given up, by what they saw last: nobody knows what came after."""
        following = self._last_obs[lanes]
        going = self._open[lanes]
        following[going] = self._held["obs"][lanes, self._newest(lanes)][going]
        # The turn that went on is left out, as nobody saw what came of it.
        self._begun[lanes] -= going
        self._begun[lanes] %= self._n_step
        self._count[lanes] -= going
        lost = np.ones(len(lanes), np.bool_)
        return self._end(lanes, following, ~lost, lost)

    def _end(self, lanes: Lanes, following: Array, terminated: Array, ended: Array) -> Array:
        """End the newest turns of lanes, and return the transitions [R] that are whole by that.

        Args:
            following: [L, ...], the observations that they led to.
            ended: [L], whether their lives did, too.
        """
        n, held = self._n_step, self._held
        self._open[lanes] = False
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


class TransitionWindows:
    """The transitions of a ring of rows, to be gathered."""

    def __init__(self, ring: Array, obs: np.dtype[Any], action: np.dtype[Any]) -> None:
        """Args:
        ring: [R] rows as `row_of_turns` has them; R is a power of two.
        """
        self._mask, self._kinds = len(ring) - 1, {"obs": obs, "next_obs": obs, "action": action}
        self._columns = {name: column_of(ring, name) for name in ring.dtype.names or ()}

    def gather(self, ids: NDArray[np.int64], weight: Floats) -> Batch:
        """Return those at rows [U, B]."""
        found = {name: column[ids & self._mask] for name, column in self._columns.items()}
        for name, kind in self._kinds.items():
            found[name] = found[name].view(kind.base).reshape(*ids.shape, *kind.shape)
        return Batch(ids=ids, weight=weight, **found)
