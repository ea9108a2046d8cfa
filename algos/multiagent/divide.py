"""Assignment of agents to policies: one policy per role by default, or the mapping `algo.policies`."""

import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium

from paddock.algos.learning.rollouts.config import limit_episodes
from paddock.algos.multiagent.policies import PolicyGroup, PolicySpec
from paddock.algos.networks.architecture import Architecture
from paddock.algos.networks.inputs import spaces_of, with_agent_ids
from paddock.envs.errors import nearest, require
from paddock.envs.multiagent.roles import Role
from paddock.envs.spaces.layout import Layout
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Vec

NAME = re.compile(r"[A-Za-z_][\w-]*")


def prepare_env(env: EnvSpec, vec: Vec, agent_id_feature: bool) -> EnvSpec:
    """Apply `limit_episodes` and `with_agent_ids` to the specification of the training environments."""
    return limit_episodes(with_agent_ids(env, agent_id_feature), vec)


def make_policy_group(
    env: EnvSpec,
    policies: Mapping[str, Any] | None,
    architecture: Callable[[Layout, gymnasium.Space], Architecture],
) -> PolicyGroup:
    """Build the policies of an environment; `architecture` builds a policy's network from its spaces."""
    if env.seats == 1:
        problem = f"algo.policies={_format(policies)}: env.id={env.id} has a single agent; set algo.policies=null"
        require(policies is None, problem)
        return PolicyGroup.shared(architecture(*spaces_of(env)), 1)
    divided = divide(env, policies)
    if len(divided) == 1:
        return PolicyGroup.shared(architecture(divided[0].observations, divided[0].action_space), env.seats)
    several_roles, specs = len(env.roles) > 1, []
    for role in divided:
        network = architecture(role.observations, role.action_space)
        layouts = (network.inputs.layout, role.actions) if several_roles else None
        specs.append(PolicySpec(role.name, role.seats, network, layouts))
    return PolicyGroup.of(specs, env)


def divide(env: EnvSpec, policies: Mapping[str, Any] | None) -> list[Role]:
    """Return one role per policy with the policy's name and agents, sorted by the first agent's index.

    `policies` maps each policy's name to a role, an agent, a pattern such as `red_*`, or a list of these. None means
    one policy per role. Raise ConfigError if an agent has no policy or several, or a policy's agents different spaces.
    """
    if policies is None:
        return list(env.roles)
    key = f"algo.policies={_format(policies)}"
    require(bool(policies), f"{key} is empty; use null for one policy per role")
    known = {agent: (role, seat) for role in env.roles for agent, seat in zip(role.agents, role.seats, strict=True)}
    roles = {role.name: role for role in env.roles}
    owner: dict[str, str] = {}  # policy of each agent
    divided = []
    for name, named in policies.items():
        valid = NAME.fullmatch(str(name)) is not None
        require(valid, f"{key}: '{name}' is not a valid policy name; use a letter, then letters, digits, _ or -")
        entries = [named] if isinstance(named, str) else named
        valid = isinstance(entries, Sequence) and all(isinstance(entry, str) for entry in entries) and bool(entries)
        require(valid, f"{key}: {name} must be a role, an agent, or a list of them; {_choices(env)}")
        agents: list[str] = []
        for entry in entries:
            found = roles[entry].agents if entry in roles else fnmatch.filter(known, entry) if "*" in entry else [entry]
            hint = nearest(entry, [*roles, *known])
            exists = bool(found) and all(agent in known for agent in found)
            require(exists, f"{key}: env.id={env.id} has no role or agent '{entry}'; {hint}")
            agents += found
        for agent in agents:
            require(agent not in owner, f"{key}: {agent} has two policies, {owner.get(agent)} and {name}; remove one")
            owner[agent] = str(name)
        role_names = {known[agent][0].name for agent in agents}
        problem = f"{key}: policy {name} controls roles {' and '.join(sorted(role_names))}, which have different spaces"
        require(len(role_names) == 1, f"{problem}; use one policy per role")
        pairs = sorted((known[agent][1], agent) for agent in agents)
        seats, names = tuple(seat for seat, _ in pairs), tuple(agent for _, agent in pairs)
        divided.append(replace(roles[role_names.pop()], name=str(name), seats=seats, agents=names))
    unassigned = [agent for agent in known if agent not in owner]
    require(not unassigned, f"{key}: no policy controls {', '.join(unassigned)}; add them to a policy")
    return sorted(divided, key=lambda role: role.seats[0])


def _format(policies: Any) -> str:
    return str(policies).replace("'", "")


def _choices(env: EnvSpec) -> str:
    return "available roles: " + ", ".join(f"{role.name} ({', '.join(role.agents)})" for role in env.roles)
