"""Pong (Alcorn 1972) with vector observations: a ball between two paddles on an integer grid of 192 x 128."""

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paddock.envs.games.game import Game
from paddock.envs.games.picture import BACK, INK, Picture, number, rectangle
from paddock.envs.registration import NativeVersion, register

WIDTH, HEIGHT = 192, 128
PLANES = (8, 184)  # x of the opponent's and the player's paddle
PADDLE, STEP, OPPONENT_STEP = 24, 4, 3  # length; speeds of player and opponent, units per step
SLOPES = (-5, -4, -2, -1, 1, 2, 4, 5)  # vertical speed by the eighth of the paddle hit, and of serves
SLOW, FAST, HITS = 4, 8, 4  # horizontal speed, initial and maximum; hits per increase by 1
POINTS = 21
UNIT = 64.0  # units per 1.0 in observations


class Pong(Game):
    """Play against an opponent that follows the ball.

    Actions: 0 stay, 1 move up, 2 move down. A point gives 1, the opponent's -1; a game ends at 21 points.

    Each step moves the paddles, then the ball. Walls reflect the ball. A paddle returns it with a vertical speed given
    by the eighth of the paddle that it hits, and every fourth hit increases its horizontal speed by one unit; a missed
    ball is a point. The opponent moves towards an approaching ball by up to 3 units per step, the player by 4. Serves
    start in the middle towards the winner of the last point, with height and slope from a linear congruential generator
    (Numerical Recipes), whose initial state is the only random number of an episode.

    Observations, [8] float32: x and y of the ball, its velocity, the centres of the player's and the opponent's paddle,
    all from the centre in 64 units (velocities in 8), and the points of both in 32.
    """

    def __init__(self, render_mode: str | None = None) -> None:
        """Build the game."""
        super().__init__(spaces.Box(-2.0, 2.0, (8,), np.float32), spaces.Discrete(3), render_mode)

    @classmethod
    def picture(cls, seen: Any) -> Picture:
        """Draw court, ball, paddles and points."""
        picture = np.full((HEIGHT, WIDTH, 3), BACK, np.uint8)
        x, y = seen[:2] * UNIT + (WIDTH // 2, HEIGHT // 2)
        for top in range(0, HEIGHT, 16):
            rectangle(picture, WIDTH // 2 - 1, top, 2, 8, (70, 74, 84))
        for middle, left, colour in ((seen[4], PLANES[1], (110, 200, 130)), (seen[5], PLANES[0] - 4, (220, 140, 90))):
            rectangle(picture, left, middle * UNIT + HEIGHT // 2 - PADDLE // 2, 4, PADDLE, colour)
        for points, left in ((seen[7], WIDTH // 4), (seen[6], 3 * WIDTH // 4)):
            number(picture, int(points * 32), left - 8, 4, 2, (120, 124, 132))
        rectangle(picture, x - 2, y - 2, 4, 4, INK)
        return picture

    def _begin(self, draw: np.random.Generator) -> None:
        self._word = int(draw.integers(2**32))
        self._points = [0, 0]
        self._paddles = [(HEIGHT - PADDLE) // 2] * 2  # tops: the player's, the opponent's
        self._serve(1 if self._word >> 22 & 1 else -1)

    def _serve(self, side: int) -> None:
        """Serve towards the player (`side` 1) or the opponent (-1)."""
        self._word = (self._word * 1664525 + 1013904223) % 2**32
        self._x, self._y = WIDTH // 2, HEIGHT // 4 + (self._word >> 26)
        self._vx, self._vy, self._hits = side * SLOW, SLOPES[self._word >> 23 & 7], 0

    def _play(self, action: int) -> tuple[float, bool]:
        ahead = self._y - PADDLE // 2 - self._paddles[1]
        follow = min(max(ahead, -OPPONENT_STEP), OPPONENT_STEP) if self._vx < 0 else 0
        for k, by in enumerate(((0, -STEP, STEP)[action], follow)):
            self._paddles[k] = min(max(self._paddles[k] + by, 0), HEIGHT - PADDLE)
        self._x, self._y = self._x + self._vx, self._y + self._vy
        if self._y < 0:
            self._y, self._vy = -self._y, -self._vy
        if self._y >= HEIGHT:
            self._y, self._vy = 2 * (HEIGHT - 1) - self._y, -self._vy
        if PLANES[0] < self._x < PLANES[1]:
            return 0.0, False
        side = 0 if self._x >= PLANES[1] else 1
        hit = self._y - self._paddles[side]
        if 0 <= hit < PADDLE:
            self._hits += 1
            speed = min(SLOW + self._hits // HITS, FAST)
            self._x, self._vx = PLANES[1 - side], speed if side else -speed
            self._vy = SLOPES[hit * 8 // PADDLE]
            return 0.0, False
        self._points[1 - side] += 1
        self._serve(1 if side else -1)
        return 1.0 if side else -1.0, max(self._points) == POINTS

    def _observe(self) -> NDArray[np.float32]:
        where = [self._x - WIDTH // 2, self._y - HEIGHT // 2, 8 * self._vx, 8 * self._vy]
        middles = [top + PADDLE // 2 - HEIGHT // 2 for top in self._paddles]
        return np.array([*where, *middles, 2 * self._points[0], 2 * self._points[1]], np.float32) / np.float32(UNIT)


register(f"{__name__}:Pong", max_episode_steps=10_000, native=NativeVersion("pong"))
