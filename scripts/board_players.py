"""Board-game players that search ahead, as opponents of trained policies.

    python -m paddock.evaluate RUN players=scripts.board_players.Perfect

A player is built for an environment and acts on rows of observations, like any policy. It breaks ties with the generator
that `drawing` sets; without one it takes the first of equal moves.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from paddock.algos.multiagent.selfplay.scripted import Acted, Scripted
from paddock.algos.networks.inputs import spaces_of
from paddock.envs.errors import ConfigError
from paddock.envs.spaces.layout import Layout
from paddock.envs.spaces.legal import MASK
from paddock.envs.spec import EnvSpec


@dataclass(frozen=True)
class LineGame:
    """Rules of a game won by stones in a line; in a set of cells, bit r * columns + c stands for row r and column c."""

    rows: int
    columns: int
    in_line: int  # length of a winning line
    falls: bool  # a move is a column, in which the stone falls to the last free row; otherwise a move is a cell

    @property
    def moves(self) -> int:
        """Number of moves on the empty board."""
        return self.columns if self.falls else self.rows * self.columns

    def put(self, taken: int, move: int) -> int:
        """Return the cell that a move takes, as a set, given the taken cells; 0: it is illegal."""
        if not self.falls:
            return 1 << move & ~taken
        cells = (1 << move + row * self.columns for row in reversed(range(self.rows)))
        return next((cell for cell in cells if not cell & taken), 0)

    def wins(self, own: int, cell: int) -> bool:
        """Return whether adding this cell to the own stones makes a line."""
        own |= cell
        return any(own & line == line for line in self._lines[cell])

    def legal(self, taken: int) -> list[int]:
        """Return the legal moves."""
        return [move for move in range(self.moves) if self.put(taken, move)]

    @functools.cached_property
    def _lines(self) -> dict[int, list[int]]:
        """The lines, as sets, through each cell."""
        through: dict[int, list[int]] = {1 << k: [] for k in range(self.rows * self.columns)}
        for row, column in np.ndindex(self.rows, self.columns):
            for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
                ends = row + down * (self.in_line - 1), column + right * (self.in_line - 1)
                if 0 <= ends[0] < self.rows and 0 <= ends[1] < self.columns:
                    cells = [1 << (row + down * k) * self.columns + column + right * k for k in range(self.in_line)]
                    for cell in cells:
                        through[cell].append(sum(cells))
        return through


CONNECT4, TICTACTOE = LineGame(6, 7, 4, falls=True), LineGame(3, 3, 3, falls=False)


@final
class TwoPly(Scripted):
    """Player of Connect Four or tic-tac-toe that wins if it can, and otherwise prevents a win in the next move."""

    def __init__(self, env: EnvSpec) -> None:
        self._board = _Board.of(env, "TwoPly", CONNECT4, TICTACTOE)

    def act(self, obs: NDArray[Any], state: Any = None) -> Acted:
        """Map rows [B] to moves [B]."""
        moves = [_draw(self._best(*stones), self._generator) for stones in self._board.read(obs)]
        return np.array(moves, np.int64), {}, None

    def _best(self, own: int, other: int) -> list[int]:
        game, taken = self._board.game, own | other
        legal = game.legal(taken)
        winning = [move for move in legal if game.wins(own, game.put(taken, move))]
        return winning or [move for move in legal if not self._loses(taken | game.put(taken, move), other)] or legal

    def _loses(self, taken: int, other: int) -> bool:
        game = self._board.game
        return any(game.wins(other, game.put(taken, reply)) for reply in game.legal(taken))


@final
class Perfect(Scripted):
    """Perfect player of tic-tac-toe, by exhaustive search."""

    def __init__(self, env: EnvSpec) -> None:
        self._board = _Board.of(env, "Perfect", TICTACTOE)

    def act(self, obs: NDArray[Any], state: Any = None) -> Acted:
        """Map rows [B] to moves [B]."""
        moves = []
        for own, other in self._board.read(obs):
            values = {
                move: _value_of(self._board.game, own, other, move) for move in self._board.game.legal(own | other)
            }
            best = [move for move, value in values.items() if value == max(values.values())]
            moves.append(_draw(best, self._generator))
        return np.array(moves, np.int64), {}, None


@functools.cache
def _value_of(game: LineGame, own: int, other: int, move: int) -> int:
    """Return the minimax value of a move for the player that makes it: 1 win, 0 draw, -1 loss."""
    cell = game.put(own | other, move)
    if game.wins(own, cell):
        return 1
    replies = game.legal(own | other | cell)
    return -max((_value_of(game, other, own | cell, reply) for reply in replies), default=0)


@dataclass(frozen=True)
class _Board:
    game: LineGame
    layout: Layout

    @classmethod
    def of(cls, env: EnvSpec, player: str, *games: LineGame) -> "_Board":
        """Find which of these games an environment is; raise ConfigError if none."""
        layout, actions = spaces_of(env)
        spaces = getattr(layout.space, "spaces", {})
        for game in games:
            board = getattr(spaces.get("observation"), "shape", None) if isinstance(spaces, dict) else None
            if board == (game.rows, game.columns, 2) and MASK in spaces and getattr(actions, "n", 0) == game.moves:
                return cls(game, layout)
        boards = " or ".join(f"observation [{game.rows}, {game.columns}, 2] and {game.moves} moves" for game in games)
        raise ConfigError(f"{player} needs boards of {boards}; env.id={env.id} has {layout.space}")

    def read(self, rows: NDArray[Any]) -> Sequence[tuple[int, int]]:
        """Return the own and the opponent's stones of each row [B], as sets of cells."""
        stones = np.asarray(self.layout.fields(rows)["observation"]).reshape(len(rows), -1, 2) != 0
        weights = [1 << k for k in range(stones.shape[1])]
        sets = stones.astype(object).transpose(0, 2, 1) @ np.array(weights, object)
        return [(int(own), int(other)) for own, other in sets]


def _draw(moves: Sequence[int], generator: np.random.Generator | None) -> int:
    return moves[0] if generator is None else moves[int(generator.integers(len(moves)))]
