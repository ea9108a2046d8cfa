"""Breakout (Atari 1976) on numbers: a ball, a paddle and 72 bricks, in whole units on a court of 192 x 160."""

from typing import Any

import numpy as np
from gymnasium import spaces

from paddock.envs.games.game import Game
from paddock.envs.games.picture import BACK, INK, Picture, number, rectangle
from paddock.envs.registration import NativeVersion, register

WIDTH, HEIGHT = 192, 160
ROWS, COLUMNS, TOP = 6, 12, 24  # of bricks; where the wall begins
BRICK = (16, 8)  # width and height
POINTS = (7, 7, 4, 4, 1, 1)  # of a brick by its row
PADDLE, STEP, PLANE = 32, 6, 152  # length; units that it goes in a step; where it stands
SLOPES = (-5, -4, -2, -1, 1, 2, 4, 5)  # units across a step after each eighth of the paddle, and of serves
SLOW, FAST, FAST_ROWS = 4, 6, 2  # units up or down a step; rows whose bricks make it fast
LIVES = 5
UNIT = 64.0  # in an observation, of units
COLOURS = ((200, 72, 72), (198, 108, 58), (180, 122, 48), (162, 162, 42), (72, 160, 72), (66, 72, 200))


class Breakout(Game):
    """Break all bricks with five balls: the paddle stays (0), goes left (1) or right (2); a brick pays 7, 4 or 1.

    In each step the paddle moves, then the ball: up or down, then across. Where a brick is in its way, the brick is
    gone, and the ball stays and turns back in that direction, as it does at the walls and above. On the paddle it goes
    up again, across by the eighth of the paddle that it hits; from there it is faster up and down if it broke a brick
    of the upper two rows since its serve. A serve falls from below the wall, its place and direction by a linear
    congruential generator (Numerical Recipes) whose first state is all that an episode draws. It ends with the last
    ball or brick; all of them are worth 288.

    Observations: `bricks`, [6, 12] bits; `motion`, [6] float32: x and y of the ball from the centre in 64 units, its
    velocity in 8, the middle of the paddle as x, and an eighth of the balls that are left.
    """

    def __init__(self, render_mode: str | None = None) -> None:
        """Make it."""
        motion = spaces.Box(-2.0, 2.0, (6,), np.float32)
        seen = spaces.Dict(bricks=spaces.MultiBinary((ROWS, COLUMNS)), motion=motion)
        super().__init__(seen, spaces.Discrete(3), render_mode)

    @classmethod
    def picture(cls, seen: Any) -> Picture:
        """Draw wall, ball, paddle and how many balls are left."""
        picture = np.full((HEIGHT, WIDTH, 3), BACK, np.uint8)
        across, up = BRICK
        for row, column in np.argwhere(seen["bricks"]):
            rectangle(picture, column * across, TOP + row * up, across - 1, up - 1, COLOURS[row])
        x, y, _, _, middle, balls = (seen["motion"] * UNIT + (WIDTH // 2, HEIGHT // 2, 0, 0, WIDTH // 2, 0)).tolist()
        number(picture, int(balls / 8), 4, 4, 2, (120, 124, 132))
        rectangle(picture, middle - PADDLE // 2, PLANE, PADDLE, 4, COLOURS[0])
        rectangle(picture, x - 2, y - 2, 4, 4, INK)
        return picture

    def _begin(self, draw: np.random.Generator) -> None:
        self._word = int(draw.integers(2**32))
        self._bricks = np.ones((ROWS, COLUMNS), np.int8)
        self._left, self._lives = (WIDTH - PADDLE) // 2, LIVES
        self._serve()

    def _serve(self) -> None:
        self._word = (self._word * 1664525 + 1013904223) % 2**32
        self._x, self._y = 32 + (self._word >> 25), HEIGHT // 2
        self._vx, self._vy, self._speed = SLOPES[self._word >> 22 & 7], SLOW, SLOW

    def _play(self, action: int) -> tuple[float, bool]:
        self._left = min(max(self._left + (0, -STEP, STEP)[action], 0), WIDTH - PADDLE)
        y = self._y + self._vy
        reward = self._break(self._x, y)
        if reward or y < 0:
            self._vy = -self._vy
        elif self._y < PLANE <= y and 0 <= self._x - self._left < PADDLE:
            self._y, self._vy = PLANE - 1, -self._speed
            self._vx = SLOPES[(self._x - self._left) * 8 // PADDLE]
        else:
            self._y = y
        x = self._x + self._vx
        if not 0 <= x < WIDTH:
            self._vx = -self._vx
        elif points := self._break(x, self._y):
            reward, self._vx = reward + points, -self._vx
        else:
            self._x = x
        if self._y >= HEIGHT:
            self._lives -= 1
            self._serve()
        return reward, self._lives == 0 or not self._bricks.any()

    def _break(self, x: int, y: int) -> int:
        """Take the brick there away, if there is one; its points."""
        row, column = (y - TOP) // BRICK[1], x // BRICK[0]
        if not 0 <= row < ROWS or not self._bricks[row, column]:
            return 0
        self._bricks[row, column] = 0
        if row < FAST_ROWS:
            self._speed = FAST
        return POINTS[row]

    def _observe(self) -> dict[str, Any]:
        where = [self._x - WIDTH // 2, self._y - HEIGHT // 2, 8 * self._vx, 8 * self._vy]
        rest = [self._left + PADDLE // 2 - WIDTH // 2, 8 * self._lives]
        return {"bricks": self._bricks.copy(), "motion": np.array([*where, *rest], np.float32) / np.float32(UNIT)}


register(f"{__name__}:Breakout", max_episode_steps=10_000, native=NativeVersion("breakout"))
