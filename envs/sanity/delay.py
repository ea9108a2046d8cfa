"""Delay: the first action is rewarded twenty steps later. Credit assignment depends only on lambda."""

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paddock.envs.errors import require
from paddock.envs.ranges import check_whole_numbers
from paddock.envs.registration import register
from paddock.envs.sanity.task import Bar, SanityTask
from paddock.envs.task_env import TaskEnv

PASS = Bar(0.95)
DELAY = SanityTask(
    name="delay",
    id="paddock.envs.sanity:paddock/Delay-v0",
    chance=0.5,
    blind=0.5,
    memoryless=PASS,
    recurrent=PASS,
    deterministic=None,
    steps=100_000,
    suspect="credit over time: lambda, the discount, or sums of rewards over wrong steps",
)


class Delay(TaskEnv):
    """Report in the first step whether a number is odd; a correct answer gives 1 in the last step, `delay` later.

    Other actions have no effect. Observations: the number, one-hot of `numbers` (only in the first step), and the
    fraction of steps done. There are several numbers, so that a constant answer does not score.
    """

    def __init__(self, delay: int, numbers: int, render_mode: str | None = None) -> None:
        check_whole_numbers(delay=delay, numbers=numbers)
        require(delay >= 1, f"delay={delay} must be at least 1; 20 is the default")
        even = numbers >= 2 and numbers % 2 == 0
        require(even, f"numbers={numbers} must be even, so that half of them are odd; 8 is the default")
        super().__init__(spaces.Box(0.0, 1.0, (numbers + 1,), np.float32), spaces.Discrete(2), render_mode)
        self._delay, self._numbers = delay, numbers

    def _begin(self, draw: np.random.Generator) -> None:
        self._number = int(draw.integers(self._numbers))
        self._step = 0

    def _play(self, action: np.int64) -> tuple[float, bool]:
        if self._step == 0:
            self._right = int(action) == self._number % 2
        over = self._step == self._delay
        self._step += 1
        return float(over and self._right), over

    def _observe(self) -> NDArray[np.float32]:
        seen = np.zeros(self._numbers + 1, np.float32)
        seen[self._number] = self._step == 0
        seen[-1] = min(self._step / self._delay, 1.0)
        return seen


register(f"{__name__}:Delay", kwargs={"delay": 20, "numbers": 8})
