"""Squared: walk from the middle of a grid to a target on its rim. Each row's action must meet its own observation."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paddock.envs.errors import require
from paddock.envs.ranges import check_whole_numbers
from paddock.envs.registration import NativeVersion, register
from paddock.envs.sanity import native
from paddock.envs.sanity.task import Bar, SanityTask, share_of_returns_from

MOVES = ((0, -1), (0, 1), (-1, 0), (1, 0), (1, -1), (-1, -1), (1, 1), (-1, 1))

PASS = Bar(0.95)
SQUARED = SanityTask(
    name="squared",
    id="paddock.envs.sanity:paddock/Squared-v0",
    score=share_of_returns_from(2.0),
    chance=104 / (24 * 8**3),  # of all targets and moves
    blind=1 / 24,  # always the same target
    best=1.0,
    memoryless=PASS,
    recurrent=PASS,
    deterministic=Bar(0.75),  # one target of 24 after the other, by returns alone
    steps=100_000,
    suspect="rows: an observation, its action and its reward are not of one environment and one step",
)


class Squared(gymnasium.Env[NDArray[np.float32], np.int64]):
    """Reach a target on the rim of a square grid in as many moves as it takes; PufferLib's rules for one target.

    The grid [2d + 1, 2d + 1] has 1 at the target and -1 where the agent is, at first in the middle. A move to one of
    eight neighbours gives 1 - distance / d, by the largest difference of coordinates. Who comes to the rim goes on from
    the middle. An episode is d moves long; only who reaches the target has the highest return, (d + 1) / 2.
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, distance: int, render_mode: str | None = None) -> None:
        """Make the task for a distance d of the rim from the middle."""
        check_whole_numbers(distance=distance)
        require(distance >= 1, f"distance={distance} must be at least 1; 3 suits most")
        self.render_mode = render_mode
        self._d, size = distance, 2 * distance + 1
        self.observation_space = spaces.Box(-1.0, 1.0, (size, size), np.float32)
        self.action_space = spaces.Discrete(len(MOVES))
        rim = (0, size - 1)
        self._targets = [(x, y) for x in range(size) for y in range(size) if x in rim or y in rim]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Draw a target."""
        super().reset(seed=seed)
        self._target = self._targets[int(self.np_random.integers(len(self._targets)))]
        self._at, self._moves = (self._d, self._d), 0
        return self._observe(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Move."""
        move = MOVES[int(action)]
        x, y = self._at[0] + move[0], self._at[1] + move[1]
        reward = 1 - max(abs(x - self._target[0]), abs(y - self._target[1])) / self._d
        on_rim = max(abs(x - self._d), abs(y - self._d)) >= self._d
        self._at = (self._d, self._d) if on_rim else (x, y)
        self._moves += 1
        return self._observe(), reward, self._moves == self._d, False, {}

    def _observe(self) -> NDArray[np.float32]:
        grid = np.zeros(self.observation_space.shape or (), np.float32)
        grid[self._target] = 1
        grid[self._at] = -1
        return grid


register(f"{__name__}:Squared", kwargs={"distance": 3}, native=NativeVersion("sanity_squared", native.settings))
