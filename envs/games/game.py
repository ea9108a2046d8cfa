"""What all games have in common: an episode begins with draws, a choice is played, and a picture shows what is seen."""

from abc import ABC, abstractmethod
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray


class Game(gymnasium.Env[Any, np.int64], ABC):
    """A game of whole numbers, whose every draw is from the generator of its reset."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012, Gymnasium's

    def __init__(self, render_mode: str | None = None) -> None:
        """Make it."""
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        self._begin(self.np_random)
        return self._observe(), {}

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play a choice."""
        reward, over = self._play(int(action), self.np_random)
        return self._observe(), float(reward), bool(over), False, {}

    def render(self) -> Any:
        """Return the picture, [H, W, 3]; None without a render mode."""
        return self.picture(self._observe()) if self.render_mode == "rgb_array" else None

    @classmethod
    @abstractmethod
    def picture(cls, seen: Any) -> NDArray[np.uint8]:
        """Draw an observation, [H, W, 3]."""

    @abstractmethod
    def _begin(self, draw: np.random.Generator) -> None:
        """Draw where an episode begins."""

    @abstractmethod
    def _play(self, action: int, draw: np.random.Generator) -> tuple[float, bool]:
        """Play a choice; its reward, and whether the game is over."""

    @abstractmethod
    def _observe(self) -> Any:
        """Return what is seen now."""
