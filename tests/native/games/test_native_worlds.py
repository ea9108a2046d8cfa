"""Worlds in C against the same worlds in Python: every byte of every row, whoever lives, acts and ends."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import env_spec
from gymnasium.vector import AutoresetMode
from native_laws import (  # noqa: F401, fixtures
    assert_auto_takes,
    assert_refused,
    assert_same_in_any_company,
    assert_same_run_natively,
    choose,
    flatten,
    maker,
    native,
)

from paddock.envs.native.settings import native_task
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import VectorMisuse
from paddock.envs.vector.serial import SerialVectorEnv

CONNECT4, TICTACTOE = "pettingzoo.classic.connect_four_v3:env", "pettingzoo.classic.tictactoe_v3:env"
SNAKE, SPREAD = (f"paddock.envs.tasks.{name}:{name.title()}" for name in ("snake", "spread"))
FIELD = {"snakes": 4, "width": 9, "height": 8, "food": 9, "longest": 6, "absence": 3, "max_steps": 35}
NARROW = {"snakes": 2, "width": 4, "height": 4, "food": 2, "longest": 3, "absence": 1, "max_steps": 1000}
PLANE = {"N": 3, "local_ratio": 0.5, "max_cycles": 25}
CROWD = {"N": 9, "local_ratio": 0.3, "max_cycles": 14}
GAMES = {
    "connect4": (CONNECT4, {}),
    "tictactoe": (TICTACTOE, {}),
    "snake": (SNAKE, FIELD),
    "narrow": (SNAKE, NARROW),
    "spread": (SPREAD, PLANE),
    "crowd": (SPREAD, CROWD),
}
W, STEPS, NIGHTLY = 5, 80, 20_000


def recipe(game: str, **changes: Any) -> EnvSpec:
    id, kwargs = GAMES[game]
    if id.startswith("pettingzoo"):
        pytest.importorskip("pettingzoo")
    return env_spec(id, **({"kwargs": kwargs} | changes))


def play_both(make: Any, spec: EnvSpec, steps: int, seed: int, autoreset: AutoresetMode) -> int:
    """Play worlds here and there; how many ended."""
    theirs, ours = SerialVectorEnv(spec, W, autoreset), make(spec, W, autoreset)
    draw, ended = np.random.default_rng(seed), 0
    given = [venv.reset(seed=seed) if seed % 2 else venv.begin(seed, range(W)) for venv in (ours, theirs)]
    assert flatten(given[0]) == flatten(given[1])
    for step in range(steps):
        actions = choose(ours, draw, step)
        some = np.sort(draw.permutation(W)[:2]) if step % 5 == 4 else np.arange(W)
        taken = (some[:, None] * ours.seats + np.arange(ours.seats)).ravel()
        for venv in (ours, theirs):
            venv.send(actions[taken], taken)
        own, other = ours.recv(), theirs.recv()
        assert flatten(own) == flatten(other), step
        ended += int(own[4]["over"].sum())
        if autoreset is AutoresetMode.DISABLED and own[4]["over"].any():
            mask = np.zeros(W, np.bool_)
            mask[some[own[4]["over"]]] = True
            options = {"reset_mask": mask.repeat(ours.seats)}
            assert flatten(ours.reset(options=options)) == flatten(theirs.reset(options=options))
    for name in ("running_return", "running_length", "episode"):
        assert getattr(ours.arrays, name).tobytes() == getattr(theirs._table.arrays, name).tobytes(), name
    theirs.close()
    return ended


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("autoreset", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED], ids=["restarts", "waits"])
def test_every_byte_is_the_world_s_in_python(make: Any, game: str, autoreset: AutoresetMode) -> None:
    assert play_both(make, recipe(game), STEPS, 2 + (game == "narrow"), autoreset) > 4


@pytest.mark.parametrize("game", ["connect4", "snake"])
def test_a_limit_cuts_off_whoever_lives(make: Any, game: str) -> None:
    assert play_both(make, recipe(game, max_episode_steps=8), 60, 1, AutoresetMode.SAME_STEP) > 4


@pytest.mark.nightly
@pytest.mark.parametrize("game", GAMES)
def test_many_games_are_the_world_s_in_python(make: Any, game: str) -> None:
    ended = play_both(make, recipe(game), NIGHTLY, 4, AutoresetMode.SAME_STEP)
    print(f"{ended} worlds of {game} ended")


@pytest.mark.parametrize("game", ["connect4", "tictactoe", "narrow", "spread"])
def test_saved_restored_and_in_any_company_the_same_bits(make: Any, game: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_same_in_any_company(make, recipe(game), 40, monkeypatch)


def test_only_choices_of_acting_agents_are_checked(make: Any) -> None:
    ours = make(recipe("connect4"), 2)
    ours.begin(0)
    ours.step(np.array([3, -9, 3, 99]))
    assert ours.arrays.lives.acts.tolist() == [False, True] * 2
    with pytest.raises(VectorMisuse, match=r"the action of seat 1 of world 1 is 7; pass a choice of 0 to 6"):
        ours.step(np.array([0, 0, 0, 7]))
    assert ours.arrays.running_length.tolist() == [1, 0, 1, 0]


def test_a_world_that_is_over_waits_for_its_reset(make: Any) -> None:
    ours = make(recipe("tictactoe"), 2, AutoresetMode.DISABLED)
    ours.begin(0)
    for _ in range(2):  # the second one finds the field taken
        *_, terminated, truncated, infos = ours.step(np.array([4, 4, 0, 0]))
    assert terminated.all() and truncated.all() and infos["over"].all()
    assert infos["final_info"]["episode"]["r"].tolist() == [0, -1, 0, -1]
    with pytest.raises(VectorMisuse, match=r"environment 0 has ended; reset it first"):
        ours.step(np.zeros(4, np.int64))
    ours.reset(options={"reset_mask": np.array([False, False, True, True])})
    assert ours.arrays.lives.acts.tolist() == [False, False, True, False]


@pytest.mark.parametrize("game", ["snake", "spread"])
def test_a_run_is_the_same_natively_step_by_step_and_resumed(tmp_path: Path, game: str) -> None:
    recipe(game)
    words = ["algo=ppo", f"env={game}", "compute=serial", "vec.num_envs=4", "algo.num_steps=8"]
    words += [
        "algo.minibatch_size=64",
        "algo.hidden_sizes=[8]",
        "algo.epochs=1",
        "algo.eval_every_iterations=2",
        "algo.eval_episodes=1",
    ]
    words += ["+env.max_episode_steps=20"] if game == "snake" else []
    assert_same_run_natively(words, "iterations", 1, 4, tmp_path)


def test_auto_takes_a_world_whose_numbers_are_the_original_s() -> None:
    spec = recipe("snake")
    task = native_task(spec)
    assert task.exact and task.observation_space == spec.roles[0].observation_space and task.time_limit is None
    assert_auto_takes(spec)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"agent_id_feature": True}, "env.agent_id_feature: the native version of .* cannot change observations"),
        ({"kwargs": FIELD | {"longest": 9}}, "may fill 45 cells, but half of a 9 x 8 field has 36"),
    ],
)
def test_what_has_no_native_version_is_refused_in_one_line(changes: dict[str, Any], named: str) -> None:
    assert_refused(recipe("snake", **changes), named)
