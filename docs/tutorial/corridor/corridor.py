"""A slippery corridor: fetch the key, then leave through the door."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

PIXELS = 32  # width and height of a cell in videos
FLOOR, WALKER, KEY, DOOR = (235, 235, 235), (45, 105, 180), (215, 160, 30), (120, 70, 40)


class Corridor(gymnasium.Env[NDArray[np.float32], np.int64]):
    """Fetch the key and leave through the door at the right end; each step costs 0.01, leaving earns 1.

    Args:
        length: number of cells, >= 3.
        slip: probability of a step in the other direction, in [0, 1].
        render_mode: rgb_array for videos.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 8}
    action_space = Discrete(2)  # left, right
    observation_space = Box(0, 1, (3,), np.float32)  # own position, position of the key, 1 if it is held

    def __init__(self, length: int = 20, slip: float = 0.1, render_mode: str | None = None) -> None:
        self.length, self.slip, self.render_mode = length, slip, render_mode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Place the walker and the key in random cells."""
        super().reset(seed=seed)  # seeds self.np_random, the only source of randomness
        self.at, self.key = self.np_random.choice(self.length - 1, size=2, replace=False).tolist()
        self.held = False
        return self._observe(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Move one cell, and take the key or leave."""
        right = (action == 1) != (self.np_random.random() < self.slip)
        self.at = min(max(self.at + (1 if right else -1), 0), self.length - 1)
        self.held |= self.at == self.key
        left = self.held and self.at == self.length - 1
        return self._observe(), 1.0 if left else -0.01, left, False, {"success": left}

    def render(self) -> NDArray[np.uint8]:
        """Return a picture of the corridor: uint8 [height, width, 3]."""
        cells = np.full((1, self.length, 3), FLOOR, np.uint8)
        cells[0, -1] = DOOR
        if not self.held:
            cells[0, self.key] = KEY
        picture = cells.repeat(PIXELS, 0).repeat(PIXELS, 1)
        edge, left = PIXELS // 4, self.at * PIXELS + PIXELS // 4
        picture[edge:-edge, left : left + PIXELS // 2] = KEY if self.held else WALKER
        return picture

    def _observe(self) -> NDArray[np.float32]:
        last = self.length - 1
        return np.array([self.at / last, self.key / last, self.held], np.float32)
