"""Turns of agents that share a world, where a row may wait while others act, or be dead.

`acts` [T + 1, B] says which rows await an action at each observation, the last one too. A turn spans to the row's next
one or to the end of its life: the rewards on the way are summed, and gamma counts turns.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]  # float32 throughout
Flags = NDArray[np.bool_]


def finished_turns(terminated: Flags, truncated: Flags, acts: Flags) -> Flags:
    """Return where a row acted and its turn came to an end before the rollout did, [T, B]."""
    return Turns.of(terminated, truncated, acts).finished


def discount_turns(
    reward: Floats, ended: Flags, acts: Flags, gamma: float, running: NDArray[np.float64], open_turn: Flags
) -> tuple[NDArray[np.float64], Flags, NDArray[np.float64], Flags]:
    """Discounted returns so far of running lives, as `paddock.envs.native.series.discount` has them, turn by turn.

    Args:
        ended: [T, B].
        running, open_turn: [B], before the first step, and whether a turn is on that began before it.

    Returns:
        After each step, [T, B], and where a turn ended with it; and running and open_turn after the last one.
    """
    returns, closed = np.empty(reward.shape), np.empty(reward.shape, np.bool_)
    for t in range(len(reward)):
        open_turn = open_turn | acts[t]
        # Rewards before a life's first turn belong to no turn and are not learned from.
        returns[t] = np.where(acts[t], running * gamma, running) + np.where(open_turn, reward[t], np.float32(0))
        closed[t] = open_turn & (acts[t + 1] | ended[t])
        running, open_turn = np.where(ended[t], 0.0, returns[t]), open_turn & ~ended[t]
    return returns, closed, running, open_turn


@dataclass(frozen=True)
class Turns:
    """The finished turns of each row, packed so that the last one is at T - 1."""

    finished: Flags  # [T, B]
    begin: NDArray[np.intp]  # [T, B], the step in which each turn began; what is no turn comes first
    end: NDArray[np.intp]  # [T, B], the step before the row's next turn, or the last one of its life

    @classmethod
    def of(cls, terminated: Flags, truncated: Flags, acts: Flags) -> "Turns":
        """Find the turns of rows that acted as `acts` [T + 1, B] says."""
        T = len(terminated)
        at = np.where(acts[1:] | terminated | truncated, np.arange(T)[:, None], T)
        end = np.minimum.accumulate(at[::-1])[::-1]  # of the turn that is on in each step; T: not seen
        finished = acts[:T] & (end < T)
        begin = np.argsort(finished, axis=0, kind="stable")
        known = np.take_along_axis(finished, begin, 0)
        return cls(finished, begin, np.where(known, np.take_along_axis(end, begin, 0), begin))

    def begun(self, steps: NDArray[Any]) -> NDArray[Any]:
        """Map what steps have [T, B] to what turns began with."""
        return np.take_along_axis(steps, self.begin, 0)

    def ended(self, steps: NDArray[Any]) -> NDArray[Any]:
        """Map what steps have [T, B] to what turns ended with."""
        return np.take_along_axis(steps, self.end, 0)

    def reward(self, reward: Floats) -> Floats:
        """Map the rewards of steps [T, B] to those of turns, their sums."""
        total = self.begun(reward)
        for later in range(1, int((self.end - self.begin).max(initial=0)) + 1):
            at = self.begin + later
            more = np.take_along_axis(reward, np.minimum(at, len(reward) - 1), 0)
            total = np.where(at <= self.end, total + more, total)
        return total

    def put_back(self, turns: Floats) -> Floats:
        """Map what turns have to the steps in which they began, [T, B]; 0 elsewhere."""
        steps = np.zeros_like(turns)
        np.put_along_axis(steps, self.begin, turns, 0)
        return np.where(self.finished, steps, np.float32(0))
