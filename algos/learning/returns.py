"""Returns and advantages of rollouts: pure functions of arrays [T, B].

`next_value[t]` is the value of the observation that step t led to, of the final one where an episode was truncated
there: so an episode that was cut off is bootstrapped, and one that terminated is not.

Where rows may wait, `acts` [T + 1, B] says which of them await an action at each observation, the last one too. Returns
are then those of transitions (`multiagent.aec`), and 0 except where a completed transition starts.
"""

import numpy as np

from paddock.algos.multiagent.aec import AgentTransitions, Flags, Floats
from paddock.envs.native.series import carry_back


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
        acts: rows that await an action; None: every row, always.

    Returns:
        Advantages [T, B]; added to `value` they are the lambda-returns.
    """
    if acts is not None:
        spans = AgentTransitions.of(terminated, truncated, acts)
        ends = spans.at_end(next_value), spans.at_end(terminated), spans.at_end(truncated)
        return spans.scatter(gae(spans.sum_rewards(reward), spans.at_start(value), *ends, gamma, gae_lambda))
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
        spans = AgentTransitions.of(terminated, truncated, acts)
        ends = spans.at_end(next_value), spans.at_end(terminated), spans.at_end(truncated)
        return spans.scatter(n_step(spans.sum_rewards(reward), *ends, gamma))
    cut = truncated.copy()
    cut[-1] = True
    end = reward + np.float32(gamma) * np.where(terminated | ~cut, np.float32(0), next_value)
    return carry_back(end, np.where(terminated | cut, np.float32(0), np.float32(gamma)))


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
        acts: rows that await an action; None: every row, always.

    Returns:
        Targets of the values and advantages, both [T, B]; with ratios of 1 the targets are the lambda-returns.
    """
    if acts is not None:
        spans = AgentTransitions.of(terminated, truncated, acts)
        ends = spans.at_end(next_value), spans.at_end(terminated), spans.at_end(truncated)
        starts = spans.sum_rewards(reward), spans.at_start(value)
        target, advantage = vtrace(*starts, *ends, gamma, gae_lambda, spans.at_start(ratio), ratio_max)
        return spans.scatter(target), spans.scatter(advantage)
    rho = np.minimum(ratio, np.float32(ratio_max))
    alive = np.where(terminated, np.float32(0), np.float32(gamma))
    delta = rho * (reward + alive * next_value - value)
    carry = np.where(terminated | truncated, np.float32(0), np.float32(gamma * gae_lambda)) * rho
    target = value + carry_back(delta, carry)
    # What followed a step is judged by its target, except where the episode or the rollout broke off there.
    following = np.concatenate([target[1:], next_value[-1:]])
    following = np.where(truncated, next_value, following)
    return target, rho * (reward + alive * following - value)
