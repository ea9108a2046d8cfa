"""What all games have in common: a choice is played, and a picture shows what is seen."""

from abc import abstractmethod
from typing import Any

from paddock.envs.games.picture import Picture
from paddock.envs.task_env import TaskEnv


class Game(TaskEnv):
    """A game of whole numbers."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012, Gymnasium's

    def render(self) -> Any:
        """Return the picture, [H, W, 3]; None without a render mode."""
        return self.picture(self._observe()) if self.render_mode == "rgb_array" else None

    @classmethod
    @abstractmethod
    def picture(cls, seen: Any) -> Picture:
        """Draw an observation, [H, W, 3]."""
