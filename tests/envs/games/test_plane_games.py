"""Rules of the games on 10 x 10 planes, by hand."""

from typing import Any

import numpy as np
import pytest

from paddock.envs.games.bricks import Bricks
from paddock.envs.games.depths import AIR, Depths
from paddock.envs.games.fleet import Fleet
from paddock.envs.games.harvest import Harvest
from paddock.envs.games.road import Road


def put(game: Any, **state: Any) -> Any:
    """A game that stands as is told."""
    game.reset(seed=0)
    for name, value in state.items():
        assert hasattr(game, f"_{name}")
        setattr(game, f"_{name}", value)
    return game


def step(game: Any, action: int = 0) -> tuple[float, bool]:
    _, reward, over, *_ = game.step(np.int64(action))
    return reward, over


@pytest.mark.parametrize(("paddle", "dx"), [(5, -1), (4, 1)])
def test_each_half_of_the_paddle_sends_the_ball_to_its_side(paddle: int, dx: int) -> None:
    game = put(Bricks(), x=4, y=8, dx=1, dy=1, paddle=paddle)
    assert step(game) == (0.0, False) and (game._x, game._y, game._dx, game._dy) == (5, 8, dx, -1)


def test_a_brick_turns_the_ball_back_and_the_wall_comes_again_on_the_paddle() -> None:
    game = put(Bricks(), x=4, y=4, dx=1, dy=-1)
    assert step(game) == (1.0, False) and (game._x, game._y, game._dy) == (4, 4, 1) and not game._bricks[2, 5]
    game = put(Bricks(), x=4, y=8, dx=1, dy=1, paddle=5, bricks=np.zeros((3, 10), np.int8))
    step(game)
    assert game._bricks.all()


def test_a_ball_is_reflected_at_the_side_and_lost_beside_the_paddle() -> None:
    game = put(Bricks(), x=9, y=5, dx=1, dy=1)
    assert step(game) == (0.0, False) and (game._x, game._y, game._dx) == (8, 6, -1)
    assert step(put(Bricks(), x=4, y=8, dx=1, dy=1, paddle=6)) == (0.0, True)


def test_who_crosses_the_road_is_paid_and_back_and_cars_change() -> None:
    game = put(Road(), y=1, x=[0] * 8, pace=[5] * 8, ahead=[1] * 8, wait=[5] * 8)
    assert step(game, 1) == (1.0, False) and game._y == 9 and game._rest == 2 and game._pace != [5] * 8


def test_a_car_sends_the_walker_back_who_goes_every_third_step() -> None:
    game = put(Road(), y=9, x=[3] * 8, pace=[3] * 8, ahead=[1] * 8, wait=[3] * 8)
    assert [(step(game, 1), game._y)[1] for _ in range(3)] == [8, 8, 9], "in the third step a car is there"


def test_fruit_pays_and_a_beast_is_the_end() -> None:
    for kind, expected in ((2, (1.0, False)), (1, (0.0, True))):
        game = put(Harvest(), y=3, x=4, kind=[0, 0, kind, *[0] * 5], at=[0, 0, 5, *[0] * 5], ahead=[1] * 8)
        assert step(game, 2) == expected


def test_things_come_to_the_player_and_faster_with_the_levels() -> None:
    game = put(Harvest(), y=3, x=6, kind=[0, 0, 2, *[0] * 5], at=[0, 0, 5, *[0] * 5], ahead=[1] * 8, steps=4)
    assert step(game) == (1.0, False), "the fifth step moves things"
    game = put(Harvest(), y=8, x=0, kind=[2, *[0] * 7], at=[5, *[0] * 7], ahead=[1] * 8, steps=800)
    step(game), step(game)
    assert game._at[0] == 7


def test_a_shot_takes_a_ship_and_the_last_ship_brings_a_quicker_wave() -> None:
    ships, shots = np.zeros((2, 10, 10), np.int8)
    ships[3, 4] = shots[4, 4] = 1
    game = put(Fleet(), ships=ships, shots=shots)
    assert step(game) == (1.0, False) and game._ships.sum() == 24 and game._wait == game._slowest == 11


def test_ships_turn_and_come_down_at_the_side_and_end_it_below() -> None:
    ships = np.zeros((10, 10), np.int8)
    ships[3, 0] = ships[3, 5] = 1
    game = put(Fleet(), ships=ships, wait=1)
    assert step(game) == (0.0, False) and game._ahead == 1 and game._ships[4, [0, 5]].all() and game._wait == 2
    low = np.roll(ships, 5, 0)
    assert step(put(Fleet(), ships=low, wait=1)) == (0.0, True)


def test_a_shot_of_theirs_ends_it_on_the_cannon_alone() -> None:
    its = np.zeros((10, 10), np.int8)
    its[8, 5] = 1
    assert step(put(Fleet(), its_shots=its)) == (0.0, True)
    assert step(put(Fleet(), its_shots=its), 1) == (0.0, False)


def lane(k: int, value: int) -> list[int]:
    """Nothing in all lanes but one."""
    return [value if lane == k else 0 for lane in range(8)]


def test_to_surface_takes_a_diver_and_with_six_of_them_the_air_that_is_left_pays() -> None:
    assert step(put(Depths(), y=1, x=4), 1) == (0.0, True)
    game = put(Depths(), y=1, x=4, aboard=2, air=50)
    assert step(game, 1) == (0.0, False) and (game._aboard, game._air, game._level) == (1, AIR, 1)
    game = put(Depths(), y=1, x=4, aboard=6, air=101)
    assert step(game, 1) == (6.0, False) and game._aboard == 0, "101 of 200 steps are within the sixth tenth"


def test_both_cells_of_the_submarine_meet_what_is_there() -> None:
    for at, over in ((4, True), (3, True), (5, False)):
        for kind in (1, 2):
            game = put(Depths(), y=3, x=4, kind=lane(2, kind), at=lane(2, at), ahead=[1] * 8)
            assert step(game) == (0.0, over)
        game = put(Depths(), y=3, x=4, kind=lane(2, 3), at=lane(2, at), ahead=[1] * 8)
        assert step(game) == (0.0, False) and game._aboard == over
    assert step(put(Depths(), y=3, x=4, its_shot=lane(2, 6), its_way=lane(2, -1))) == (0.0, False)
    assert step(put(Depths(), y=3, x=4, its_shot=lane(2, 5), its_way=lane(2, -1))) == (0.0, True)


def test_a_shot_of_the_submarine_takes_fish_and_hunters_alone() -> None:
    for kind, paid in ((1, 1.0), (2, 1.0), (3, 0.0)):
        game = put(Depths(), y=3, x=4, kind=lane(2, kind), at=lane(2, 6), ahead=[1] * 8)
        assert step(game, 5)[0] + step(game)[0] == paid


def test_air_is_for_so_many_steps_below() -> None:
    game = put(Depths(), y=3, x=4, air=2)
    assert step(game) == (0.0, False) and step(game) == (0.0, True)
    game = put(Depths(), y=0, x=4, air=2)
    step(game)
    assert game._air == 2
