"""MinAtar's games in C against MinAtar itself, given the same random numbers: every observation, reward and end."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import env_spec
from native_laws import assert_refused, assert_same_run_natively, maker, native  # noqa: F401, fixtures

from paddock.envs.games.minatar import GAMES, name_of
from paddock.envs.spec import EnvSpec

NIGHTLY = 1000  # episodes of a game
LONGEST = 3000  # steps of an episode
FUTURES, AHEAD = 64, 12  # copies of a game, one of whose futures of so many steps is taken
HEAD = 64  # bytes in front of the copies in a saved state
GAUGES = slice(7, 9)  # channels of oxygen and divers in Seaquest


class Numbers:
    """The random numbers of a game in C, by the methods of NumPy's RandomState that MinAtar calls."""

    def __init__(self, seed: int) -> None:
        self._draw = np.random.default_rng(seed)

    def rand(self, *shape: int) -> Any:
        return self._draw.random(*shape)

    def randint(self, low: int, high: int | None = None, size: int | None = None) -> Any:
        bounds = (0, low) if high is None else (low, high)
        if size is None:
            return int(self._draw.integers(*bounds))
        return np.array([self._draw.integers(*bounds) for _ in range(size)])


def spec_of(game: str, full: bool = False, **rules: Any) -> EnvSpec:
    return env_spec(f"paddock.envs.games:paddock/{name_of(game, full)}-v0", kwargs=rules)


def take(ours: Any, best: int) -> None:
    """Have all copies go on from one of them."""
    state = ours.state_dict()
    copies = state["saved"][HEAD:].reshape(FUTURES, -1)
    copies[:] = copies[best].copy()
    ours.load_state_dict(state)


def play_both(make: Any, game: str, full: bool, first: int, episodes: int, **rules: Any) -> tuple[int, float, float]:
    """Play episodes here and there, every other one far; return steps, the mean return and the highest."""
    minatar = pytest.importorskip("minatar")
    given = {"sticky_action_prob": 0.1, "difficulty_ramping": True} | rules
    ours, theirs = make(spec_of(game, full, **rules), FUTURES), minatar.Environment(game, **given)
    actions = np.arange(6) if full else np.array(theirs.minimal_action_set())
    draw, steps = np.random.default_rng(first), 0
    returns: list[float] = []
    for seed in range(first, first + episodes):
        theirs.random = theirs.env.random = Numbers(seed)
        theirs.last_action = 0
        theirs.reset()
        seen, _ = ours.reset(seed=[seed] * FUTURES)
        np.testing.assert_array_equal(seen[0], theirs.state())
        over, length, total = False, 0, 0.0
        while not over and length < LONGEST:
            plans = draw.integers(len(actions), size=(AHEAD, FUTURES))
            changes = draw.integers(AHEAD + 1, size=FUTURES // 2)  # half of the plans have two actions
            plans[:, ::2] = np.where(np.arange(AHEAD)[:, None] < changes, plans[0, ::2], plans[-1, ::2])
            played = [ours.step(plan) for plan in plans]
            best = best_future(game, played) if seed % 2 else 0
            for plan, (seen, reward, terminated, _, infos) in zip(plans, played, strict=True):
                paid, over = theirs.act(actions[plan[best]])
                length, total = length + 1, total + paid
                assert (reward[best], terminated[best]) == (paid, over), (game, seed, length)
                mine = infos["final_obs"][best] if over else seen[best]
                np.testing.assert_array_equal(mine, theirs.state(), err_msg=f"{game}, {seed}, step {length}")
                if over:
                    break
            take(ours, best)
        steps += length
        returns.append(float(total))
    return steps, float(np.mean(returns)), max(returns)


def best_future(game: str, played: list[Any]) -> int:
    """The copy that lives and earns most."""
    alive, worth = np.ones(FUTURES, np.bool_), np.zeros(FUTURES)
    for _, reward, terminated, *_ in played:
        worth += alive * (reward + 0.01 - 5 * terminated)
        alive &= ~terminated
    if game == "breakout":  # the paddle under the ball
        columns = [played[-1][0][..., channel].any(axis=1).argmax(axis=1) for channel in (0, 1)]
        worth -= 0.1 * alive * np.abs(np.subtract(*columns))
    if game == "seaquest":
        worth += alive * 0.1 * played[-1][0][..., GAUGES].sum(axis=(1, 2, 3))
    return int(worth.argmax())


@pytest.mark.parametrize(("full", "episodes"), [(False, 20), (True, 6)])
@pytest.mark.parametrize("game", GAMES)
def test_an_episode_is_minatar_s(make: Any, game: str, full: bool, episodes: int) -> None:
    play_both(make, game, full, 0, episodes // 3 if game == "freeway" else episodes)


@pytest.mark.parametrize("game", GAMES)
def test_an_episode_is_minatar_s_with_other_rules(make: Any, game: str) -> None:
    play_both(make, game, False, 100, 4, sticky_action_prob=0.4, difficulty_ramping=False)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("game", GAMES)
def test_a_thousand_episodes_are_minatar_s(make: Any, game: str) -> None:
    steps, mean, most = play_both(make, game, False, 1000, NIGHTLY)
    print(f"{game}: {steps} steps, mean return {mean:.1f}, highest {most:.0f}")


def test_an_observation_is_an_array_of_bits_as_in_minatar() -> None:
    minatar = pytest.importorskip("minatar")
    for game in GAMES:
        space, seen = spec_of(game).spaces[0], spec_of(game).make().reset(seed=0)[0]
        assert list(space.shape or ()) == minatar.Environment(game).state_shape()
        assert space.dtype == seen.dtype == np.bool_ and seen in space


@pytest.mark.parametrize(
    ("rules", "named"),
    [
        ({"game": "asterix"}, "env.kwargs.game=asterix"),
        ({"sticky_action_prob": 2}, r"sticky_action_prob=2 must be in \[0, 1\]"),
    ],
)
def test_rules_that_do_not_fit_are_refused_in_one_line(rules: dict[str, Any], named: str) -> None:
    assert_refused(replace(spec_of("breakout"), kwargs=rules), named)


def test_a_run_is_the_same_natively_step_by_step_and_resumed(tmp_path: Path) -> None:
    words = ["algo=ppo", "env=minatar_space_invaders", "env.max_episode_steps=30", "compute=serial", "vec.num_envs=8"]
    words += ["algo.num_steps=16", "algo.minibatch_size=64", "algo.hidden_sizes=[8]", "algo.eval_every_iterations=2"]
    assert_same_run_natively(words, "steps", 128, 256, tmp_path)
