"""Pong's and Breakout's rules, by hand."""

from typing import Any

import numpy as np
import pytest

from paddock.envs.games.breakout import Breakout
from paddock.envs.games.pong import Pong


def put(game: Any, **state: Any) -> Any:
    """A game that stands as is told."""
    game.reset(seed=0)
    for name, value in state.items():
        assert hasattr(game, f"_{name}")
        setattr(game, f"_{name}", value)
    return game


def test_pong_reflects_a_ball_at_the_walls() -> None:
    game = put(Pong(), x=100, y=2, vx=4, vy=-5)
    game.step(np.int64(0))
    assert (game._x, game._y, game._vy) == (104, 3, 5)
    game = put(Pong(), x=100, y=126, vx=4, vy=5)
    game.step(np.int64(0))
    assert (game._y, game._vy) == (2 * 127 - 131, -5)


@pytest.mark.parametrize(("y", "slope"), [(50, -5), (52, -5), (53, -4), (61, -1), (62, 1), (73, 5)])
def test_pong_s_paddle_sends_a_ball_back_by_where_it_is_hit(y: int, slope: int) -> None:
    game = put(Pong(), x=182, y=y, vx=4, vy=0, paddles=[50, 50])
    _, reward, over, *_ = game.step(np.int64(0))
    assert (game._x, game._vx, game._vy, reward, over) == (184, -4, slope, 0.0, False)


def test_pong_pays_for_points_and_serves_to_who_won() -> None:
    game = put(Pong(), x=182, y=100, vx=4, vy=0, paddles=[0, 50])
    assert game.step(np.int64(0))[1:3] == (-1.0, False) and game._vx == -4 and game._points == [0, 1]
    game = put(Pong(), x=10, y=100, vx=-4, vy=0, paddles=[0, 0], points=[20, 3])
    assert game.step(np.int64(0))[1:3] == (1.0, True) and game._vx == 4


def test_pong_s_ball_gets_faster_with_every_fourth_hit() -> None:
    game = put(Pong(), x=182, y=60, vx=4, vy=0, paddles=[50, 50], hits=3)
    game.step(np.int64(0))
    assert game._vx == -5
    game = put(Pong(), x=182, y=60, vx=8, vy=0, paddles=[50, 50], hits=30)
    game.step(np.int64(0))
    assert game._vx == -8


def test_breakout_s_ball_turns_back_at_a_brick_that_is_gone_then() -> None:
    game = put(Breakout(), x=100, y=73, vx=2, vy=-4)
    seen, reward, over, *_ = game.step(np.int64(0))
    assert (game._x, game._y, game._vy, reward, over) == (102, 73, 4, 1.0, False)
    assert seen["bricks"][5, 6] == 0 and seen["bricks"].sum() == 71


def test_breakout_s_ball_is_faster_from_the_paddle_on_after_the_upper_rows() -> None:
    game = put(Breakout(), x=100, y=22, vx=2, vy=4)
    assert game.step(np.int64(0))[1] == 7.0 and game._vy == -4
    game._x, game._y, game._vy, game._left = 100, 150, 4, 80
    game.step(np.int64(0))
    assert (game._y, game._vy) == (151, -6) and game._vx == 2, "the sixth of eight parts, 20 of 32 units along"


def test_breakout_ends_with_the_last_ball_or_brick() -> None:
    game = put(Breakout(), x=10, y=158, vx=1, vy=4, left=100, lives=1)
    assert game.step(np.int64(0))[2]
    game = put(Breakout(), x=10, y=158, vx=1, vy=4, left=100)
    assert not game.step(np.int64(0))[2] and game._lives == 4 and game._y == 80
    last = np.zeros((6, 12), np.int8)
    last[5, 6] = 1
    game = put(Breakout(), x=100, y=73, vx=2, vy=-4, bricks=last)
    assert game.step(np.int64(0))[1:3] == (1.0, True)
    assert sum(12 * points for points in (7, 7, 4, 4, 1, 1)) == 288
