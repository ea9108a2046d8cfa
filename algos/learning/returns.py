"""Returns and advantages of rollouts: pure functions of arrays [T, B].

`next_value[t]` is the value of the observation that step t led to, of the final one where an episode was truncated
there: so an episode that was cut off is bootstrapped, and one that terminated is not.

Where several agents share a world, a row may wait while others act, or be dead. `acts` [T + 1, B] then says which rows
await an action at each observation, the last one too. A turn spans to the row's next one or to the end of its life: the
rewards on the way are summed, and gamma counts turns. Results are 0 but for `finished_turns`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.envs.native.series import carry_back

Floats = NDArray[np.floating[Any]]  # float32 throughout
Flags = NDArray[np.bool_]


def finished_turns(terminated: Flags, truncated: Flags, acts: Flags) -> Flags:
    """Return where a row acted and its turn came to an end before the rollout did, [T, B]."""
    return _Turns.of(terminated, truncated, acts).finished


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
        # What is paid before a life's first turn is of no turn, and learned from by nobody.
        returns[t] = np.where(acts[t], running * gamma, running) + np.where(open_turn, reward[t], np.float32(0))
        closed[t] = open_turn & (acts[t + 1] | ended[t])
        running, open_turn = np.where(ended[t], 0.0, returns[t]), open_turn & ~ended[t]
    return returns, closed, running, open_turn


def gae(
    reward: Floats,
    value: Floats,
    next_value: Floats,
    terminated: Flags,
    truncated: Flags,
    gamma: float,
    gae_lambda: float,
    acts: Flags | None = None,
) -> Floats:
    """Generalized advantage estimation (Schulman et al. 2016, arXiv:1506.02438).

    Args:
        value: of the observations acted on.
        next_value: of the observations that followed; ignored where terminated.
        gae_lambda: lambda of the advantages, in [0, 1].
        acts: who awaits an action; None: every row, always.

    Returns:
        Advantages [T, B]; added to `value` they are the lambda-returns.
    """
    if acts is not None:
        turns = _Turns.of(terminated, truncated, acts)
        ends = turns.ended(next_value), turns.ended(terminated), turns.ended(truncated)
        return turns.put_back(gae(turns.reward(reward), turns.begun(value), *ends, gamma, gae_lambda))
    delta = reward + np.float32(gamma) * np.where(terminated, np.float32(0), next_value) - value
    carry = np.where(terminated | truncated, np.float32(0), np.float32(gamma * gae_lambda))
    return carry_back(delta, carry)


def n_step(
    reward: Floats,
    next_value: Floats,
    terminated: Flags,
    truncated: Flags,
    gamma: float,
    acts: Flags | None = None,
) -> Floats:
    """Discounted returns [T, B] to the end of the episode or of the rollout, bootstrapped there (A3C's, 2016)."""
    if acts is not None:
        turns = _Turns.of(terminated, truncated, acts)
        ends = turns.ended(next_value), turns.ended(terminated), turns.ended(truncated)
        return turns.put_back(n_step(turns.reward(reward), *ends, gamma))
    returns = np.empty_like(reward)
    running = next_value[-1]
    for t in range(len(reward) - 1, -1, -1):
        following = np.where(truncated[t], next_value[t], running)
        running = reward[t] + np.float32(gamma) * np.where(terminated[t], np.float32(0), following)
        returns[t] = running
    return returns


def vtrace(
    reward: Floats,
    value: Floats,
    next_value: Floats,
    terminated: Flags,
    truncated: Flags,
    gamma: float,
    gae_lambda: float,
    ratio: Floats,
    ratio_max: float = 1.0,
    acts: Flags | None = None,
) -> tuple[Floats, Floats]:
    """V-trace targets and advantages (Espeholt et al. 2018, arXiv:1802.01561), for rollouts of an older policy.

    Args:
        ratio: probability of each action now over its probability when it was taken.
        ratio_max: bound of the ratios, rho-bar and c-bar alike.
        acts: who awaits an action; None: every row, always.

    Returns:
        Targets of the values and advantages, both [T, B]; with ratios of 1 the targets are the lambda-returns.
    """
    if acts is not None:
        turns = _Turns.of(terminated, truncated, acts)
        ends = turns.ended(next_value), turns.ended(terminated), turns.ended(truncated)
        starts = turns.reward(reward), turns.begun(value)
        target, advantage = vtrace(*starts, *ends, gamma, gae_lambda, turns.begun(ratio), ratio_max)
        return turns.put_back(target), turns.put_back(advantage)
    rho = np.minimum(ratio, np.float32(ratio_max))
    alive = np.where(terminated, np.float32(0), np.float32(gamma))
    delta = rho * (reward + alive * next_value - value)
    carry = np.where(terminated | truncated, np.float32(0), np.float32(gamma * gae_lambda)) * rho
    target = value + carry_back(delta, carry)
    # What followed a step is judged by its target, except where the episode or the rollout broke off there.
    following = np.concatenate([target[1:], next_value[-1:]])
    following = np.where(truncated, next_value, following)
    return target, rho * (reward + alive * following - value)


@dataclass(frozen=True)
class _Turns:
    """The finished turns of each row, one after another and the last one at T - 1, as if nobody had ever waited."""

    finished: Flags  # [T, B]
    begin: NDArray[np.intp]  # [T, B], the step in which each turn began; what is no turn comes first
    end: NDArray[np.intp]  # [T, B], the step before the row's next turn, or the last one of its life

    @classmethod
    def of(cls, terminated: Flags, truncated: Flags, acts: Flags) -> "_Turns":
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
