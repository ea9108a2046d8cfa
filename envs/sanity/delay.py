"""Delay: the first action pays twenty steps later. What carries credit back is lambda, and nothing else here."""

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paddock.envs.errors import require
from paddock.envs.ranges import check_whole_numbers
from paddock.envs.registration import NativeVersion, register
from paddock.envs.sanity import native
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
    suspect="credit over time: lambda, the discount, or where an episode's rewards are summed up",
)


class Delay(TaskEnv):
    """Answer a number by whether it is odd, in the first step: what is right pays 1 in the last one, `delay` later.

    What is done in between does nothing. Observations are [the number as one-hot of `numbers`, in the first step alone;
    the share of the steps that is over]. There are several numbers, since luck alone may settle on one answer.
    """

    def __init__(self, delay: int, numbers: int, render_mode: str | None = None) -> None:
        """Make the task."""
        check_whole_numbers(delay=delay, numbers=numbers)
        require(delay >= 1, f"delay={delay} must be at least 1; 20 suits most")
        even = numbers >= 2 and numbers % 2 == 0
        require(even, f"numbers={numbers} must be even, so that half of them are odd; 8 suits most")
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


register(f"{__name__}:Delay", kwargs={"delay": 20, "numbers": 8}, native=NativeVersion("sanity_delay", native.settings))
