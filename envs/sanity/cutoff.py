"""Cutoff: staying is better than leaving only with bootstrapping of truncated episodes."""

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paddock.envs.errors import require
from paddock.envs.ranges import check_bool, check_numbers, check_whole_numbers
from paddock.envs.registration import register
from paddock.envs.sanity.task import Bar, SanityTask, share_of_returns
from paddock.envs.task_env import TaskEnv

OPENING = 2  # steps before the decision, with equal observations
STAYED = share_of_returns(-8.5, -8.5)  # 2 (-5) + 5 (0.3); leaving returns 2 (-5) + 2

CUTOFF = SanityTask(
    name="cutoff",
    id="paddock.envs.sanity:paddock/Cutoff-v0",
    score=STAYED,
    chance=0.5,
    blind=0.0,  # discounted by 0.9, five steps of 0.3 are worth 1.23, less than 2; an infinite stay is worth 3
    memoryless=Bar(0.95),
    recurrent=Bar(0.95),
    deterministic=Bar(high=0.05),  # 2 is more than 1.5, the undiscounted return of staying
    steps=30_000,
    suspect="bootstrapping: truncation is treated as termination, the value of a wrong observation is used, "
    "advantages leak across episodes, or values have wrong targets",
)
CUTOFF_TWIN = SanityTask(
    name="cutoff_twin",
    id="paddock.envs.sanity:paddock/CutoffTwin-v0",
    score=STAYED,
    chance=0.5,
    blind=1.0,  # treating termination as truncation
    best=0.0,
    memoryless=Bar(high=0.05),
    recurrent=Bar(high=0.05),
    deterministic=None,
    steps=30_000,
    suspect="bootstrapping: termination is treated as truncation",
)


class Cutoff(TaskEnv):
    """Leave (0) for a reward and termination, or stay (1) for a smaller reward per step until truncation.

    An episode opens with two indistinguishable steps with reward `opening`; their advantages differ, and the value of a
    reset is far below that of a final observation. Only the action of the third step matters. After leaving, the reward
    is `leave`, then 0 in one more step, which terminates. After staying, it is `stay` in each of `steps` steps; then the
    episode is truncated, or terminated with `terminates`. Observations are one-hot: opening, decision, staying, left.
    """

    def __init__(
        self, opening: float, leave: float, stay: float, steps: int, terminates: bool, render_mode: str | None = None
    ) -> None:
        check_numbers(opening=opening, leave=leave, stay=stay)
        check_whole_numbers(steps=steps)
        check_bool(terminates=terminates)
        require(steps >= 3, f"steps={steps} must be at least 3; 5 is the default")
        super().__init__(spaces.Box(0.0, 1.0, (4,), np.float32), spaces.Discrete(2), render_mode)
        self._opening, self._leave, self._stay = opening, leave, stay
        self._last, self._terminates = OPENING + steps, terminates

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Leave or stay."""
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


ARGUMENTS = {"opening": -5.0, "leave": 2.0, "stay": 0.3, "steps": 5}
register(f"{__name__}:Cutoff", kwargs={**ARGUMENTS, "terminates": False})
register(f"{__name__}:Cutoff", name="CutoffTwin", kwargs={**ARGUMENTS, "terminates": True})
