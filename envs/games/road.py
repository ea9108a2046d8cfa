"""Road: cross eight lanes of cars, whose speeds change with every crossing."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

import numpy as np

from paddock.envs.games.picture import Colour
from paddock.envs.games.planes import SIDE, PlaneGame

LANES, COLUMN, BOTTOM = SIDE - 2, 4, SIDE - 1
REST = 2  # steps after a move in which there is none
PACES = 5  # steps that the slowest car takes for a cell


class Road(PlaneGame):
    """Go from the lowest row to the highest, for 1: wait (0), go up (1) or down (2), every third step at the most.

    Each row between has a car, which goes a cell in one to five steps, and around from side to side. Who stands where a
    car is after all have moved is back on the lowest row, as is who arrived; then all cars draw paces and directions
    anew. An episode begins with drawn places, paces and directions, and is 2,500 steps long.
    """

    kinds: ClassVar[dict[str, Colour]] = {  # the trail of a car, behind it, is in the plane of its pace
        **{f"pace {k}": (60 + 26 * (PACES - k), 60, 96) for k in range(1, PACES + 1)},
        "car": (236, 168, 96),
        "walker": (110, 200, 130),
    }
    choices = 3

    def _begin(self, draw: np.random.Generator) -> None:
        self._y, self._rest = BOTTOM, 0
        self._x = [int(draw.integers(SIDE)) for _ in range(LANES)]
        self._draw_paces(draw)

    def _draw_paces(self, draw: np.random.Generator) -> None:
        drawn = [(int(draw.integers(PACES)) + 1, 2 * int(draw.integers(2)) - 1) for _ in range(LANES)]
        self._pace, self._ahead = [pace for pace, _ in drawn], [ahead for _, ahead in drawn]
        self._wait = list(self._pace)

    def _play(self, action: int, draw: np.random.Generator) -> tuple[float, bool]:
        if self._rest:
            self._rest -= 1
        elif action:
            self._y, self._rest = min(self._y + (0, -1, 1)[action], BOTTOM), REST
        reward = float(self._y == 0)
        if reward:
            self._y = BOTTOM
            self._draw_paces(draw)
        for k in range(LANES):
            self._wait[k] -= 1
            if not self._wait[k]:
                self._x[k], self._wait[k] = (self._x[k] + self._ahead[k]) % SIDE, self._pace[k]
        if 1 <= self._y <= LANES and self._x[self._y - 1] == COLUMN:
            self._y = BOTTOM
        return reward, False

    def _cells(self) -> dict[str, Iterable[Sequence[int]]]:
        trails: dict[str, list[Sequence[int]]] = {f"pace {k}": [] for k in range(1, PACES + 1)}
        for k in range(LANES):
            trails[f"pace {self._pace[k]}"].append((k + 1, (self._x[k] - self._ahead[k]) % SIDE))
        return {**trails, "car": [(k + 1, x) for k, x in enumerate(self._x)], "walker": [(self._y, COLUMN)]}
