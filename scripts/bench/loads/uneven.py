"""Environment whose steps take unequal time: one in ten is slow, and so is every reset."""

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

SLOW_SHARE = 0.1  # of steps
STEP, SLOW_STEP, RESET = 1, 10, 50  # units of work
UNIT = 500  # loop iterations per unit, about 20 microseconds
STEPS = 100  # in an episode


class Uneven(gymnasium.Env):
    """Environment that works and counts its work in the observation.

    The work is a fixed number of iterations, not a duration, so that it is the same for every contender.
    """

    observation_space, action_space = Box(0, np.inf, (4,), np.float32), Discrete(2)

    def __init__(self, sleep_s: float) -> None:
        """Sleep `sleep_s` per unit of slow work, as if waiting for another machine; 0 computes instead."""
        self._sleep_s = sleep_s
        self._state = np.zeros(4, np.float32)  # steps, slow steps, work, action

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start an episode, slowly."""
        super().reset(seed=seed)
        self._state[:] = 0
        self._do(RESET, slow=True)
        return self._state.copy(), {}

    def step(self, action: int) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Step; the episode's seed determines which steps are slow."""
        slow = self.np_random.random() < SLOW_SHARE
        self._do(SLOW_STEP if slow else STEP, slow)
        self._state += np.array([1, slow, 0, action], np.float32)
        return self._state.copy(), 1.0, False, False, {}

    def _do(self, units: int, slow: bool) -> None:
        if slow and self._sleep_s:
            time.sleep(units * self._sleep_s)
            return
        total = 0
        for i in range(units * UNIT):
            total += i & 3
        self._state[2] += units


gymnasium.register("bench/Uneven-v0", f"{__name__}:Uneven", max_episode_steps=STEPS)
