"""The rules of spread, beside mpe2's simple spread, whose episodes they are."""

import math
from typing import Any

import numpy as np
import pytest

from paddock.envs.tasks.particles import softplus
from paddock.envs.tasks.spread import Spread

NONE, LEFT, RIGHT, DOWN, UP = range(5)


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
