"""Aim: output the observed number, with action bounds other than [-1, 1]."""

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paddock.envs.errors import require
from paddock.envs.ranges import check_numbers
from paddock.envs.registration import register
from paddock.envs.sanity.task import Bar, SanityTask
from paddock.envs.task_env import TaskEnv

PASS = Bar(0.98)
AIM = SanityTask(
    name="aim",
    id="paddock.envs.sanity:paddock/Aim-v0",
    chance=1 / 3,  # 1 - 8^2 / 6 / 16
    blind=2 / 3,  # always the midpoint: 1 - 8^2 / 12 / 16
    memoryless=PASS,
    recurrent=PASS,
    deterministic=PASS,
    steps=50_000,
    stochastic=True,
    suspect="continuous actions: bounds, scale, or standard deviation",
)


class Aim(TaskEnv):
    """One-step task: output the target in [low, high]; reward 1 - error^2 / 16. Out-of-bounds actions raise."""

    def __init__(self, low: float, high: float, render_mode: str | None = None) -> None:
        check_numbers(low=low, high=high)
        require(low < high, f"low={low} must be below high={high}")
        space = spaces.Box(low, high, (1,), np.float32)
        super().__init__(space, space, render_mode)
        self._low, self._high = low, high

    def _begin(self, draw: np.random.Generator) -> None:
        self._target = np.array([draw.uniform(self._low, self._high)], np.float32)

    def _play(self, action: NDArray[np.float32]) -> tuple[float, bool]:
        output = float(np.asarray(action).reshape(()))
        if not self._low <= output <= self._high:
            raise ValueError(f"the action {output} is out of bounds; choose one in [{self._low}, {self._high}]")
        return 1 - (output - float(self._target[0])) ** 2 / 16, True

    def _observe(self) -> NDArray[np.float32]:
        return self._target.copy()


register(f"{__name__}:Aim", kwargs={"low": -3.0, "high": 5.0})
