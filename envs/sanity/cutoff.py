"""Cutoff: staying pays more than leaving only for who knows that a truncated episode's value goes on."""

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paddock.envs.errors import require
from paddock.envs.ranges import check_bool, check_numbers, check_whole_numbers
from paddock.envs.registration import NativeVersion, register
from paddock.envs.sanity import native
from paddock.envs.sanity.task import Bar, SanityTask, share_of_returns
from paddock.envs.task_env import TaskEnv

OPENING = 2  # steps ahead of the decision, which look alike
STAYED = share_of_returns(-8.5, -8.5)  # 2 (-5) + 5 (0.3); those that leave return 2 (-5) + 2

CUTOFF = SanityTask(
    name="cutoff",
    id="paddock.envs.sanity:paddock/Cutoff-v0",
    score=STAYED,
    chance=0.5,
    blind=0.0,  # discounted by 0.9, five steps of 0.3 are worth 1.23, less than 2; what goes on is worth 3
    memoryless=Bar(0.95),
    recurrent=Bar(0.95),
    deterministic=Bar(high=0.05),  # 2 is more than 1.5, the return of who stays
    steps=30_000,
    suspect="bootstrapping: a truncation is taken for an end, another observation than the final one is valued, "
    "advantages run on over it, or values have wrong targets",
)
CUTOFF_TWIN = SanityTask(
    name="cutoff_twin",
    id="paddock.envs.sanity:paddock/CutoffTwin-v0",
    score=STAYED,
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

    Two steps that look alike open an episode and pay `opening` each; their advantages differ, and the value of a reset
    is far below that of a final observation. The third step decides; all other actions do nothing. An agent that leaves
    gets `leave`, and nothing in one more step, which terminates. One that stays gets `stay` in each of `steps` steps,
    after which the episode is truncated, or with `terminates` over. Observations are one-hot of [opening, decision,
    staying, left].
    """

    def __init__(
        self, opening: float, leave: float, stay: float, steps: int, terminates: bool, render_mode: str | None = None
    ) -> None:
        """Make the task."""
        check_numbers(opening=opening, leave=leave, stay=stay)
        check_whole_numbers(steps=steps)
        check_bool(terminates=terminates)
        require(steps >= 3, f"steps={steps} must be at least 3; 5 suits most")
        super().__init__(spaces.Box(0.0, 1.0, (4,), np.float32), spaces.Discrete(2), render_mode)
        self._opening, self._leave, self._stay = opening, leave, stay
        self._last, self._terminates = OPENING + steps, terminates

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Leave, or stay for a step."""
        seen, reward, over, _, info = super().step(action)
        truncated = not over and not self._terminates and self._played == self._last
        return seen, reward, over, truncated, info

    def _begin(self, draw: np.random.Generator) -> None:
        self._played, self._left = 0, False

    def _play(self, action: np.int64) -> tuple[float, bool]:
        step, self._played = self._played, self._played + 1
        if step < OPENING:
            return self._opening, False
        if self._left:
            return 0.0, True
        self._left = step == OPENING and int(action) == 0
        return self._leave if self._left else self._stay, self._terminates and self._played == self._last

    def _observe(self) -> NDArray[np.float32]:
        at = 0 if self._played < OPENING else 3 if self._left else 1 if self._played == OPENING else 2
        return np.eye(4, dtype=np.float32)[at]


NATIVE = NativeVersion(
    "sanity_cutoff", native.settings, limit=lambda given: None if given["terminates"] else OPENING + int(given["steps"])
)
ARGUMENTS = {"opening": -5.0, "leave": 2.0, "stay": 0.3, "steps": 5}
register(f"{__name__}:Cutoff", kwargs={**ARGUMENTS, "terminates": False}, native=NATIVE)
register(f"{__name__}:Cutoff", name="CutoffTwin", kwargs={**ARGUMENTS, "terminates": True}, native=NATIVE)
