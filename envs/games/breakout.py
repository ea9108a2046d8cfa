"""Breakout (Atari 1976) with vector observations: a ball, a paddle and 72 bricks on an integer grid of 192 x 160."""

from typing import Any

import numpy as np
from gymnasium import spaces

from paddock.envs.games.game import Game
from paddock.envs.games.picture import BACK, INK, Picture, number, rectangle
from paddock.envs.registration import NativeVersion, register

WIDTH, HEIGHT = 192, 160
ROWS, COLUMNS, TOP = 6, 12, 24  # of bricks; top of the wall
BRICK = (16, 8)  # width and height
POINTS = (7, 7, 4, 4, 1, 1)  # per brick, by row
PADDLE, STEP, PLANE = 32, 6, 152  # length; speed, units per step; vertical position
SLOPES = (-5, -4, -2, -1, 1, 2, 4, 5)  # horizontal speed by the eighth of the paddle hit, and of serves
SLOW, FAST, FAST_ROWS = 4, 6, 2  # vertical speeds; rows whose bricks make the ball fast
LIVES = 5
UNIT = 64.0  # units per 1.0 in observations
COLOURS = ((200, 72, 72), (198, 108, 58), (180, 122, 48), (162, 162, 42), (72, 160, 72), (66, 72, 200))


class Breakout(Game):
    """Break all bricks with five balls.

    Actions: 0 stay, 1 move left, 2 move right. A brick gives 7, 4 or 1 point, by row; all bricks give 288.

    Each step moves the paddle, then the ball, first vertically, then horizontally. A brick in the ball's way is removed
    and reflects the ball in that direction, as walls and ceiling do. The paddle reflects it upwards, with a horizontal
    speed given by the eighth of the paddle that it hits, and a higher vertical speed if the ball broke a brick of the
    upper two rows since the serve. Balls are served from below the wall, with position and direction from a linear
    congruential generator (Numerical Recipes), whose initial state is the only random number of an episode. An episode
    ends with the last ball or brick.

    Observations: `bricks`, [6, 12] bits; `motion`, [6] float32: x and y of the ball from the centre in 64 units, its
    velocity in 8, the x of the paddle's centre, and an eighth of the number of balls left.
    """

    def __init__(self, render_mode: str | None = None) -> None:
        """Build the game."""
        motion = spaces.Box(-2.0, 2.0, (6,), np.float32)
        seen = spaces.Dict(bricks=spaces.MultiBinary((ROWS, COLUMNS)), motion=motion)
        super().__init__(seen, spaces.Discrete(3), render_mode)

    @classmethod
    def picture(cls, seen: Any) -> Picture:
        """Draw wall, ball, paddle and the number of balls left."""
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
        """Remove the brick at a position, if any, and return its points."""
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
