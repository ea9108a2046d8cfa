"""Returns and advantages of rollouts: pure functions of [T, B] arrays.

`next_value[t]` is the value of the observation after step t, which is the final observation where an episode was
truncated. Truncated episodes are therefore bootstrapped and terminated ones are not.

In turn-based environments, `acts` [T + 1, B] marks the rows that select an action at each observation. Returns are then
computed over agents' transitions (`multiagent.aec`) and are 0 except where a completed transition starts.
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
    """Compute generalized advantage estimates [T, B] (Schulman et al. 2016, arXiv:1506.02438).

    `value` plus the advantages are the lambda-returns.
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
    """Compute returns [T, B], bootstrapped at truncation and at the end of the rollout (A3C, Mnih et al. 2016)."""
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
    """Compute V-trace targets and advantages (Espeholt et al. 2018, arXiv:1802.01561) for rollouts of an older policy.

    `ratio` is pi(a | s) / mu(a | s), clipped at `ratio_max` for both rho and c.

    Returns:
        Value targets and advantages, both [T, B]; with ratios of 1 the targets are the lambda-returns.
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
    # Bootstrap from the next step's target, or from the value where the episode or the rollout was cut.
    following = np.concatenate([target[1:], next_value[-1:]])
    following = np.where(truncated, next_value, following)
    return target, rho * (reward + alive * following - value)
