"""Task whose optimal memoryless policy is stochastic, which tests that samples match log-probabilities."""

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paddock.envs.errors import require
from paddock.envs.ranges import check_whole_numbers
from paddock.envs.registration import register
from paddock.envs.sanity.task import Bar, SanityTask
from paddock.envs.task_env import TaskEnv

BLEND = SanityTask(
    name="blend",
    id="paddock.envs.sanity:paddock/Blend-v0",
    chance=4 / 16,
    blind=0.0,  # of a deterministic policy
    best=1.0,  # with memory; without, 4 (3/4)^3 (1/4) = 0.4219
    memoryless=Bar(0.38, 0.46),
    recurrent=Bar(0.95),
    deterministic=Bar(high=0.05),  # a limitation of such policies, not an error
    steps=100_000,
    stochastic=True,
    episodes=2_000,
    suspect="sampling: samples do not match log-probabilities; above 0.46 without memory, state leaks",
)


class Blend(TaskEnv):
    """Play `moves` actions, 0 or 1; the return is 1 if exactly `zeros` of them were 0. Observations are constant."""

    def __init__(self, moves: int, zeros: int, render_mode: str | None = None) -> None:
        check_whole_numbers(moves=moves, zeros=zeros)
        require(0 <= zeros <= moves and moves >= 1, f"zeros={zeros} must be between 0 and moves={moves}")
        super().__init__(spaces.Box(0.0, 1.0, (1,), np.float32), spaces.Discrete(2), render_mode)
        self._moves, self._zeros = moves, zeros

    def _begin(self, draw: np.random.Generator) -> None:
        self._played = self._count = 0

    def _play(self, action: np.int64) -> tuple[float, bool]:
        self._played += 1
        self._count += int(action) == 0
        over = self._played == self._moves
        return float(over and self._count == self._zeros), over

    def _observe(self) -> NDArray[np.float32]:
        return np.ones(1, np.float32)


register(f"{__name__}:Blend", kwargs={"moves": 4, "zeros": 3})
