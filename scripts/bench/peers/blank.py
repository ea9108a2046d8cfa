"""An environment of so many numbers and actions, made beforehand: what is learned from it costs as from any other."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

LENGTH = 100  # steps of an episode


class Blank(gymnasium.Env[Any, Any]):
    """Gives random observations and rewards, whatever is done."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, observed: int, actions: int, discrete: bool) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (observed,), np.float32)
        self.action_space = spaces.Discrete(actions) if discrete else spaces.Box(-1, 1, (actions,), np.float32)
        generator = np.random.default_rng(1)
        self._made = generator.standard_normal((LENGTH + 1, observed), np.float32)
        self._rewards = generator.standard_normal(LENGTH + 1).tolist()

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin with the first."""
        self._at = 0
        return self._made[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Give the next."""
        self._at += 1
        return self._made[self._at], self._rewards[self._at], self._at == LENGTH, False, {}


class Pictures(gymnasium.Env[Any, Any]):
    """Gives the same four pictures of 84 x 84 bytes, as Atari games are seen, whatever is done."""

    metadata = {"render_modes": []}  # noqa: RUF012
    observation_space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    action_space = spaces.Discrete(6)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin."""
        self._seen = np.random.default_rng(1).integers(0, 256, (4, 84, 84), np.uint8)
        return self._seen, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Go on."""
        return self._seen, 0.0, False, False, {}


gymnasium.register("bench/Pictures-v0", f"{__name__}:Pictures")
gymnasium.register("bench/Blank-v0", f"{__name__}:Blank")
