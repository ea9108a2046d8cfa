"""Bricks: a ball that goes diagonally, a paddle of two cells, and three rows of bricks that come again."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

import numpy as np

from paddock.envs.games.picture import Colour
from paddock.envs.games.planes import SIDE, PlaneGame

FIRST, ROWS = 1, 3  # the wall's upper row, and how many there are
BOTTOM = SIDE - 1


class Bricks(PlaneGame):
    """Keep the ball up: the paddle stays (0), goes left (1) or right (2); each brick pays 1; a lost ball is the end.

    In each step the paddle goes a cell, then the ball a cell diagonally. At the sides and above it is reflected; where
    a brick is, the ball stays, the brick is gone, and the ball turns back up or down. The paddle's left cell sends it
    up and left, the right one up and right. Once no brick is left, all stand again when the ball is next on the paddle.
    An episode begins with the ball below the wall at one of both sides, which is all that it draws.
    """

    kinds: ClassVar[dict[str, Colour]] = {
        "trail": (70, 74, 96),  # where the ball was before
        "brick": (200, 90, 72),
        "paddle": (110, 200, 130),
        "ball": (236, 236, 228),
    }
    choices = 3

    def _begin(self, draw: np.random.Generator) -> None:
        right = int(draw.integers(2))
        self._x, self._y, self._dx, self._dy = right * (SIDE - 1), FIRST + ROWS, 1 - 2 * right, 1
        self._trail = (self._y, self._x)
        self._paddle, self._bricks = SIDE // 2 - 1, np.ones((ROWS, SIDE), np.int8)

    def _play(self, action: int, draw: np.random.Generator) -> tuple[float, bool]:
        self._paddle = min(max(self._paddle + (0, -1, 1)[action], 0), SIDE - 2)
        self._trail = (self._y, self._x)
        if not 0 <= self._x + self._dx < SIDE:
            self._dx = -self._dx
        if self._y + self._dy < 0:
            self._dy = -self._dy
        x, y = self._x + self._dx, min(self._y + self._dy, BOTTOM)
        if FIRST <= y < FIRST + ROWS and self._bricks[y - FIRST, x]:
            self._bricks[y - FIRST, x], self._dy = 0, -self._dy
            return 1.0, False
        self._x, self._y = x, y
        if y < BOTTOM:
            return 0.0, False
        if not 0 <= x - self._paddle < 2:
            return 0.0, True
        self._y, self._dx, self._dy = y - 1, 2 * (x - self._paddle) - 1, -1
        if not self._bricks.any():
            self._bricks[:] = 1
        return 0.0, False

    def _cells(self) -> dict[str, Iterable[Sequence[int]]]:
        return {
            "trail": [self._trail],
            "brick": [(FIRST + row, column) for row, column in np.argwhere(self._bricks).tolist()],
            "paddle": [(BOTTOM, self._paddle), (BOTTOM, self._paddle + 1)],
            "ball": [(self._y, self._x)],
        }
