"""Base class of games, rendered from their observations."""

from abc import abstractmethod
from typing import Any

from paddock.envs.games.picture import Picture
from paddock.envs.task_env import TaskEnv


class Game(TaskEnv):
    """Game in integer arithmetic."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012, Gymnasium's

    def render(self) -> Any:
        """Return an image, [H, W, 3]; None without a render mode."""
        return self.picture(self._observe()) if self.render_mode == "rgb_array" else None

    @classmethod
    @abstractmethod
    def picture(cls, seen: Any) -> Picture:
        """Draw an observation, [H, W, 3]."""
