"""Adapt environments of any supported API to `gymnasium.Env` or `MultiAgentEnv`."""

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

FACTORY = re.compile(r"[\w.]+:[A-Za-z_]\w*")  # Gymnasium's ids end in a version
PARALLEL = ("possible_agents", "observation_space", "action_space", "reset", "step")  # of a ParallelEnv
VERSION = re.compile(r"-v\d+$")


def names_factory(id: str) -> bool:
    """Return whether an id is `module:factory` instead of a Gymnasium id such as `package:Name-v0`."""
    return FACTORY.fullmatch(id) is not None and VERSION.search(id) is None


def adapt(env: Any, id: str, agents: int | None, max_episode_steps: int | None, agent_id_feature: bool = False) -> Any:
    """Return an environment as a `gymnasium.Env` of one agent or a `MultiAgentEnv`, with a time limit.

    `agents` is the number of agents of a Gymnasium environment (None: one), and `agent_id_feature` adds the agent's index
    to observations. Raise ConfigError if the API is not supported.
    """
    if isinstance(env, gymnasium.Env) and not offers(env, *BY_AGENT):
        # `gymnasium.make` has already limited registered environments.
        limit = max_episode_steps if names_factory(id) else None
        if agents in (None, 1):
            return env if limit is None else TimeLimit(env, limit)
        adapted: Any = TupleAdapter(env, agents, id)
    else:
        limit, adapted = max_episode_steps, _adapt_multiagent(env, id)
        known = len(adapted.possible_agents)
        require(known > 0, f"env.id={id}: possible_agents is empty; use an environment with agents")
        own = f"env.agents={agents}: env.id={id} reports {known} agents itself; remove env.agents"
        require(agents in (None, known), own)
        if known == 1:
            return SingleAgentEnv(adapted) if limit is None else TimeLimit(SingleAgentEnv(adapted), limit)
    adapted = AgentIdFeature(adapted) if agent_id_feature else adapted
    return adapted if limit is None else MultiAgentTimeLimit(adapted, limit)


def _adapt_multiagent(env: Any, id: str) -> MultiAgentEnv:
    if offers(env, *CYCLE):
        return AECAdapter(env, env.possible_agents)
    if isinstance(env, gymnasium.Env):
        return RLlibAdapter(env)
    if not offers(env, *PARALLEL):
        forms = "a gymnasium.Env, nor PettingZoo's ParallelEnv or AECEnv, nor RLlib's MultiAgentEnv"
        raise ConfigError(f"env.id={id} returns a {type(env).__name__}, which is neither {forms}; use a factory of one")
    parallel: MultiAgentEnv = env
    return parallel
