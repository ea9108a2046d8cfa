"""Depths: a submarine that gathers divers among fish and other submarines, and has to surface for air in time."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

import numpy as np

from paddock.envs.games.picture import Colour
from paddock.envs.games.planes import SIDE, PlaneGame

LANES, GAUGE = SIDE - 2, SIDE - 1  # lanes lie below the surface, row 0; the last row has gauges
FISH, HUNTER, DIVER = 1, 2, 3
MOVES = ((0, 0), (-1, 0), (0, 1), (1, 0), (0, -1), (0, 0))  # rows and columns: stay, up, right, down, left, shoot
AIR, PLACES = 200, 6  # steps below the surface that air is for; of divers aboard
PAUSE = 10  # steps between two shots of a hunter
SLOWEST, RAREST, QUICKEST, OFTENEST = (
    5,
    10,
    1,
    3,
)  # steps that things take for a cell, and between two: at first, at last


class Depths(PlaneGame):
    """Stay (0), go up (1), right (2), down (3) or left (4), or shoot (5): each fish or hunter that is hit pays 1.

    The submarine has a front cell, and a back one on the side that it came from when it last went right or left; on
    both it meets what is there: divers come aboard, up to six; fish, hunters and their shots are the end, and so is no
    air. To surface takes a diver, else it is the end; with six all go, and each tenth of air that is left pays 1, else
    one goes. Air is full then, and from time to time things come sooner and go faster. They come and go as in Harvest:
    a half of them fish, a quarter hunters, which shoot ahead every ten steps, and a quarter divers. Shots go a cell a
    step, one of each side in a lane. In each step the submarine acts, then shots go, things go, hunters shoot, and a
    thing comes; what meets is seen to after each of the first three.
    """

    kinds: ClassVar[dict[str, Colour]] = {
        "trail": (70, 74, 96),  # behind each thing
        "fish": (236, 140, 90),
        "hunter": (200, 72, 72),
        "diver": (110, 170, 236),
        "back": (70, 140, 90),
        "front": (110, 200, 130),
        "shot": (236, 236, 228),
        "its shot": (236, 110, 90),
        "air": (90, 110, 150),  # gauges on the last row: tenths that are left, and divers aboard
        "aboard": (110, 170, 236),
    }
    choices = len(MOVES)

    def _begin(self, draw: np.random.Generator) -> None:
        self._y, self._x, self._facing = 0, SIDE // 2, 1
        self._air, self._aboard, self._level, self._steps, self._until, self._pause = AIR, 0, 0, 0, RAREST, PAUSE
        self._kind, self._at, self._ahead = [0] * LANES, [0] * LANES, [0] * LANES
        self._shot, self._way = [0] * LANES, [0] * LANES  # of each lane the submarine's shot; way 0: there is none
        self._its_shot, self._its_way = [0] * LANES, [0] * LANES

    def _play(self, action: int, draw: np.random.Generator) -> tuple[float, bool]:
        self._steps += 1
        reward, over = self._act(action)
        over |= self._meet()
        for at, way in ((self._shot, self._way), (self._its_shot, self._its_way)):
            for k in range(LANES):
                at[k] += way[k]
                if not 0 <= at[k] < SIDE:
                    at[k] = way[k] = 0
        reward += self._hit()
        over |= self._meet()
        if self._steps % max(SLOWEST - self._level // 2, QUICKEST) == 0:
            for k in range(LANES):
                self._at[k] += self._ahead[k] * (self._kind[k] > 0)
                if not 0 <= self._at[k] < SIDE:
                    self._kind[k] = self._at[k] = 0
            reward += self._hit()
            over |= self._meet()
        self._pause -= 1
        if not self._pause:
            self._pause = PAUSE
            for k in range(LANES):
                if self._kind[k] == HUNTER and not self._its_way[k]:
                    self._its_shot[k], self._its_way[k] = self._at[k], self._ahead[k]
        self._until -= 1
        if not self._until:
            self._until = max(RAREST - self._level, OFTENEST)
            self._add(draw)
        self._air -= self._y > 0
        return reward, over or self._air == 0

    def _act(self, action: int) -> tuple[float, bool]:
        """Move or shoot; what surfacing pays, and whether it may not be."""
        down, right = MOVES[action]
        before, self._facing = self._y, right or self._facing
        self._y = min(max(self._y + down, 0), LANES)
        self._x = min(max(self._x + right, 0), SIDE - 1)
        if action == 5 and self._y and not self._way[self._y - 1]:
            self._shot[self._y - 1], self._way[self._y - 1] = self._x, self._facing
        if self._y or not before:
            return 0.0, False
        if not self._aboard:
            return 0.0, True
        full = self._aboard == PLACES
        reward = self._tenths() if full else 0
        self._aboard = 0 if full else self._aboard - 1
        self._air, self._level = AIR, self._level + 1
        return float(reward), False

    def _tenths(self) -> int:
        return (10 * self._air + AIR - 1) // AIR

    def _meet(self) -> bool:
        """Take a diver aboard who is there; whether what is there is the end."""
        if not self._y:
            return False
        k, own = self._y - 1, (self._x, self._x - self._facing)
        over = bool(self._its_way[k]) and self._its_shot[k] in own
        if not self._kind[k] or self._at[k] not in own:
            return over
        if self._kind[k] == DIVER and self._aboard < PLACES:
            self._kind[k], self._aboard = 0, self._aboard + 1
            return over
        return over or self._kind[k] != DIVER

    def _hit(self) -> int:
        """Take away what the submarine's shots meet; how many."""
        hits = 0
        for k in range(LANES):
            if self._way[k] and self._kind[k] in (FISH, HUNTER) and self._at[k] == self._shot[k]:
                self._kind[k] = self._way[k] = self._shot[k] = 0
                hits += 1
        return hits

    def _add(self, draw: np.random.Generator) -> None:
        free = [k for k in range(LANES) if not self._kind[k]]
        if free:
            k, right = free[int(draw.integers(len(free)))], int(draw.integers(2))
            self._kind[k] = (FISH, FISH, HUNTER, DIVER)[int(draw.integers(4))]
            self._at[k], self._ahead[k] = right * (SIDE - 1), 1 - 2 * right

    def _cells(self) -> dict[str, Iterable[Sequence[int]]]:
        of = {kind: [(k + 1, self._at[k]) for k in range(LANES) if self._kind[k] == kind] for kind in range(1, 4)}
        trail = [(k + 1, self._at[k] - self._ahead[k]) for k in range(LANES) if self._kind[k]]
        back = self._x - self._facing
        return {
            "trail": [cell for cell in trail if 0 <= cell[1] < SIDE],
            "fish": of[FISH],
            "hunter": of[HUNTER],
            "diver": of[DIVER],
            "back": [(self._y, back)] if 0 <= back < SIDE else [],
            "front": [(self._y, self._x)],
            "shot": [(k + 1, self._shot[k]) for k in range(LANES) if self._way[k]],
            "its shot": [(k + 1, self._its_shot[k]) for k in range(LANES) if self._its_way[k]],
            "air": [(GAUGE, k) for k in range(self._tenths())],
            "aboard": [(GAUGE, k) for k in range(self._aboard)],
        }
