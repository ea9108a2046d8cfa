"""Environments and policies of several agents, described row by row for code that does not know agents."""

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
    """Return how many rows of a vector an environment has: one for each agent."""
    return env.seats


def has_turns(env: EnvSpec, vec: Vec) -> bool:
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
    """Return how many agents an environment has, in words where they are several, and what a row is."""
    return (f" of {policies.seats} agents", "agents") if policies.seats > 1 else ("", "environments")


def name_row(row: int, per_env: int) -> str:
    """Return how a message names a row of a vector."""
    env, seat = divmod(row, per_env)
    return f"environment {env}" + (f" (agent {seat})" if per_env > 1 else "")


def check_turns(rollouts: Sequence[Rollout], before: int) -> None:
    """Check that an agent finished a turn in the first rollout.

    Args:
        rollouts: of each policy.
        before: rollouts played before; later ones may lack a finished turn by chance.

    Raises:
        ConfigError: no agent did.
    """
    what = f"in {len(rollouts[0].reward)} steps of a rollout no agent's turn came to its end"
    remedy = "so there is nothing to learn from; raise algo.num_steps"
    require(before > 0 or not all(rollout.is_idle for rollout in rollouts), f"{what}, {remedy}")
