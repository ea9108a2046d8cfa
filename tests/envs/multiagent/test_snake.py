"""The rules of snakes, each by a field worked by hand."""

from typing import Any

import numpy as np
from conftest import env_spec

from paddock.envs.tasks.snake import BODY, FOOD, FREE, HEAD, SIGHT, Snake
from paddock.envs.vector.serial import SerialVectorEnv

UP, RIGHT, DOWN, LEFT = range(4)
RULES = {"snakes": 2, "width": 8, "height": 8, "food": 1, "longest": 4, "absence": 2, "max_steps": 100}


def field(*bodies: list[tuple[int, int]], food: tuple[int, int] = (7, 7), **rules: Any) -> Any:
    """A field with these bodies, from tail to head, as (row, column); and food."""
    world = Snake(None, **(RULES | rules))
    world.reset(seed=0)
    world._cells[SIGHT:-SIGHT, SIGHT:-SIGHT] = FREE
    for agent, body in zip(world.possible_agents, bodies, strict=True):
        world._bodies[agent] = [(y + SIGHT, x + SIGHT) for y, x in body]
        for cell in world._bodies[agent]:
            world._cells[cell] = BODY
        world._cells[world._bodies[agent][-1]] = HEAD
    world._cells[food[0] + SIGHT, food[1] + SIGHT] = FOOD
    return world


def step(world: Any, *actions: int) -> Any:
    """Step whoever lives; rewards by seat, and who lives then."""
    *_, paid, dies, cut, _ = world.step(dict(zip(world.possible_agents, actions, strict=True)))
    assert all(dies[agent] == (paid[agent] == -1) for agent in paid) and not any(cut.values())
    return [paid.get(agent) for agent in world.possible_agents], list(world.agents)


def cells(world: Any, agent: str) -> list[tuple[int, int]]:
    return [(y - SIGHT, x - SIGHT) for y, x in world._bodies[agent]]


def test_who_eats_grows_and_is_paid_and_other_food_lies_there() -> None:
    world = field([(0, 0)], [(5, 5)], food=(0, 1))
    assert step(world, RIGHT, LEFT) == ([1.0, 0.0], ["snake_0", "snake_1"])
    assert cells(world, "snake_0") == [(0, 0), (0, 1)] and cells(world, "snake_1") == [(5, 4)]
    assert (world._cells == FOOD).sum() == 1


def test_walls_bodies_and_necks_kill_and_the_last_cell_of_a_tail_does_not() -> None:
    assert step(field([(0, 3)], [(5, 5)]), UP, UP) == ([-1.0, 0.0], ["snake_1"])
    assert step(field([(1, 2), (1, 3), (1, 4)], [(2, 3)]), RIGHT, UP) == ([0.0, -1.0], ["snake_0"])
    assert step(field([(1, 2), (1, 3), (1, 4)], [(5, 5)]), LEFT, UP)[0] == [-1.0, 0.0]
    assert step(field([(1, 2), (1, 3), (1, 4)], [(2, 2)]), RIGHT, UP)[0] == [0.0, 0.0]


def test_two_heads_in_one_cell_both_die_and_leave_the_food() -> None:
    world = field([(3, 2)], [(3, 4)], food=(3, 3), snakes=2)
    assert step(world, RIGHT, LEFT) == ([-1.0, -1.0], [])
    assert world._cells[3 + SIGHT, 3 + SIGHT] == FOOD


def test_the_dead_are_back_with_one_cell_after_their_absence() -> None:
    world = field([(0, 2), (0, 3)], [(5, 5)])
    assert step(world, UP, UP)[1] == ["snake_1"] and (world._cells == BODY).sum() == 0
    assert step(world, UP, DOWN)[1] == ["snake_1"]
    assert step(world, UP, UP)[1] == ["snake_0", "snake_1"] and len(cells(world, "snake_0")) == 1


def test_after_the_last_step_all_who_live_are_truncated_and_nobody_is_born() -> None:
    world = field([(0, 3)], [(4, 4)], max_steps=2, absence=1)
    assert step(world, UP, LEFT)[1] == ["snake_1"]
    seen, _, dies, cut, _ = world.step({"snake_1": LEFT})
    assert (list(seen), dies, cut, world.agents) == (["snake_1"], {"snake_1": False}, {"snake_1": True}, [])


def test_rows_of_the_dead_are_blank_until_they_are_back() -> None:
    venv = SerialVectorEnv(env_spec("paddock.envs.tasks.snake:Snake", kwargs=RULES), 1)
    venv.begin(0)
    venv.envs[0].__dict__.update(field([(0, 3)], [(4, 4)]).__dict__)
    for expected in ([False, True], [False, True], [True, True]):
        obs, *_, infos = venv.step(np.array([UP, int(expected[0])]))
        assert infos["acts"].tolist() == expected and obs.any(axis=(1, 2)).tolist() == expected
    venv.close()
