"""The rules of spread: by hand, and beside mpe2's simple spread, whose episodes they are."""

import math
from typing import Any

import numpy as np
import pytest

from paddock.envs.tasks.particles import softplus
from paddock.envs.tasks.spread import Spread

NONE, LEFT, RIGHT, DOWN, UP = range(5)
RULES = {"N": 2, "local_ratio": 0.5, "max_cycles": 25}


def plane(places: list[list[float]], landmarks: list[list[float]], **rules: Any) -> Any:
    """A plane with agents and landmarks there."""
    world = Spread(None, **(RULES | rules))
    world.reset(seed=0)
    world._places, world._landmarks = [list(place) for place in places], landmarks
    return world


def step(world: Any, *actions: int) -> Any:
    """Step all; rewards by seat, places and speeds."""
    seen, paid, dies, cut, _ = world.step(dict(zip(world.possible_agents, actions, strict=True)))
    assert not any(dies.values()) and all(cut.values()) == (not world.agents)
    numbers = np.array(list(seen.values()))
    return list(paid.values()), numbers[:, 2:4], numbers[:, :2]


def test_a_push_shows_in_the_place_a_step_later_and_speed_fades() -> None:
    world = plane([[0, 0], [5, 0]], [[0, 0], [5, 0]])
    _, places, speeds = step(world, RIGHT, UP)
    np.testing.assert_array_equal(places, [[0, 0], [5, 0]])
    np.testing.assert_allclose(speeds, [[0.5, 0], [0, 0.5]])
    _, places, speeds = step(world, LEFT, NONE)
    np.testing.assert_allclose(places, [[0.05, 0], [5, 0.05]], rtol=1e-6)
    np.testing.assert_allclose(speeds, [[-0.125, 0], [0, 0.375]], rtol=1e-6)


def test_all_are_paid_what_is_left_to_each_landmark_and_each_for_whom_it_overlaps() -> None:
    world = plane([[0, 0], [0.2, 0], [3, 4]], [[0, 1], [3, 3], [0, 2]], N=3)
    paid, _, speeds = step(world, NONE, NONE, DOWN)
    assert paid == [-2.5, -2.5, -2.0]  # half of 1 + 1 + 2, and half of 1
    np.testing.assert_allclose(
        speeds, [[-1.0, 0.0], [1.0, 0.0], [0.0, -0.5]], atol=1e-6
    )  # 0.1 of depth is a force of 10
    world = plane([[0, 0], [0.2, 0], [3, 4]], [[0, 1], [3, 3], [0, 2]], N=3, local_ratio=0)
    assert step(world, NONE, NONE, DOWN)[0] == [-4.0] * 3


def test_an_agent_sees_itself_landmarks_others_and_silence() -> None:
    world = plane([[0.5, 0], [1, 2], [-1, 1]], [[0, 1], [3, 3], [0, 2]], N=3)
    seen = world.step(dict.fromkeys(world.agents, UP))[0]["agent_1"]
    assert seen.tolist() == [0, 0.5, 1, 2, -1, -1, 2, 1, -1, 0, -0.5, -2, -2, -1, 0, 0, 0, 0]


@pytest.mark.parametrize("x", [-1e9, -3.0, 0.0, 0.5, 39.9, 1e9])
def test_contact_is_a_softplus(x: float) -> None:
    exact = x + math.log1p(math.exp(-x)) if x > 0 else math.log1p(math.exp(max(x, -700)))
    assert softplus(x) == pytest.approx(exact, rel=1e-13, abs=1e-17)


@pytest.mark.parametrize(("agents", "local_ratio", "episodes"), [(3, 0.5, 6), (8, 0.3, 2)])
def test_an_episode_is_that_of_simple_spread(agents: int, local_ratio: float, episodes: int) -> None:
    simple_spread = pytest.importorskip("mpe2.simple_spread_v3", reason="pip install -e '.[multiagent]'")
    rules = {"N": agents, "local_ratio": local_ratio, "max_cycles": 25}
    ours, theirs = Spread(None, **rules), simple_spread.parallel_env(**rules)
    draw, met = np.random.default_rng(0), 0
    for seed in range(episodes):
        seen, other = ours.reset(seed=seed)[0], theirs.reset(seed=seed)[0]
        while ours.agents:
            assert theirs.agents == ours.agents == list(seen)
            for agent in seen:
                np.testing.assert_allclose(seen[agent], other[agent], rtol=1e-6, atol=1e-9)
            # All go to one landmark now and then, and meet there.
            gather = {agent: _towards(seen[agent]) for agent in ours.agents}
            actions = {agent: int(draw.integers(5)) if draw.random() < 0.3 else gather[agent] for agent in ours.agents}
            seen, paid, *ends, _ = ours.step(actions)
            other, their_pay, *their_ends, _ = theirs.step(actions)
            np.testing.assert_allclose(list(paid.values()), list(their_pay.values()), rtol=1e-9)
            assert ends == their_ends
            met += len(set(paid.values())) > 1
        assert theirs.agents == []
    assert met > 5 * episodes


def _towards(seen: Any) -> int:
    """Return the action that goes to the first landmark, along the longer axis."""
    x, y = seen[4:6]
    return (LEFT if x < 0 else RIGHT) if abs(x) > abs(y) else (DOWN if y < 0 else UP)
