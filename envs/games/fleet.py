"""Fleet: a cannon below, and ships above that come down from side to side and shoot back."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

import numpy as np

from paddock.envs.games.picture import Colour
from paddock.envs.games.planes import SIDE, PlaneGame

BOTTOM = SIDE - 1
ROWS, LEFT, COLUMNS = 4, 2, 6  # of a wave
SLOWEST, QUICKEST = 12, 6  # steps that the first wave takes for a cell at the most, and later ones
RELOAD, PAUSE = 5, 10  # steps between two of the cannon's shots, and two of the ships'


class Fleet(PlaneGame):
    """Wait (0), go left (1) or right (2), or shoot (3): each ship that is hit pays 1; a hit on the cannon is the end.

    Shots go a cell a step. Ships take as many steps for a cell as there are of them, twelve at the most; where one is
    at the side that they go to, they come down a row and turn. Every ten steps the lowest ship of a drawn column
    shoots. After the last one a wave begins anew, which is a step quicker than the one before, down to six. It is over
    too when a ship is on the lowest row. In each step the cannon acts, its shots go and then the ships' shots; then
    the ships go, and one may shoot.
    """

    kinds: ClassVar[dict[str, Colour]] = {
        "ship": (150, 120, 200),
        "to the left": (150, 120, 200),  # which way ships go: one of both planes is at every ship
        "to the right": (120, 140, 210),
        "cannon": (110, 200, 130),
        "shot": (236, 236, 228),
        "its shot": (236, 110, 90),
    }
    choices = 4

    def _begin(self, draw: np.random.Generator) -> None:
        self._x, self._reload, self._pause, self._slowest = SIDE // 2, 0, PAUSE, SLOWEST
        self._shots, self._its_shots = np.zeros((2, SIDE, SIDE), np.int8)
        self._muster()

    def _muster(self) -> None:
        self._ships = np.zeros((SIDE, SIDE), np.int8)
        self._ships[:ROWS, LEFT : LEFT + COLUMNS] = 1
        self._ahead, self._wait = -1, self._slowest

    def _play(self, action: int, draw: np.random.Generator) -> tuple[float, bool]:
        self._x = min(max(self._x + (0, -1, 1, 0)[action], 0), BOTTOM)
        self._reload = max(self._reload - 1, 0)
        if action == 3 and not self._reload:
            self._shots[BOTTOM, self._x], self._reload = 1, RELOAD
        self._shots = np.concatenate([self._shots[1:], np.zeros((1, SIDE), np.int8)])
        reward = self._hit()
        self._its_shots = np.concatenate([np.zeros((1, SIDE), np.int8), self._its_shots[:-1]])
        over = bool(self._its_shots[BOTTOM, self._x])
        self._wait -= 1
        if self._wait <= 0 and self._ships.any():
            self._go()
            reward += self._hit()
            self._wait = min(int(self._ships.sum()), self._slowest)
        over |= bool(self._ships[BOTTOM].any())
        self._pause -= 1
        if not self._pause:
            self._pause = PAUSE
            self._shoot(draw)
        if not self._ships.any():
            self._slowest = max(self._slowest - 1, QUICKEST)
            self._muster()
        return reward, over

    def _hit(self) -> float:
        hit = self._ships & self._shots
        self._ships ^= hit
        self._shots ^= hit
        return float(hit.sum())

    def _go(self) -> None:
        if self._ships[:, 0 if self._ahead < 0 else BOTTOM].any():
            self._ahead = -self._ahead
            self._ships = np.concatenate([np.zeros((1, SIDE), np.int8), self._ships[:-1]])
        else:
            self._ships = np.roll(self._ships, self._ahead, 1)

    def _shoot(self, draw: np.random.Generator) -> None:
        columns = np.flatnonzero(self._ships.any(0))
        if len(columns):
            column = columns[int(draw.integers(len(columns)))]
            row = int(np.flatnonzero(self._ships[:, column])[-1]) + 1
            if row < SIDE:
                self._its_shots[row, column] = 1

    def _cells(self) -> dict[str, Iterable[Sequence[int]]]:
        ships = np.argwhere(self._ships).tolist()
        way = "to the left" if self._ahead < 0 else "to the right"
        shots = {"shot": np.argwhere(self._shots).tolist(), "its shot": np.argwhere(self._its_shots).tolist()}
        return {"ship": ships, way: ships, "cannon": [(BOTTOM, self._x)], **shots}
