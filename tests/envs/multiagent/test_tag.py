"""The rules of tag: by hand, and beside mpe2's simple tag, whose episodes they are."""

import math
from typing import Any

import numpy as np
import pytest

from paddock.envs.tasks.tag import Tag

NONE, LEFT, RIGHT, DOWN, UP = range(5)
RULES = {"num_good": 1, "num_adversaries": 2, "num_obstacles": 1, "max_cycles": 25}
FAR = [-3.0, -3.0]


def plane(places: list[list[float]], **rules: int) -> Any:
    """A plane with adversaries, prey and obstacles there."""
    world = Tag(None, **(RULES | rules))
    world.reset(seed=0)
    world._places = [list(place) for place in places]
    return world


def step(world: Any, *actions: int) -> Any:
    """Step all; rewards by seat, and what they see."""
    seen, paid, dies, cut, _ = world.step(dict(zip(world.possible_agents, actions, strict=True)))
    assert not any(dies.values()) and all(cut.values()) == (not world.agents)
    return list(paid.values()), seen


@pytest.mark.parametrize(
    ("place", "loss"),
    [([0.89, 0], 0), ([-0.95, 0], 0.5), ([0.95, -0.97], 1.2), ([1, 0], 1), ([0, 1.5], math.e), ([-9, 1e30], 20)],
)
def test_prey_loses_for_being_far_from_the_middle(place: list[float], loss: float) -> None:
    paid, _ = step(plane([[0, 0.5], [0, -0.5], place, FAR]), NONE, NONE, NONE)
    np.testing.assert_allclose(paid, [0, 0, -loss], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("good", "adversaries", "obstacles", "episodes"), [(1, 3, 2, 8), (2, 3, 0, 4)])
def test_an_episode_is_that_of_simple_tag(good: int, adversaries: int, obstacles: int, episodes: int) -> None:
    simple_tag = pytest.importorskip("mpe2.simple_tag_v3", reason="pip install -e '.[multiagent]'")
    rules = {"num_good": good, "num_adversaries": adversaries, "num_obstacles": obstacles, "max_cycles": 25}
    ours, theirs = Tag(None, **rules), simple_tag.parallel_env(**rules)
    for agent in ours.possible_agents:
        assert ours.observation_space(agent) == theirs.observation_space(agent)
        assert ours.action_space(agent) == theirs.action_space(agent)
    draw, caught = np.random.default_rng(0), 0
    for seed in range(episodes):
        seen, other = ours.reset(seed=seed)[0], theirs.reset(seed=seed)[0]
        away = int(draw.integers(5))  # where prey flees, or waits
        while ours.agents:
            assert theirs.agents == ours.agents == list(seen)
            for agent in seen:
                np.testing.assert_allclose(seen[agent], other[agent], rtol=1e-6, atol=1e-9)
            aim = 4 + 2 * (obstacles + adversaries - 1)  # the first prey, from an adversary
            goal = {k: away if k.startswith("agent") else _towards(*seen[k][aim : aim + 2]) for k in ours.agents}
            actions = {k: int(draw.integers(5)) if draw.random() < 0.3 else goal[k] for k in ours.agents}
            seen, paid, *ends, _ = ours.step(actions)
            other, their_pay, *their_ends, _ = theirs.step(actions)
            np.testing.assert_allclose(list(paid.values()), list(their_pay.values()), rtol=1e-9)
            assert ends == their_ends
            caught += paid["adversary_0"] > 0
        assert theirs.agents == []
    assert caught > 2


def _towards(x: float, y: float) -> int:
    """Return the action that goes there along the longer axis."""
    return (LEFT if x < 0 else RIGHT) if abs(x) > abs(y) else (DOWN if y < 0 else UP)
