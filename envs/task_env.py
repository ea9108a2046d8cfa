"""Base classes of our environments, for one agent and for several."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Self

import gymnasium
import numpy as np


class TaskEnv(gymnasium.Env[Any, Any], ABC):
    """Environment with one seeded generator and observations that depend on its state only."""

    metadata = {"render_modes": []}  # noqa: RUF012, Gymnasium's

    def __init__(self, observation_space: gymnasium.Space, action_space: gymnasium.Space, mode: str | None) -> None:
        self.observation_space, self.action_space, self.render_mode = observation_space, action_space, mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        self._begin(self.np_random)
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take an action."""
        reward, over = self._play(action)
        return self._observe(), float(reward), bool(over), False, {}

    @abstractmethod
    def _begin(self, draw: np.random.Generator) -> None:
        """Sample an initial state."""

    @abstractmethod
    def _play(self, action: Any) -> tuple[float, bool]:
        """Take an action; return its reward and whether the episode has terminated."""

    @abstractmethod
    def _observe(self) -> Any:
        """Return the current observation."""


class MultiAgentTaskEnv:
    """Base of `MultiAgentEnv` implementations, which add `reset` and `step`."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, seen: Mapping[str, gymnasium.Space], action_space: gymnasium.Space, mode: str | None) -> None:
        """Set each agent's observation space, the common action space and the render mode."""
        self.possible_agents, self.agents = tuple(seen), list[str]()
        self.render_mode = mode
        self._generator = np.random.default_rng()
        self._seen, self._actions = seen, action_space

    @property
    def unwrapped(self) -> Self:
        """Return the environment itself, as PettingZoo's tools expect."""
        return self

    def observation_space(self, agent: str) -> gymnasium.Space:
        """Return the observation space of an agent."""
        return self._seen[agent]

    def action_space(self, agent: str) -> gymnasium.Space:
        """Return the action space of an agent."""
        return self._actions

    def render(self) -> Any:
        """Do nothing."""

    def close(self) -> None:
        """Release nothing."""

    def _begin(self, seed: int | None) -> None:
        """Start an episode of all agents; a seed creates a new generator."""
        if seed is not None:
            self._generator = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
