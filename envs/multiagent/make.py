"""Make an environment by `module:factory`, and bring it into the form that worlds have."""

import re
from typing import Any

import gymnasium
from gymnasium.wrappers import TimeLimit

from paddock.envs.errors import ConfigError, require
from paddock.envs.multiagent.adapter import SingleAgentEnv
from paddock.envs.multiagent.aec import CYCLE, AECAdapter
from paddock.envs.multiagent.agent_id import AgentIdFeature
from paddock.envs.multiagent.env import MultiAgentEnv, offers
from paddock.envs.multiagent.rllib import BY_AGENT, RLlibAdapter
from paddock.envs.multiagent.time_limit import MultiAgentTimeLimit
from paddock.envs.multiagent.tuples import TupleAdapter

FACTORY = re.compile(r"[\w.]+:[A-Za-z_]\w*")  # without the version that an id of Gymnasium's ends in
PARALLEL = ("possible_agents", "observation_space", "action_space", "reset", "step")  # what tells a ParallelEnv
VERSION = re.compile(r"-v\d+$")


def names_factory(id: str) -> bool:
    """Return whether an id is `module:factory`, and not one of Gymnasium's such as `package:Name-v0`."""
    return FACTORY.fullmatch(id) is not None and VERSION.search(id) is None


def adapt(env: Any, id: str, agents: int | None, max_episode_steps: int | None, agent_id_feature: bool = False) -> Any:
    """Return a made environment as a `gymnasium.Env` of one agent or a `MultiAgentEnv` of several, truncated at a limit.

    Args:
        agents: how many agents a Gymnasium environment has, if not one.
        max_episode_steps: None: no further limit.
        agent_id_feature: whether agents observe their indices.

    Raises:
        ConfigError: it has no supported form.
    """
    if isinstance(env, gymnasium.Env) and not offers(env, *BY_AGENT):
        # Those that Gymnasium knows by name are limited already, before any wrapper.
        limit = max_episode_steps if names_factory(id) else None
        if agents in (None, 1):
            return env if limit is None else TimeLimit(env, limit)
        world: Any = TupleAdapter(env, agents, id)
    else:
        limit, world = max_episode_steps, _find_form(env, id)
        known = len(world.possible_agents)
        require(known > 0, f"env.id={id}: its possible_agents are empty; name an environment that has agents")
        own = f"env.agents={agents}: env.id={id} has {known} by itself; leave env.agents out"
        require(agents in (None, known), own)
        if known == 1:
            return SingleAgentEnv(world) if limit is None else TimeLimit(SingleAgentEnv(world), limit)
    world = AgentIdFeature(world) if agent_id_feature else world
    return world if limit is None else MultiAgentTimeLimit(world, limit)


def _find_form(env: Any, id: str) -> MultiAgentEnv:
    """Return an environment of several agents in the form that all have here."""
    if offers(env, *CYCLE):
        return AECAdapter(env, env.possible_agents)
    if isinstance(env, gymnasium.Env):
        return RLlibAdapter(env)
    if not offers(env, *PARALLEL):
        forms = "a gymnasium.Env, nor PettingZoo's ParallelEnv or AECEnv, nor RLlib's MultiAgentEnv"
        raise ConfigError(f"env.id={id} gives a {type(env).__name__}, which is neither {forms}; name a factory of one")
    world: Any = env
    return world
