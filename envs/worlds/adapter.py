"""Multi-agent environments that adapt or wrap another environment."""

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium
from gymnasium import Space

from paddock.envs.worlds.world import World, takes_turns


class Adapter:
    """Base of environments that adapt another; with its `reset` and `step` it is a `TakesTurns`.

    Attributes:
        agents: those that live.
        acting: those whose action the next step takes.
    """

    agents: Sequence[str]
    acting: Sequence[str]

    def __init__(self, env: Any, possible_agents: Sequence[str]) -> None:
        self._env = env
        self.possible_agents = list(possible_agents)
        self.agents, self.acting = [], []
        self.metadata = dict(getattr(env, "metadata", {}))
        self.render_mode = getattr(env, "render_mode", None)

    def observation_space(self, agent: str) -> Space:
        """Return the observation space of an agent."""
        space: Space = self._env.observation_space(agent)
        return space

    def action_space(self, agent: str) -> Space:
        """Return the action space of an agent."""
        space: Space = self._env.action_space(agent)
        return space

    @property
    def inner(self) -> Any:
        """The environment that it plays."""
        return self._env

    @property
    def unwrapped(self) -> "Adapter":
        """The world itself, as PettingZoo has it of wrappers."""
        return self

    def render(self) -> Any:
        """Draw the world."""
        return self._env.render()

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


class Wrapper(Adapter):
    """Base of environments that wrap another multi-agent environment."""

    def __init__(self, world: World) -> None:
        super().__init__(world, world.possible_agents)

    def _update(self) -> None:
        """Update the living and the acting agents."""
        self.agents = self._env.agents
        self.acting = self._env.acting if takes_turns(self._env) else self.agents


def find_owner(env: Any, name: str) -> Any:
    """Return an environment, or what it wraps, whichever has an attribute of this name first; None if none has."""
    return next((layer for layer in _layers(env) if hasattr(layer, name)), None)


def set_attribute(env: Any, name: str, value: Any) -> None:
    """Set an attribute where `find_owner` finds it, or of the innermost environment where none has it."""
    *_, innermost = _layers(env)
    owner = find_owner(env, name) or innermost
    if inspect.getattr_static(owner, name, _layers) is _layers:  # PettingZoo's wrappers pass on what they have not
        owner = getattr(owner, "unwrapped", owner)
    setattr(owner, name, value)


def _layers(env: Any) -> Iterator[Any]:
    """Yield an environment and what it wraps, one inside the other."""
    yield env
    while isinstance(env, gymnasium.Wrapper | Adapter):
        env = env.inner if isinstance(env, Adapter) else env.env
        yield env
