"""Assignment of agents to policies: one policy per role, or as the key `algo.policies` maps them."""

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
    """Return the specification of training environments; see `limit_episodes` and `with_agent_ids`."""
    return limit_episodes(with_agent_ids(env, agent_id_feature), vec)


def make_policy_group(
    env: EnvSpec,
    policies: Mapping[str, Any] | None,
    architecture: Callable[[Layout, gymnasium.Space], Architecture],
) -> PolicyGroup:
    """Build the policies of an environment; `architecture` builds each one's network from its spaces.

    Raises:
        ConfigError: the mapping is invalid (see `divide`), or no network supports the spaces.
    """
    if env.seats == 1:
        what = f"algo.policies={_format(policies)}: env.id={env.id} has one agent; leave it at null"
        require(policies is None, what)
        return PolicyGroup.shared(architecture(*spaces_of(env)), 1)
    divided = divide(env, policies)
    if len(divided) == 1:
        return PolicyGroup.shared(architecture(divided[0].observations, divided[0].action_space), env.seats)
    several, each = len(env.roles) > 1, []
    for role in divided:
        network = architecture(role.observations, role.action_space)
        layouts = (network.inputs.layout, role.actions) if several else None
        each.append(PolicySpec(role.name, role.seats, network, layouts))
    return PolicyGroup.of(each, env)


def divide(env: EnvSpec, policies: Mapping[str, Any] | None) -> list[Role]:
    """Return the agents of each policy, as a role of the policy's name, sorted by first seat.

    The mapping names for each policy a role, an agent, a pattern such as `red_*`, or a list of these; None: a policy
    per role.

    Raises:
        ConfigError: an agent has no policy or two, or agents of one policy have different spaces.
    """
    if policies is None:
        return list(env.roles)
    key = f"algo.policies={_format(policies)}"
    require(bool(policies), f"{key} names no policy; use null for one policy per role")
    known = {agent: (role, seat) for role in env.roles for agent, seat in zip(role.agents, role.seats, strict=True)}
    roles = {role.name: role for role in env.roles}
    taken: dict[str, str] = {}  # agent -> its policy
    divided = []
    for name, named in policies.items():
        fits = NAME.fullmatch(str(name)) is not None
        require(fits, f"{key}: '{name}' is not a valid policy name; use letters, digits, _ and -, a letter first")
        words = [named] if isinstance(named, str) else named
        listed = isinstance(words, Sequence) and all(isinstance(word, str) for word in words) and bool(words)
        require(listed, f"{key}: {name} must be a role, an agent, or a list of them; {_choices(env)}")
        agents: list[str] = []
        for word in words:
            found = roles[word].agents if word in roles else fnmatch.filter(known, word) if "*" in word else [word]
            close = nearest(word, [*roles, *known])
            exists = bool(found) and all(agent in known for agent in found)
            require(exists, f"{key}: env.id={env.id} has neither a role nor an agent '{word}'; {close}")
            agents += found
        for agent in agents:
            require(agent not in taken, f"{key}: {agent} has two policies, {taken.get(agent)} and {name}; give it one")
            taken[agent] = str(name)
        of = {known[agent][0].name for agent in agents}
        several = f"{key}: {name} acts for roles {' and '.join(sorted(of))}, which have different spaces"
        require(len(of) == 1, f"{several}; give each its own policy")
        pairs = sorted((known[agent][1], agent) for agent in agents)
        seats, names = tuple(seat for seat, _ in pairs), tuple(agent for _, agent in pairs)
        divided.append(replace(roles[of.pop()], name=str(name), seats=seats, agents=names))
    left = [agent for agent in known if agent not in taken]
    require(not left, f"{key}: no policy acts for {', '.join(left)}; assign them too")
    return sorted(divided, key=lambda role: role.seats[0])


def _format(policies: Any) -> str:
    return str(policies).replace("'", "")


def _choices(env: EnvSpec) -> str:
    return "roles are " + ", ".join(f"{role.name} ({', '.join(role.agents)})" for role in env.roles)
