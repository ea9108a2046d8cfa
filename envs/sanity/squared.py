"""Squared: walk from the centre of a grid to a target on its rim. Tests that actions match observations of their row."""

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paddock.envs.errors import require
from paddock.envs.ranges import check_whole_numbers
from paddock.envs.registration import register
from paddock.envs.sanity.task import Bar, SanityTask, share_of_returns
from paddock.envs.task_env import TaskEnv

MOVES = ((0, -1), (0, 1), (-1, 0), (1, 0), (1, -1), (-1, -1), (1, 1), (-1, 1))

PASS = Bar(0.95)
SQUARED = SanityTask(
    name="squared",
    id="paddock.envs.sanity:paddock/Squared-v0",
    score=share_of_returns(2.0),
    chance=104 / (24 * 8**3),  # over all targets and moves
    blind=1 / 24,  # always the same target
    memoryless=PASS,
    recurrent=PASS,
    deterministic=Bar(0.75),  # learns one target of 24 after another, from returns only
    steps=100_000,
    suspect="rows: observation, action and reward of different environments or steps are combined",
)


class Squared(TaskEnv):
    """Reach a target on the rim of a square grid in the minimum number of moves; PufferLib's rules for one target.

    The observation [2d + 1, 2d + 1] has 1 at the target and -1 at the agent, which starts in the centre. A move to one
    of eight neighbours gives 1 - distance / d (Chebyshev distance). From the rim the agent returns to the centre. An
    episode has d moves; only reaching the target gives the highest return, (d + 1) / 2.
    """

    def __init__(self, distance: int, render_mode: str | None = None) -> None:
        """Build the task for a distance d from the centre to the rim."""
        check_whole_numbers(distance=distance)
        require(distance >= 1, f"distance={distance} must be at least 1; 3 is the default")
        self._d, size, rim = distance, 2 * distance + 1, (0, 2 * distance)
        super().__init__(spaces.Box(-1.0, 1.0, (size, size), np.float32), spaces.Discrete(len(MOVES)), render_mode)
        self._targets = [(x, y) for x in range(size) for y in range(size) if x in rim or y in rim]

    def _begin(self, draw: np.random.Generator) -> None:
        self._target = self._targets[int(draw.integers(len(self._targets)))]
        self._at, self._moves = (self._d, self._d), 0

    def _play(self, action: np.int64) -> tuple[float, bool]:
        move = MOVES[int(action)]
        x, y = self._at[0] + move[0], self._at[1] + move[1]
        reward = 1 - max(abs(x - self._target[0]), abs(y - self._target[1])) / self._d
        on_rim = max(abs(x - self._d), abs(y - self._d)) >= self._d
        self._at = (self._d, self._d) if on_rim else (x, y)
        self._moves += 1
        return reward, self._moves == self._d

    def _observe(self) -> NDArray[np.float32]:
        grid = np.zeros(self.observation_space.shape or (), np.float32)
        grid[self._target] = 1
        grid[self._at] = -1
        return grid


register(f"{__name__}:Squared", kwargs={"distance": 3})
