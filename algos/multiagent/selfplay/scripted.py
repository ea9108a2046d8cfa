"""Players that have learned nothing: chance, and those of board games that look ahead.

A scripted player is made for an environment and acts on rows of its observations, as any policy does. What it has no
reason to prefer it draws, from the generator that `drawing` gives it; without one it takes the first.
"""

import copy
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from paddock.algos.multiagent.joint_policy import JointPolicy
from paddock.algos.networks.heads import make_head
from paddock.algos.networks.inputs import Inputs, masked_paths, spaces_of, spaces_of_role
from paddock.envs.errors import ConfigError
from paddock.envs.multiagent.roles import Role
from paddock.envs.spaces.layout import Layout
from paddock.envs.spaces.legal import MASK
from paddock.envs.spec import EnvSpec

Acted = tuple[NDArray[Any], dict[str, NDArray[Any]], Any]


class _Scripted:
    """A player that draws from a generator, if it is given one."""

    _generator: np.random.Generator | None = None

    def drawing(self, generator: np.random.Generator) -> Self:
        """Return the same player with what it has no reason to prefer drawn from this generator."""
        drawn = copy.copy(self)
        drawn._generator = generator
        return drawn


@final
class Random(_Scripted):
    """Takes any action that is legal, all as likely; of numbers without bounds a standard normal one."""

    def __init__(self, env: EnvSpec, role: Role | None = None) -> None:
        """Play what agents of an environment see and do, or those of one role of several."""
        observations, actions = spaces_of(env) if role is None else spaces_of_role(env, role)
        self._inputs = Inputs(observations, make_head(actions, masked=masked_paths(observations)))

    def act(self, obs: NDArray[Any], state: Any = None) -> Acted:
        """Map rows [B, ...] to actions [B, ...]."""
        head, generator, legal = self._inputs.head, self._generator, self._inputs.legal(obs)
        out = np.zeros((len(obs), head.width), np.float32)
        out = out if legal is None else head.masked(out, legal)
        noise = None if generator is None else head.sample_noise(generator, (len(obs),))
        action = head.sample(out, np.zeros(head.num_log_std, np.float32), noise)
        start = 0
        for leaf in head.leaves:
            if not leaf.sizes and generator is not None:
                low, high = np.array(leaf.low), np.array(leaf.high)
                bounded = np.flatnonzero(np.isfinite(low) & np.isfinite(high))
                action[:, start + bounded] = generator.uniform(low[bounded], high[bounded], (len(obs), len(bounded)))
            start += leaf.components
        return head.to_env(action), {}, None


def random_player(env: EnvSpec) -> Random | JointPolicy:
    """Return who plays at random in an environment, in all roles that it has."""
    if len(env.roles) == 1:
        return Random(env)
    role_of = [next(k for k, role in enumerate(env.roles) if seat in role.seats) for seat in range(env.seats)]
    return JointPolicy(env, [Random(env, role) for role in env.roles], role_of)


@dataclass(frozen=True)
class LineGame:
    """A game in which two put stones on a board by turns, and who has some in a line wins.

    A set of cells is an int, of which bit r * columns + c stands for row r and column c.
    """

    rows: int
    columns: int
    in_line: int  # stones that win
    falls: bool  # a move is a column, in which the stone falls to the highest row that is free; else it is a cell

    @property
    def moves(self) -> int:
        """How many moves there are on the empty board."""
        return self.columns if self.falls else self.rows * self.columns

    def put(self, taken: int, move: int) -> int:
        """Return the cell, as a set, that a move takes where these are taken; 0: none is free."""
        if not self.falls:
            return 1 << move & ~taken
        cells = (1 << move + row * self.columns for row in reversed(range(self.rows)))
        return next((cell for cell in cells if not cell & taken), 0)

    def wins(self, own: int, cell: int) -> bool:
        """Return whether a stone on this cell, besides those, makes a line."""
        own |= cell
        return any(own & line == line for line in self._lines[cell])

    def legal(self, taken: int) -> list[int]:
        """Return the moves that can be made."""
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
class TwoPly(_Scripted):
    """Looks two moves ahead in Connect Four or tic-tac-toe: wins if it can, else lets nobody win with the next stone.

    Of moves that are as good it draws one.
    """

    def __init__(self, env: EnvSpec) -> None:
        self._board = _Board.of(env, "twoply", CONNECT4, TICTACTOE)

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
        """Return whether the other can win at once."""
        game = self._board.game
        return any(game.wins(other, game.put(taken, reply)) for reply in game.legal(taken))


@final
class Perfect(_Scripted):
    """Plays tic-tac-toe as well as can be, by looking at all games to their ends; of moves as good it draws one."""

    def __init__(self, env: EnvSpec) -> None:
        self._board = _Board.of(env, "perfect", TICTACTOE)

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
    """Return what a move is worth to who makes it, if both play as well as can be: 1 won, 0 drawn, -1 lost."""
    cell = game.put(own | other, move)
    if game.wins(own, cell):
        return 1
    replies = game.legal(own | other | cell)
    return -max((_value_of(game, other, own | cell, reply) for reply in replies), default=0)


@dataclass(frozen=True)
class _Board:
    """How a game's board lies in rows of observations."""

    game: LineGame
    layout: Layout

    @classmethod
    def of(cls, env: EnvSpec, player: str, *games: LineGame) -> "_Board":
        """Find which of the games an environment is.

        Raises:
            ConfigError: it is none of them.
        """
        layout, actions = spaces_of(env)
        spaces = getattr(layout.space, "spaces", {})
        for game in games:
            board = getattr(spaces.get("observation"), "shape", None) if isinstance(spaces, dict) else None
            if board == (game.rows, game.columns, 2) and MASK in spaces and getattr(actions, "n", 0) == game.moves:
                return cls(game, layout)
        boards = " or ".join(f"observation [{game.rows}, {game.columns}, 2] and {game.moves} moves" for game in games)
        raise ConfigError(f"{player} plays boards of {boards}, and not env.id={env.id}, which shows {layout.space}")

    def read(self, rows: NDArray[Any]) -> Sequence[tuple[int, int]]:
        """Return the player's own stones and the other's, as sets of cells, of each row [B]."""
        stones = np.asarray(self.layout.fields(rows)["observation"]).reshape(len(rows), -1, 2) != 0
        weights = [1 << k for k in range(stones.shape[1])]
        sets = stones.astype(object).transpose(0, 2, 1) @ np.array(weights, object)
        return [(int(own), int(other)) for own, other in sets]


def _draw(moves: Sequence[int], generator: np.random.Generator | None) -> int:
    return moves[0] if generator is None else moves[int(generator.integers(len(moves)))]
