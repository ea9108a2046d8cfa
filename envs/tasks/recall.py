"""Recall: a task that only memory solves. The cue is seen once, asked for later."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paddock.envs.errors import require
from paddock.envs.ranges import check_whole_numbers

gymnasium.register(id="paddock/Recall-v0", entry_point="paddock.envs.tasks.recall:Recall", kwargs={"delay": 8})


class Recall(gymnasium.Env[NDArray[np.float32], np.int64]):
    """Show 1 or -1, then nothing for `delay` steps, then ask: action 1 or 0 earns 1 if it matches, else -1.

    Observations are [cue, whether it is asked now]. Without memory the best mean return is 0; with it, 1.
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, delay: int, render_mode: str | None = None) -> None:
        """Make the task; ConfigError for a negative delay."""
        check_whole_numbers(delay=delay)
        require(delay >= 0, f"delay={delay} must not be negative; 8 suits most")
        self.render_mode = render_mode
        self.observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._delay = delay

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Draw a cue and show it."""
        super().reset(seed=seed)
        self._cue = int(self.np_random.integers(2))
        self._left = self._delay + 1
        return np.array([2 * self._cue - 1, 0], np.float32), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Wait, or answer."""
        if self._left == 0:
            reward = 1.0 if int(action) == self._cue else -1.0
            return np.zeros(2, np.float32), reward, True, False, {}
        self._left -= 1
        return np.array([0, self._left == 0], np.float32), 0.0, False, False, {}
