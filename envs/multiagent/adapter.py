"""Environments that adapt or wrap a multi-agent environment, and their attributes."""

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium
from gymnasium import Space

from paddock.envs.multiagent.env import MultiAgentEnv, takes_turns


class Adapter:
    """Base of environments that adapt another; with its `reset` and `step` it is a `TakesTurns`.

    Attributes:
        env: the environment that it plays.
        agents: those that live.
        acting: those whose action the next step takes.
    """

    agents: Sequence[str]
    acting: Sequence[str]

    def __init__(self, env: Any, possible_agents: Sequence[str]) -> None:
        self.env = env
        self.possible_agents = list(possible_agents)
        self.agents, self.acting = [], []
        self.metadata = dict(getattr(env, "metadata", {}))
        self.render_mode = getattr(env, "render_mode", None)

    def observation_space(self, agent: str) -> Space:
        """Return the observation space of an agent."""
        space: Space = self.env.observation_space(agent)
        return space

    def action_space(self, agent: str) -> Space:
        """Return the action space of an agent."""
        space: Space = self.env.action_space(agent)
        return space

    @property
    def unwrapped(self) -> "Adapter":
        """The world itself, as PettingZoo has it of wrappers."""
        return self

    def render(self) -> Any:
        """Draw the world."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


class Wrapper(Adapter):
    """Base of environments that wrap another multi-agent environment."""

    def __init__(self, world: MultiAgentEnv) -> None:
        super().__init__(world, world.possible_agents)

    def _update(self) -> None:
        """Update the living and the acting agents."""
        self.agents = self.env.agents
        self.acting = self.env.acting if takes_turns(self.env) else self.agents


class SingleAgentEnv(gymnasium.Env[Any, Any]):
    """The one agent's environment; where the world ends and says nothing of the agent, its episode is truncated."""

    def __init__(self, world: MultiAgentEnv) -> None:
        """Take over a world of one agent."""
        self.env = world
        (self._agent,) = world.possible_agents
        self.metadata = dict(getattr(world, "metadata", {}))
        self.render_mode = getattr(world, "render_mode", None)
        self.observation_space = world.observation_space(self._agent)
        self.action_space = world.action_space(self._agent)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        observations, infos = self.env.reset(seed=seed, options=options)
        return observations[self._agent], dict(infos.get(self._agent, {}))

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take the agent's action."""
        agent = self._agent
        observations, rewards, terminated, truncated, infos = self.env.step({agent: action})
        ended, cut = bool(terminated.get(agent, False)), bool(truncated.get(agent, False))
        cut = cut or not (ended or agent in self.env.agents)
        return observations[agent], float(rewards.get(agent, 0.0)), ended, cut, dict(infos.get(agent, {}))

    def render(self) -> Any:
        """Draw the world."""
        return self.env.render()

    def close(self) -> None:
        """Close the world."""
        self.env.close()


def find_owner(env: Any, name: str) -> Any:
    """Return an environment, or what it wraps, whichever has an attribute of this name first; None if none has."""
    return next((layer for layer in layers(env) if hasattr(layer, name)), None)


def set_attribute(env: Any, name: str, value: Any) -> None:
    """Set an attribute where `find_owner` finds it, or of the innermost environment where none has it."""
    *_, innermost = layers(env)
    owner = find_owner(env, name) or innermost
    if inspect.getattr_static(owner, name, layers) is layers:  # PettingZoo's wrappers pass on what they have not
        owner = getattr(owner, "unwrapped", owner)
    setattr(owner, name, value)


def layers(env: Any) -> Iterator[Any]:
    """Yield an environment and what it wraps, one inside the other."""
    yield env
    while isinstance(env, gymnasium.Wrapper | Adapter | SingleAgentEnv):
        env = env.env
        yield env
