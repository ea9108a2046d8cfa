"""Returns and advantages of rollouts: pure functions of arrays [T, B].

`next_value[t]` is the value of the observation that step t led to, of the final one where an episode was truncated
there: so an episode that was cut off is bootstrapped, and one that terminated is not.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.native.series import carry_back

Floats = NDArray[np.floating[Any]]  # float32 throughout
Flags = NDArray[np.bool_]


def gae(
    reward: Floats,
    value: Floats,
    next_value: Floats,
    terminated: Flags,
    truncated: Flags,
    gamma: float,
    gae_lambda: float,
) -> Floats:
    """Generalized advantage estimation (Schulman et al. 2016, arXiv:1506.02438).

    Args:
        value: of the observations acted on.
        next_value: of the observations that followed; ignored where terminated.
        gae_lambda: lambda of the advantages, in [0, 1].

    Returns:
        Advantages [T, B]; added to `value` they are the lambda-returns.
    """
    delta = reward + np.float32(gamma) * np.where(terminated, np.float32(0), next_value) - value
    carry = np.where(terminated | truncated, np.float32(0), np.float32(gamma * gae_lambda))
    return carry_back(delta, carry)


def n_step(
    reward: Floats,
    next_value: Floats,
    terminated: Flags,
    truncated: Flags,
    gamma: float,
) -> Floats:
    """Discounted returns [T, B] to the end of the episode or of the rollout, bootstrapped there (A3C's, 2016)."""
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
) -> tuple[Floats, Floats]:
    """V-trace targets and advantages (Espeholt et al. 2018, arXiv:1802.01561), for rollouts of an older policy.

    Args:
        ratio: probability of each action now over its probability when it was taken.
        ratio_max: bound of the ratios, rho-bar and c-bar alike.

    Returns:
        Targets of the values and advantages, both [T, B]; with ratios of 1 the targets are the lambda-returns.
    """
    rho = np.minimum(ratio, np.float32(ratio_max))
    alive = np.where(terminated, np.float32(0), np.float32(gamma))
    delta = rho * (reward + alive * next_value - value)
    carry = np.where(terminated | truncated, np.float32(0), np.float32(gamma * gae_lambda)) * rho
    target = value + carry_back(delta, carry)
    # What followed a step is judged by its target, except where the episode or the rollout broke off there.
    following = np.concatenate([target[1:], next_value[-1:]])
    following = np.where(truncated, next_value, following)
    return target, rho * (reward + alive * following - value)
