"""Discount: a smaller reward now or a larger one later; at gamma 0.9 each kind of episode has one optimal answer."""

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paddock.envs.errors import require
from paddock.envs.ranges import check_whole_numbers
from paddock.envs.registration import register
from paddock.envs.sanity.task import Bar, SanityTask, share_of_returns
from paddock.envs.task_env import TaskEnv

AMOUNTS = ((0.85, 3.0), (2.5, 6.0))  # now and later; 0.9^10 = 0.349 makes the later ones 1.05 and 2.09

PASS = Bar(0.95)
DISCOUNT = SanityTask(
    name="discount",
    id="paddock.envs.sanity:paddock/Discount-v0",
    score=share_of_returns(2.5, 3.0),
    chance=0.5,
    blind=0.5,  # with a discount that is too low or too high: always the same answer
    memoryless=PASS,
    recurrent=PASS,
    deterministic=None,
    steps=40_000,
    suspect="the discount: its value, or its power in sums of several rewards",
)


class Discount(TaskEnv):
    """Take a reward now (0), which ends the episode, or wait (1) for a larger one, `delay` steps later.

    Actions while waiting have no effect. Observations are one-hot of the step, negated for the smaller pair of AMOUNTS.
    """

    def __init__(self, delay: int, render_mode: str | None = None) -> None:
        check_whole_numbers(delay=delay)
        require(delay >= 1, f"delay={delay} must be at least 1; 10 is the default")
        super().__init__(spaces.Box(-1.0, 1.0, (delay + 1,), np.float32), spaces.Discrete(2), render_mode)
        self._delay = delay

    def _begin(self, draw: np.random.Generator) -> None:
        self._kind, self._step = int(draw.integers(2)), 0

    def _play(self, action: np.int64) -> tuple[float, bool]:
        step, self._step = self._step, self._step + 1
        taken = step == 0 and int(action) == 0
        over = taken or step == self._delay
        return AMOUNTS[self._kind][not taken] if over else 0.0, over

    def _observe(self) -> NDArray[np.float32]:
        seen = np.zeros(self._delay + 1, np.float32)
        seen[min(self._step, self._delay)] = 2 * self._kind - 1
        return seen


register(f"{__name__}:Discount", kwargs={"delay": 10})
