"""Pong's rules, by hand."""

from typing import Any

import numpy as np
import pytest

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
