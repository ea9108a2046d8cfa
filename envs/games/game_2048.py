"""2048 (Cirulli 2014): slide tiles on a 4 x 4 board; two equal tiles merge into one of twice the value."""

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paddock.envs.games.game import Game
from paddock.envs.games.picture import Picture, cells, number
from paddock.envs.registration import NativeVersion, register

SIDE = 4
MAX_POWER = 17  # the highest possible tile is 2^17
FOURS = 0.1  # share of new tiles that are 4 instead of 2
LINES = tuple(  # for up, right, down, left: the four lines of cells, from the side that tiles slide to
    tuple(tuple(start + i * across + k * along for k in range(SIDE)) for i in range(SIDE))
    for start, across, along in ((0, 1, 4), (3, 4, -1), (12, 1, -4), (0, 4, 1))
)
COLOURS = [
    *((44, 48, 58), (98, 110, 128), (112, 128, 144), (236, 168, 96), (242, 140, 76), (244, 110, 72), (246, 82, 54)),
    *((236, 206, 112), (236, 202, 94), (236, 198, 78), (236, 194, 60), (236, 190, 42), (120, 190, 110), (80, 180, 120)),
    *((60, 160, 150), (60, 130, 180), (100, 100, 200), (150, 80, 190)),
]


class Game2048(Game):
    """Slide all tiles up (0), right (1), down (2) or left (3).

    Equal neighbours on a line merge once, starting from the side that tiles slide to; the reward is the sum of the
    merged tiles. Then a 2, or with probability 0.1 a 4, appears in a random empty cell. An episode starts with two
    tiles and ends when no tile can move. An action that moves no tile has no effect.

    Observations: `action_mask`, [4] bits, actions that move a tile; `board`, [4, 4], exponents of two, 0 if empty.
    """

    def __init__(self, render_mode: str | None = None) -> None:
        """Build the game."""
        board = spaces.MultiDiscrete(np.full((SIDE, SIDE), MAX_POWER + 1), dtype=np.uint8)
        seen = spaces.Dict(action_mask=spaces.MultiBinary(4), board=board)
        super().__init__(seen, spaces.Discrete(4), render_mode)

    @classmethod
    def picture(cls, seen: Any) -> Picture:
        """Draw the board, with numbers."""
        side, board = 40, seen["board"]
        drawn = cells(board, COLOURS, side)
        for (y, x), power in np.ndenumerate(board):
            if power:
                scale = 3 if power < 10 else 2 if power < 14 else 1
                width = (4 * len(str(2**power)) - 1) * scale
                left, top = x * side + (side - width) // 2, y * side + (side - 5 * scale) // 2
                number(drawn, 2 ** int(power), left, top, scale, (20, 20, 24))
        return drawn

    def _begin(self, draw: np.random.Generator) -> None:
        self._board = [0] * SIDE**2
        for _ in range(2):
            self._add(draw)

    def _add(self, draw: np.random.Generator) -> None:
        empty = [cell for cell, power in enumerate(self._board) if not power]
        cell = empty[int(draw.integers(len(empty)))]
        self._board[cell] = 2 if draw.random() < FOURS else 1

    def _play(self, action: int) -> tuple[float, bool]:
        before, score = list(self._board), 0
        for line in LINES[action]:
            slid, joined = slide([before[cell] for cell in line])
            score += joined
            for cell, power in zip(line, slid, strict=True):
                self._board[cell] = power
        if self._board != before:
            self._add(self.np_random)
        return score, not self._legal().any()

    def _legal(self) -> NDArray[np.int8]:
        lines = [[[self._board[cell] for cell in line] for line in of] for of in LINES]
        return np.array([any(slide(line)[0] != line for line in of) for of in lines], np.int8)

    def _observe(self) -> dict[str, Any]:
        return {"action_mask": self._legal(), "board": np.array(self._board, np.uint8).reshape(SIDE, SIDE)}


def slide(line: list[int]) -> tuple[list[int], int]:
    """Slide exponents of two to the front of a line; return the new line and the sum of the merged tiles."""
    tiles, slid, score = [power for power in line if power], [], 0
    while tiles:
        power = tiles.pop(0)
        if tiles and tiles[0] == power < MAX_POWER:
            power = tiles.pop(0) + 1
            score += 2**power
        slid.append(power)
    return slid + [0] * (len(line) - len(slid)), score


register(f"{__name__}:Game2048", max_episode_steps=10_000, native=NativeVersion("game_2048"))
