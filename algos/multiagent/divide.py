"""Which policy acts for whom: one for each role, or as a mapping of policies to roles and agents says."""

import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium

from paddock.algos.learning.rollouts.config import playable
from paddock.algos.multiagent.policies import PolicyGroup, PolicySpec
from paddock.algos.networks.architecture import Architecture
from paddock.algos.networks.inputs import spaces_of, spaces_of_role, with_agent_ids
from paddock.envs.errors import nearest, require
from paddock.envs.multiagent.roles import Role
from paddock.envs.spaces.layout import Layout
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Vec

NAME = re.compile(r"[A-Za-z_][\w-]*")


def prepare_env(env: EnvSpec, vec: Vec, agent_id_feature: bool) -> EnvSpec:
    """Return the recipe of environments that rollouts are played in; see `playable` and `with_agent_ids`."""
    return playable(with_agent_ids(env, agent_id_feature), vec)


def make_policy_group(
    env: EnvSpec,
    policies: Mapping[str, Any] | None,
    architecture: Callable[[Layout, gymnasium.Space], Architecture],
) -> PolicyGroup:
    """Build the policies of an environment, each with its own network.

    Args:
        policies: see `divide`.
        architecture: makes a network, given what agents see and do.

    Raises:
        ConfigError: the mapping does not divide the agents, or what they see and do has no network.
    """
    if env.seats == 1:
        said = f"algo.policies={_spell(policies)}: env.id={env.id} has one agent; leave it at null"
        require(policies is None, said)
        return PolicyGroup.shared(architecture(*spaces_of(env)), 1)
    divided = divide(env, policies)
    if len(divided) == 1:
        return PolicyGroup.shared(architecture(*spaces_of_role(env, divided[0])), env.seats)
    several, each = len(env.roles) > 1, []
    for role in divided:
        network = architecture(*spaces_of_role(env, role))
        layouts = (network.inputs.layout, role.actions) if several else None
        each.append(PolicySpec(role.name, role.seats, network, layouts))
    return PolicyGroup.of(each, env)


def divide(env: EnvSpec, policies: Mapping[str, Any] | None) -> list[Role]:
    """Return whom each policy acts for, as a role of its name; in the order of their first seats.

    Args:
        policies: name -> the name of a role or of an agent, or of agents alike, as `red_*`, or a list of them; None:
            one for each role.

    Raises:
        ConfigError: an agent has none or two, or those of one see or do different things.
    """
    if policies is None:
        return list(env.roles)
    key = f"algo.policies={_spell(policies)}"
    require(bool(policies), f"{key} names no policy; leave it at null for one for each role")
    known = {agent: (role, seat) for role in env.roles for agent, seat in zip(role.agents, role.seats, strict=True)}
    roles = {role.name: role for role in env.roles}
    taken: dict[str, str] = {}  # agent -> its policy
    divided = []
    for name, named in policies.items():
        fits = NAME.fullmatch(str(name)) is not None
        require(fits, f"{key}: '{name}' is no name for a policy; use letters, digits, _ and -, a letter first")
        words = [named] if isinstance(named, str) else named
        listed = isinstance(words, Sequence) and all(isinstance(word, str) for word in words) and bool(words)
        require(listed, f"{key}: {name} must be a role, an agent, or a list of them; {_choices(env)}")
        agents: list[str] = []
        for word in words:
            found = roles[word].agents if word in roles else fnmatch.filter(known, word) if "*" in word else [word]
            close = nearest(word, [*roles, *known])
            there = bool(found) and all(agent in known for agent in found)
            require(there, f"{key}: env.id={env.id} has neither a role nor an agent '{word}'; {close}")
            agents += found
        for agent in agents:
            require(agent not in taken, f"{key}: {agent} has two policies, {taken.get(agent)} and {name}; give it one")
            taken[agent] = str(name)
        of = {known[agent][0].name for agent in agents}
        alike = f"{key}: {name} acts for roles {' and '.join(sorted(of))}, which see or do different things"
        require(len(of) == 1, f"{alike}; give each a policy of its own")
        pairs = sorted((known[agent][1], agent) for agent in agents)
        seats, names = tuple(seat for seat, _ in pairs), tuple(agent for _, agent in pairs)
        divided.append(replace(roles[of.pop()], name=str(name), seats=seats, agents=names))
    left = [agent for agent in known if agent not in taken]
    require(not left, f"{key}: no policy acts for {', '.join(left)}; name them too")
    return sorted(divided, key=lambda role: role.seats[0])


def _spell(policies: Any) -> str:
    return str(policies).replace("'", "")


def _choices(env: EnvSpec) -> str:
    return "roles are " + ", ".join(f"{role.name} ({', '.join(role.agents)})" for role in env.roles)
