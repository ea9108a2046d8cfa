"""Environments with pregenerated observations of any size, to measure the cost of learning alone."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

LENGTH = 100  # steps of an episode


class Blank(gymnasium.Env[Any, Any]):
    """Environment with random observations and rewards, independent of actions."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, observed: int, actions: int, discrete: bool) -> None:
        """Generate the observations and rewards."""
        self.observation_space = spaces.Box(-np.inf, np.inf, (observed,), np.float32)
        self.action_space = spaces.Discrete(actions) if discrete else spaces.Box(-1, 1, (actions,), np.float32)
        generator = np.random.default_rng(1)
        self._made = generator.standard_normal((LENGTH + 1, observed), np.float32)
        self._rewards = generator.standard_normal(LENGTH + 1).tolist()

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Return the first observation."""
        self._at = 0
        return self._made[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Return the next observation and reward."""
        self._at += 1
        return self._made[self._at], self._rewards[self._at], self._at == LENGTH, False, {}


class Pictures(gymnasium.Env[Any, Any]):
    """Environment with constant observations of four 84 x 84 frames, as in Atari games."""

    metadata = {"render_modes": []}  # noqa: RUF012
    observation_space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    action_space = spaces.Discrete(6)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        self._seen = np.random.default_rng(1).integers(0, 256, (4, 84, 84), np.uint8)
        return self._seen, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Return the same observation."""
        return self._seen, 0.0, False, False, {}


gymnasium.register("bench/Pictures-v0", f"{__name__}:Pictures")
gymnasium.register("bench/Blank-v0", f"{__name__}:Blank")
