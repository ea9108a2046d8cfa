"""What games on a board of 10 x 10 have in common: what is there lies in planes of bits, one for each kind.

The idea, and what the games are about, is MinAtar's (Young & Tian 2019, arXiv:1903.03176). Their rules here are our
own, made after what that paper says of each in prose: no score of MinAtar's is one of these.
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paddock.envs.games.game import Game
from paddock.envs.games.picture import Colour, Picture, planes

SIDE = 10


class PlaneGame(Game):
    """A game whose observation is [10, 10, C] bits: rows from the top, columns from the left, planes."""

    kinds: ClassVar[dict[str, Colour]]  # what each plane shows, and its colour in pictures; later ones lie above
    choices: ClassVar[int]

    def __init__(self, render_mode: str | None = None) -> None:
        """Make it."""
        super().__init__(render_mode)
        self.observation_space = spaces.MultiBinary((SIDE, SIDE, len(self.kinds)))
        self.action_space = spaces.Discrete(self.choices)

    @classmethod
    def picture(cls, seen: Any) -> Picture:
        """Draw the planes one over another."""
        return planes(seen, list(cls.kinds.values()), 16)

    def _observe(self) -> NDArray[np.int8]:
        seen = np.zeros((SIDE, SIDE, len(self.kinds)), np.int8)
        for name, cells in self._cells().items():
            for row, column in cells:
                seen[row, column, list(self.kinds).index(name)] = 1
        return seen

    @abstractmethod
    def _cells(self) -> dict[str, Iterable[Sequence[int]]]:
        """Return the cells (row, column) of each kind."""
