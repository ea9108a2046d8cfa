"""Harvest: gather what comes along eight lanes, and keep away from what else comes there, faster and faster."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

import numpy as np

from paddock.envs.games.picture import Colour
from paddock.envs.games.planes import SIDE, PlaneGame

LANES = SIDE - 2
MOVES = ((0, 0), (-1, 0), (0, 1), (1, 0), (0, -1))  # rows and columns: stay, up, right, down, left
SLOWEST, RAREST = 5, 10  # steps that things take for a cell, and between two of them, at first
LEVEL, LEVELS = 100, 8  # steps of a level, and after how many nothing changes any more


class Harvest(PlaneGame):
    """Stay (0), or go up (1), right (2), down (3) or left (4): each fruit that is met pays 1, a beast is the end.

    Things come from one of both sides into a lane that is free, drawn with side and kind, a third of them fruit, and
    go along it to the other side. At first they take five steps for a cell, and ten lie between two of them; with each
    of eight levels, a hundred steps long, in turn the former is one less, or the latter two. In each step the player
    moves, a thing comes, and things go; they meet where both are after the player's move, or after theirs.
    """

    kinds: ClassVar[dict[str, Colour]] = {
        "trail": (70, 74, 96),  # behind each thing
        "beast": (200, 72, 72),
        "fruit": (236, 206, 112),
        "player": (110, 200, 130),
    }
    choices = len(MOVES)

    def _begin(self, draw: np.random.Generator) -> None:
        self._y = self._x = SIDE // 2
        self._steps, self._until = 0, RAREST
        self._kind, self._at, self._ahead = [0] * LANES, [0] * LANES, [0] * LANES  # of each lane: 1 a beast, 2 fruit

    def _play(self, action: int, draw: np.random.Generator) -> tuple[float, bool]:
        level = min(self._steps // LEVEL, LEVELS)
        self._steps += 1
        self._y = min(max(self._y + MOVES[action][0], 1), LANES)
        self._x = min(max(self._x + MOVES[action][1], 0), SIDE - 1)
        reward, over = self._meet()
        self._until -= 1
        if not self._until:
            self._until = RAREST - level // 2 * 2
            self._add(draw)
        if self._steps % (SLOWEST - (level + 1) // 2) == 0:
            for k in range(LANES):
                self._at[k] += self._ahead[k] * (self._kind[k] > 0)
                if not 0 <= self._at[k] < SIDE:
                    self._kind[k] = self._at[k] = 0
        more, met = self._meet()
        return reward + more, over or met

    def _add(self, draw: np.random.Generator) -> None:
        free = [k for k in range(LANES) if not self._kind[k]]
        if free:
            k, right = free[int(draw.integers(len(free)))], int(draw.integers(2))
            self._kind[k] = 2 if draw.integers(3) == 0 else 1
            self._at[k], self._ahead[k] = right * (SIDE - 1), 1 - 2 * right

    def _meet(self) -> tuple[float, bool]:
        k = self._y - 1
        kind = self._kind[k] if self._at[k] == self._x else 0
        if kind == 2:
            self._kind[k] = 0
        return float(kind == 2), kind == 1

    def _cells(self) -> dict[str, Iterable[Sequence[int]]]:
        behind = [(k + 1, self._at[k] - self._ahead[k]) for k in range(LANES) if self._kind[k]]
        things = {kind: [(k + 1, self._at[k]) for k in range(LANES) if self._kind[k] == kind] for kind in (1, 2)}
        trail = [cell for cell in behind if 0 <= cell[1] < SIDE]
        return {"trail": trail, "beast": things[1], "fruit": things[2], "player": [(self._y, self._x)]}
