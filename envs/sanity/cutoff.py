"""Cutoff: staying pays more than leaving only for who knows that a truncated episode's value goes on."""

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paddock.envs.errors import require
from paddock.envs.ranges import check_bool, check_numbers, check_whole_numbers
from paddock.envs.registration import NativeVersion, register
from paddock.envs.sanity import native
from paddock.envs.sanity.task import Bar, SanityTask, share_that_went_on
from paddock.envs.task_env import TaskEnv

CUTOFF = SanityTask(
    name="cutoff",
    id="paddock.envs.sanity:paddock/Cutoff-v0",
    score=share_that_went_on,
    chance=0.5,
    blind=0.0,  # discounted by 0.9, five steps of 0.3 are worth 1.23, less than 2; what goes on is worth 3
    memoryless=Bar(0.95),
    recurrent=Bar(0.95),
    deterministic=Bar(high=0.05),  # 2 is more than 1.5, the return of who stays
    steps=30_000,
    suspect="bootstrapping: truncation is taken for an end, or the final observation is not the one valued",
)
CUTOFF_TWIN = SanityTask(
    name="cutoff_twin",
    id="paddock.envs.sanity:paddock/CutoffTwin-v0",
    score=share_that_went_on,
    chance=0.5,
    blind=1.0,  # of who takes the end for a truncation
    best=0.0,
    memoryless=Bar(high=0.05),
    recurrent=Bar(high=0.05),
    deterministic=None,
    steps=30_000,
    suspect="bootstrapping: an end is taken for a truncation",
)


class Cutoff(TaskEnv):
    """Leave (0) for a reward and the end, or stay (1), for less in each step, until the episode is cut off.

    The first action decides, which the observation tells by a 1; later ones do nothing. An agent that stays gets `stay`
    in each of `steps` steps, after which the episode is truncated, or with `terminates` over.
    """

    def __init__(self, leave: float, stay: float, steps: int, terminates: bool, render_mode: str | None = None) -> None:
        """Make the task."""
        check_numbers(leave=leave, stay=stay)
        check_whole_numbers(steps=steps)
        check_bool(terminates=terminates)
        require(steps >= 2, f"steps={steps} must be at least 2; 5 suits most")
        super().__init__(spaces.Box(0.0, 1.0, (1,), np.float32), spaces.Discrete(2), render_mode)
        self._leave, self._stay, self._steps, self._terminates = leave, stay, steps, terminates

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Leave, or stay for a step."""
        seen, reward, over, _, info = super().step(action)
        truncated = not over and not self._terminates and self._played == self._steps
        return seen, reward, over, truncated, info

    def _begin(self, draw: np.random.Generator) -> None:
        self._played = 0

    def _play(self, action: np.int64) -> tuple[float, bool]:
        self._played += 1
        if self._played == 1 and int(action) == 0:
            return self._leave, True
        return self._stay, self._terminates and self._played == self._steps

    def _observe(self) -> NDArray[np.float32]:
        return np.array([self._played == 0], np.float32)


NATIVE = NativeVersion(
    "sanity_cutoff", native.settings, limit=lambda given: None if given["terminates"] else int(given["steps"])
)
ARGUMENTS = {"leave": 2.0, "stay": 0.3, "steps": 5}
register(f"{__name__}:Cutoff", kwargs={**ARGUMENTS, "terminates": False}, native=NATIVE)
register(f"{__name__}:Cutoff", name="CutoffTwin", kwargs={**ARGUMENTS, "terminates": True}, native=NATIVE)
