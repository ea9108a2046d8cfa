"""Environment with pregenerated observations of any size, to benchmark learning without simulation."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

EPISODE_STEPS = 100


class Blank(gymnasium.Env[Any, Any]):
    """Environment with random observations and rewards that do not depend on actions."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, observed: int, actions: int, discrete: bool) -> None:
        """Generate the observations and rewards."""
        self.observation_space = spaces.Box(-np.inf, np.inf, (observed,), np.float32)
        self.action_space = spaces.Discrete(actions) if discrete else spaces.Box(-1, 1, (actions,), np.float32)
        generator = np.random.default_rng(1)
        self._observations = generator.standard_normal((EPISODE_STEPS + 1, observed), np.float32)
        self._rewards = generator.standard_normal(EPISODE_STEPS + 1).tolist()

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode at the first observation."""
        self._step = 0
        return self._observations[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Return the next pregenerated observation and reward."""
        self._step += 1
        return self._observations[self._step], self._rewards[self._step], self._step == EPISODE_STEPS, False, {}


gymnasium.register("bench/Blank-v0", f"{__name__}:Blank")
