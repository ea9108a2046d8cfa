"""Delay: the first action pays twenty steps later. What carries credit back is lambda, and nothing else here."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.errors import require
from envs.sanity.task import Bar, SanityTask, mean_return

PASS = Bar(0.95)
DELAY = SanityTask(
    name="delay",
    id="envs.sanity:paddock/Delay-v0",
    score=mean_return,
    chance=0.5,
    blind=0.5,
    best=1.0,
    memoryless=PASS,
    recurrent=PASS,
    deterministic=None,
    steps=100_000,
    suspect="credit over time: lambda, the discount, or rewards that are a step off",
)


class Delay(gymnasium.Env[NDArray[np.float32], np.int64]):
    """Choose 0 or 1 in the first step: 1 pays 1, `delay` steps later, in the last one; nothing else does anything.

    Observations are [whether it is the first step, the share of the steps that is over].
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, delay: int, render_mode: str | None = None) -> None:
        """Make the task."""
        require(delay >= 1, f"delay={delay} must be at least 1; 20 suits most")
        self.render_mode = render_mode
        self.observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._delay = delay

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Ask."""
        super().reset(seed=seed)
        self._step = 0
        return np.array([1, 0], np.float32), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Choose, or wait."""
        if self._step == 0:
            self._choice = int(action)
        over = self._step == self._delay
        self._step += 1
        share = min(self._step / self._delay, 1.0)
        return np.array([0, share], np.float32), float(over and self._choice), over, False, {}
