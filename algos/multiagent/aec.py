"""Transitions of agents that act in turn (PettingZoo's agent-environment cycle), where rows may wait or be dead.

`acts` [T + 1, B] marks the rows that must act on each observation, including the last one. A transition runs from an
agent's action to its next action or to the end of its life; its rewards are summed, and gamma applies once to each.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]  # float32 throughout
Flags = NDArray[np.bool_]


def completed_transitions(terminated: Flags, truncated: Flags, acts: Flags) -> Flags:
    """Return where a row acted and its transition was completed within the rollout, [T, B]."""
    return AgentTransitions.of(terminated, truncated, acts).completed


def discount_transitions(
    reward: Floats, ended: Flags, acts: Flags, gamma: float, running: NDArray[np.float64], is_open: Flags
) -> tuple[NDArray[np.float64], Flags, NDArray[np.float64], Flags]:
    """Compute running discounted returns as `paddock.envs.native.series.discount` does, by transition.

    `running` [B] and `is_open` [B] are the returns before the first step, and whether a transition is incomplete.

    Returns:
        The returns after each step [T, B], where a transition was completed [T, B], the new `running` and `is_open`.
    """
    returns, closed = np.empty(reward.shape), np.empty(reward.shape, np.bool_)
    for t in range(len(reward)):
        is_open = is_open | acts[t]
        # Rewards before a life's first action belong to no transition and are not learned from.
        returns[t] = np.where(acts[t], running * gamma, running) + np.where(is_open, reward[t], np.float32(0))
        closed[t] = is_open & (acts[t + 1] | ended[t])
        running, is_open = np.where(ended[t], 0.0, returns[t]), is_open & ~ended[t]
    return returns, closed, running, is_open


@dataclass(frozen=True)
class AgentTransitions:
    """Completed transitions of each row, packed so that the last one is at T - 1."""

    completed: Flags  # [T, B]
    start: NDArray[np.intp]  # [T, B], the step of each transition's action; unused entries come first
    end: NDArray[np.intp]  # [T, B], the step before the row's next action, or the last step of its life

    @classmethod
    def of(cls, terminated: Flags, truncated: Flags, acts: Flags) -> "AgentTransitions":
        """Find the transitions of rows that acted at `acts` [T + 1, B]."""
        T = len(terminated)
        at = np.where(acts[1:] | terminated | truncated, np.arange(T)[:, None], T)
        end = np.minimum.accumulate(at[::-1])[::-1]  # of the transition open in each step; T: after the rollout
        completed = acts[:T] & (end < T)
        start = np.argsort(completed, axis=0, kind="stable")
        used = np.take_along_axis(completed, start, 0)
        return cls(completed, start, np.where(used, np.take_along_axis(end, start, 0), start))

    def at_start(self, steps: NDArray[Any]) -> NDArray[Any]:
        """Select the values of steps [T, B] at the start of each transition."""
        return np.take_along_axis(steps, self.start, 0)

    def at_end(self, steps: NDArray[Any]) -> NDArray[Any]:
        """Select the values of steps [T, B] at the end of each transition."""
        return np.take_along_axis(steps, self.end, 0)

    def sum_rewards(self, reward: Floats) -> Floats:
        """Sum the rewards of steps [T, B] over each transition."""
        total = self.at_start(reward)
        for later in range(1, int((self.end - self.start).max(initial=0)) + 1):
            at = self.start + later
            more = np.take_along_axis(reward, np.minimum(at, len(reward) - 1), 0)
            total = np.where(at <= self.end, total + more, total)
        return total

    def scatter(self, values: Floats) -> Floats:
        """Map values of transitions to the steps in which they start, [T, B]; 0 elsewhere."""
        steps = np.zeros_like(values)
        np.put_along_axis(steps, self.start, values, 0)
        return np.where(self.completed, steps, np.float32(0))
