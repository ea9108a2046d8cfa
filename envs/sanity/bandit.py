"""Bandit: one of ten arms gives a reward. An algorithm that fails here does not maximize the reward at all."""

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paddock.envs.errors import require
from paddock.envs.ranges import check_numbers, check_whole_numbers
from paddock.envs.registration import register
from paddock.envs.sanity.task import Bar, SanityTask
from paddock.envs.task_env import TaskEnv

PASS = Bar(0.9)
BANDIT = SanityTask(
    name="bandit",
    id="paddock.envs.sanity:paddock/Bandit-v0",
    chance=0.1,
    blind=0.1,
    memoryless=PASS,
    recurrent=PASS,
    deterministic=PASS,
    steps=20_000,
    stochastic=True,
    suspect="the update: advantages (sign or scale), or rewards and actions of wrong rows or steps",
)


class Bandit(TaskEnv):
    """Pull one of several arms; one step."""

    def __init__(self, arms: int, arm: int, noise: float, render_mode: str | None = None) -> None:
        """Build the task; the mean reward is 1 for `arm`, else 0, with a standard deviation of `noise`."""
        check_whole_numbers(arms=arms, arm=arm)
        check_numbers(noise=noise)
        require(0 <= arm < arms, f"arm={arm} must be one of {arms}, counted from 0")
        require(noise >= 0, f"noise={noise} must be at least 0; 0.5 is the default")
        super().__init__(spaces.Box(0.0, 1.0, (1,), np.float32), spaces.Discrete(arms), render_mode)
        self._arm, self._noise = arm, noise

    def _begin(self, draw: np.random.Generator) -> None:
        pass

    def _play(self, action: np.int64) -> tuple[float, bool]:
        reward = float(int(action) == self._arm)
        if self._noise:
            reward += self._noise * float(self.np_random.standard_normal())
        return reward, True

    def _observe(self) -> NDArray[np.float32]:
        return np.ones(1, np.float32)


register(f"{__name__}:Bandit", kwargs={"arms": 10, "arm": 6, "noise": 0.5})
