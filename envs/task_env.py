"""Bases of our own environments, of one agent and of several: what does not depend on their rules."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Self

import gymnasium
import numpy as np


class TaskEnv(gymnasium.Env[Any, Any], ABC):
    """An environment whose every draw is from the generator of its reset, and whose observation is of its state alone."""

    metadata = {"render_modes": []}  # noqa: RUF012, Gymnasium's

    def __init__(self, observation_space: gymnasium.Space, action_space: gymnasium.Space, mode: str | None) -> None:
        """Make it for a render mode."""
        self.observation_space, self.action_space, self.render_mode = observation_space, action_space, mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        self._begin(self.np_random)
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play an action."""
        reward, over = self._play(action)
        return self._observe(), float(reward), bool(over), False, {}

    @abstractmethod
    def _begin(self, draw: np.random.Generator) -> None:
        """Draw where an episode begins."""

    @abstractmethod
    def _play(self, action: Any) -> tuple[float, bool]:
        """Play an action; its reward, and whether the episode is over."""

    @abstractmethod
    def _observe(self) -> Any:
        """Return what is seen now."""


class MultiAgentTaskEnv:
    """An environment of several agents, in the form of `paddock.envs.multiagent.env`, but for its `reset` and `step`."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, seen: Mapping[str, gymnasium.Space], action_space: gymnasium.Space, mode: str | None) -> None:
        """Make it of what each agent sees, for a render mode."""
        self.possible_agents, self.agents = tuple(seen), list[str]()
        self.render_mode = mode
        self._generator = np.random.default_rng()
        self._seen, self._actions = seen, action_space

    @property
    def unwrapped(self) -> Self:
        """The world itself, as PettingZoo's tools ask for it."""
        return self

    def observation_space(self, agent: str) -> gymnasium.Space:
        """Return what an agent sees."""
        return self._seen[agent]

    def action_space(self, agent: str) -> gymnasium.Space:
        """Return what an agent may do."""
        return self._actions

    def render(self) -> Any:
        """Draw nothing."""

    def close(self) -> None:
        """Close nothing."""

    def _begin(self, seed: int | None) -> None:
        """Begin an episode with all agents, on a new generator for a seed."""
        if seed is not None:
            self._generator = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
