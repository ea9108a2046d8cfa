"""Environments of others, each where its packages are: they train, and an episode depends on its seed alone."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from bindings import MODULES, need
from conftest import call_main, env_section, last_of_each, rows

from paddock.envs.spec import EnvSpec
from paddock.health.env_checks import check_env

pytestmark = pytest.mark.slow

PPO = [
    "algo=ppo",
    "algo.hidden_sizes=[8]",
    "algo.num_steps=8",
    "algo.minibatch_size=16",
    "algo.epochs=1",
    "vec.num_envs=2",
]
LITTLE = ["budget.iterations=2", "algo.eval_every_iterations=1", "algo.eval_episodes=1", "algo.eval_max_steps=10"]


@pytest.fixture(params=sorted(MODULES))
def option(request: pytest.FixtureRequest) -> str:
    """An option of conf/env whose packages are here."""
    need(request.param)
    return str(request.param)


def test_it_trains(option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # ViZDoom and MuJoCo leave files where they run
    assert call_main(f"env={option}", *PPO, *LITTLE, "compute=serial", f"run.dir={tmp_path / 'run'}") == 0
    written = rows(tmp_path / "run")
    assert [row["step"] for row in written][-1] == 32 and all("eval/return_mean" in row for row in written[1:])


def test_an_episode_depends_on_its_seed_alone(option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    section = env_section(option)
    del section["_target_"]
    spec = EnvSpec(**section)
    for recipe in dict.fromkeys([spec, spec.in_training()]):
        findings = dict(check_env(recipe, 60 if option == "crafter" else 150))
        assert {"seed", "history", "others", "speed"} <= findings.keys()
        # What is random may never be rewarded, nor come to an end; all else must be well.
        wrong = {name: str(one) for name, one in findings.items() if one.level != "ok"}
        assert wrong.keys() <= {"rewards", "ends"}, wrong


@pytest.mark.parametrize("world", ["cooperative_pong", "knights_archers_zombies"])
def test_worlds_of_images_and_of_rows_train(world: str, tmp_path: Path) -> None:
    need(world)
    words = [
        f"env={world}",
        *PPO,
        *LITTLE,
        "vec.num_envs=1",
        "algo.num_steps=4",
        "algo.minibatch_size=8",
        "algo.eval_max_steps=3",
    ]
    words = last_of_each(words)
    assert call_main(*words, "compute=serial", f"run.dir={tmp_path / 'run'}") == 0
    seats = {"cooperative_pong": 2, "knights_archers_zombies": 4}[world]
    written = rows(tmp_path / "run")
    losses = [row["ppo/value_loss"] for row in written if "ppo/value_loss" in row]
    assert written[-1]["step"] == 8 * seats and len(losses) == 2 and np.isfinite(losses).all()


def test_no_action_of_minatars_is_repeated_in_the_next_episode() -> None:
    need("minatar")
    section = env_section("minatar")
    del section["_target_"]
    spec = replace(EnvSpec(**section), kwargs={"sticky_action_prob": 0.5, "difficulty_ramping": True})

    def play(env: gymnasium.Env, seed: int) -> list[Any]:
        actions = np.random.default_rng(seed).integers(3, size=100).tolist()
        seen: list[Any] = [env.reset(seed=seed)[0].tobytes()]
        for action in actions:
            observation, reward, over, _, _ = env.step(action)
            seen.append((observation.tobytes(), reward))
            if over:
                break
        return seen

    leaks = replace(spec, wrappers=())
    lived, leaking = spec.make(), leaks.make()
    same = [
        (play(lived, seed) == play(spec.make(), seed), play(leaking, seed) == play(leaks.make(), seed))
        for seed in range(30)
    ]
    assert all(ours for ours, _ in same) and not all(theirs for _, theirs in same)
