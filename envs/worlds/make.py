"""Make an environment by `module:factory`, and bring it into the form that worlds have."""

import re
from collections.abc import Mapping
from typing import Any

import gymnasium
import gymnasium.wrappers

from envs.errors import ConfigError, require, resolve
from envs.worlds.limit import Limited
from envs.worlds.sole import SoleAgent
from envs.worlds.world import Seated

FACTORY = re.compile(r"[\w.]+:[A-Za-z_]\w*")  # without the version that an id of Gymnasium's ends in
VERSION = re.compile(r"-v\d+$")


def names_factory(id: str) -> bool:
    """Return whether an id is `module:factory`, and not one of Gymnasium's such as `package:Name-v0`."""
    return FACTORY.fullmatch(id) is not None and VERSION.search(id) is None


def call_factory(id: str, kwargs: Mapping[str, Any]) -> Any:
    """Return what a factory makes.

    Raises:
        ConfigError: there is none of that name, or it cannot be imported.
    """
    return resolve(id, "env.id")(**kwargs)


def adapt(env: Any, id: str, agents: int | None, max_episode_steps: int | None) -> Any:
    """Return what was made: of one agent as Gymnasium has it, of several as a `World`, cut off where it is to be.

    Args:
        max_episode_steps: of what a factory gave; None: nothing more is cut off.

    Raises:
        ConfigError: it is of no form that is known here.
    """
    if isinstance(env, gymnasium.Env):
        require(agents in (None, 1), f"env.agents={agents}: env.id={id} has one agent; leave env.agents out")
        if max_episode_steps is None or not names_factory(id):  # Gymnasium limits what is registered
            return env
        return gymnasium.wrappers.TimeLimit(env, max_episode_steps)
    if not isinstance(env, Seated):
        forms = "a gymnasium.Env or a pettingzoo.ParallelEnv"
        raise ConfigError(f"env.id={id} gives a {type(env).__name__}, which is not {forms}; name a factory of one")
    known = len(env.possible_agents)
    require(known > 0, f"env.id={id}: its possible_agents are empty; name an environment that has agents")
    require(agents in (None, known), f"env.agents={agents}: env.id={id} has {known} by itself; leave env.agents out")
    world: Any = env
    if known == 1:
        return adapt(SoleAgent(world), id, None, max_episode_steps)
    return world if max_episode_steps is None else Limited(world, max_episode_steps)
