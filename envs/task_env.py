"""Base of our own environments of one agent: an episode begins, an action is played, and something is seen."""

from abc import ABC, abstractmethod
from typing import Any

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
