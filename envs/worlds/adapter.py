"""What worlds have in common that are another environment's face."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import gymnasium
from gymnasium import Space

from envs.worlds.world import Step, Told


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
    while not hasattr(env, name):
        if isinstance(env, gymnasium.Wrapper):
            env = env.env
        elif isinstance(env, Adapter):
            env = env.inner
        else:
            return None
    return env
