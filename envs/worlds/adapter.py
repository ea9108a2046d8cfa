"""What worlds have in common that are another environment's face."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium
from gymnasium import Space

from paddock.envs.worlds.world import Step, Told


class Adapter(ABC):
    """A world that plays another environment; see `World` and `TakesTurns` for what it promises.

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

    @abstractmethod
    def observation_space(self, agent: str) -> Space:
        """Return what an agent sees."""

    @abstractmethod
    def action_space(self, agent: str) -> Space:
        """Return what an agent may do."""

    @abstractmethod
    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Told, Told]:
        """Start an episode of the whole world; observations and infos of the agents that live."""

    @abstractmethod
    def step(self, actions: dict[str, Any]) -> Step:
        """Step by the actions of those who act; what is said of agents that lived, and of those born."""

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
