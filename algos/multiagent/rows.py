"""Per-row views of multi-agent environments and policies, for code that only knows rows."""

from collections.abc import Sequence
from typing import Any

import gymnasium

from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.algos.multiagent.joint_policy import JointPolicy
from paddock.algos.multiagent.policies import PolicyGroup
from paddock.envs.errors import require
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Vec
from paddock.envs.vector.remote import is_shared


def rows_per_env(env: EnvSpec) -> int:
    """Return the number of vector rows per environment: one for each agent."""
    return env.seats


def agents_may_wait(env: EnvSpec, vec: Vec) -> bool:
    """Return whether rows of a rollout may wait, or end before their environment does."""
    return env.seats > 1 or is_shared(vec)


def spaces_of_rows(env: EnvSpec) -> list[tuple[gymnasium.Space, gymnasium.Space]]:
    """Return the observation space and the action space of each row of an environment."""
    role_of = {seat: role for role in env.roles for seat in role.seats}
    return [(role_of[seat].observation_space, role_of[seat].action_space) for seat in range(env.seats)]


def policy_in_row(policy: Any, row: int) -> Any:
    """Return the policy that plays a row of its environment."""
    return policy.at(row) if isinstance(policy, JointPolicy) else policy


def describe_rows(policies: PolicyGroup) -> tuple[str, str]:
    """Return texts for the number of agents, empty for one, and for the kind of thing that a row is."""
    return (f" of {policies.seats} agents", "agents") if policies.seats > 1 else ("", "environments")


def name_row(row: int, per_env: int) -> str:
    """Format a row of a vector for messages."""
    env, seat = divmod(row, per_env)
    return f"environment {env}" + (f" (agent {seat})" if per_env > 1 else "")


def check_transitions(rollouts: Sequence[Rollout], before: int) -> None:
    """Raise ConfigError if no agent completed a transition in the first rollout; later ones may lack some by chance."""
    what = f"no agent completed a transition in a rollout of {len(rollouts[0].reward)} steps"
    remedy = "so there is nothing to train on; increase algo.num_steps"
    require(before > 0 or not all(rollout.is_idle for rollout in rollouts), f"{what}, {remedy}")
