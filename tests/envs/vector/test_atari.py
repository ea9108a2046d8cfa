"""Atari: one game at a time and ALE's own vector environment give the same bits, and any episode can be entered."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import call_main, env_section, rows
from gymnasium.vector import AutoresetMode
from vector_cases import assert_same

from paddock.envs.errors import ConfigError
from paddock.envs.spec import EnvSpec
from paddock.envs.stacks import Stack
from paddock.envs.vector import Atari, Serial, VectorMisuse
from paddock.envs.vector.contract import keyed_seed

pytest.importorskip("ale_py", reason="ale-py is not installed: pip install -e .[atari]")
pytest.importorskip("cv2", reason="opencv is not installed: pip install -e .[atari]")

pytestmark = pytest.mark.slow

N = 3
DISABLED = AutoresetMode.DISABLED


def atari(option: str = "atari_nature", game: str = "breakout", **changes: Any) -> EnvSpec:
    keys = env_section(option)
    del keys["_target_"]
    spec = EnvSpec(**keys)
    return replace(spec, kwargs=spec.arguments | {"game": game}, **changes)


def ale(num_envs: int = N) -> Atari:
    return Atari(num_envs=num_envs, threads=2, keyed=True)


def actions_for(venv: Any, steps: int, seed: int = 0) -> list[Any]:
    return list(np.random.default_rng(seed).integers(venv.single_action_space.n, size=(steps, venv.num_envs)))


@pytest.mark.parametrize(
    "spec",
    [
        atari(max_episode_steps=60),
        atari().in_training(),
        atari("atari_machado", "seaquest", max_episode_steps=40).in_training(),
    ],
    ids=["nature", "nature-training", "machado"],
)
def test_ales_vector_gives_what_one_game_at_a_time_gives(spec: EnvSpec) -> None:
    with closing(Serial(num_envs=N).make(spec)) as serial, closing(ale().make(spec)) as other:
        assert other.observation_space == serial.observation_space and other.action_space == serial.action_space
        assert other.keyed and other.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
        actions, ends = actions_for(serial, 90), 0
        assert_same(other.begin(7, [0, 4, 2]), serial.begin(7, [0, 4, 2]))
        for action in actions:
            got = other.step(action)
            assert_same(got, serial.step(action))
            ends += int((got[2] | got[3]).sum())
        assert_same(other.reset(seed=5), serial.reset(seed=5))
        for action in actions[:30]:
            assert_same(other.step(action), serial.step(action))
        assert ends >= 2


@pytest.mark.parametrize("vec", [Serial(num_envs=N), ale()], ids=["serial", "atari"])
def test_a_key_enters_any_episode(vec: Any) -> None:
    with closing(vec.make(atari().in_training())) as venv:
        venv.begin(7)
        number, started = np.zeros(N, int), np.zeros((N, 4, 84, 84))
        for action in actions_for(venv, 70):
            observation, _, terminated, _, _ = venv.step(action)
            number += terminated
            started[terminated] = observation[terminated]
        assert number.min() >= 1
        assert_same(venv.begin(7, number)[0], started.astype(np.uint8))


def test_games_may_follow_from_the_first_ones_seed() -> None:
    """Which is what ALE does by itself."""
    spec, quick = atari().in_training(), Atari(num_envs=N, threads=2, keyed=False)
    with closing(Serial(num_envs=N).make(spec)) as serial, closing(quick.make(spec)) as venv:
        assert not venv.keyed
        seeds = [keyed_seed(7, i, 0) for i in range(N)]
        assert_same(venv.begin(7)[0], serial.reset(seed=seeds)[0])
        ends = 0
        for action in actions_for(venv, 70):
            got = venv.step(action)
            assert_same(got, serial.step(action))
            ends += int(got[2].sum())
        assert ends >= 3 and venv.state_dict() is None


def test_games_are_saved_in_the_midst_and_go_on_in_another_vector() -> None:
    spec = atari().in_training()
    with closing(ale().make(spec)) as venv, closing(ale().make(spec)) as other:
        venv.begin(3)
        actions = actions_for(venv, 90)
        for action in actions[:60]:
            venv.step(action)
        state = venv.state_dict()
        assert state is not None
        assert len(set(state["length"])) > 1 and len(state["actions"]) == state["length"].sum()
        other.begin(99)
        other.step(actions[0])
        other.send(actions[1])  # nobody receives it
        other.load_state_dict(state)
        assert_same(other.state_dict(), state)
        for action in actions[60:]:
            assert_same(other.step(action), venv.step(action))
        with pytest.raises(VectorMisuse, match="got keys"):
            other.load_state_dict({"x": 1})


def test_the_caller_restarts_chosen_games() -> None:
    spec = atari(max_episode_steps=4)
    with (
        closing(Serial(num_envs=N).make(spec, autoreset=DISABLED)) as serial,
        closing(ale().make(spec, autoreset=DISABLED)) as other,
    ):
        mask = {"reset_mask": np.array([False, True, False])}
        with pytest.raises(VectorMisuse, match="has no episode yet"):
            other.reset(seed=1, options=mask)
        actions = actions_for(serial, 8)
        assert_same(other.reset(seed=1), serial.reset(seed=1))
        for action in actions[:2]:
            assert_same(other.step(action), serial.step(action))
        assert_same(other.reset(seed=[1, 8, 1], options=mask)[0], serial.reset(seed=[1, 8, 1], options=mask)[0])
        for action in actions[2:4]:
            assert_same(other.step(action), serial.step(action))
        with pytest.raises(VectorMisuse, match=r"environments \[0, 2\] have ended; restart them"):
            other.step(actions[0])
        other.reset(seed=0, options={"reset_mask": np.array([True, False, True])})
        assert other.step(actions[0])[3].tolist() == [False, False, False]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"id": "CartPole-v1", "kwargs": {}}, "choose env=atari_nature"),
        ({"wrappers": ({"_target_": "gymnasium.wrappers.TransformReward"},)}, "cannot wrap the environments"),
        ({"fresh": True}, "cannot rebuild an environment for every episode"),
        ({"kwargs": atari().arguments | {"game": "pongg"}}, "game=pongg is not a game; did you mean 'pong'"),
        ({"kwargs": atari().arguments | {"frameskip": 0}}, "got frameskip=0.*at least 1"),
    ],
    ids=["id", "wrapper", "fresh", "game", "frameskip"],
)
def test_a_recipe_that_ale_cannot_play_is_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        ale().check(replace(atari(), **changes))


def test_a_run_resumes_to_the_same_bytes_and_matches_single_games(tmp_path: Path) -> None:
    game = ["env=atari_nature", "env.kwargs.game=breakout", "vec.num_envs=2", "compute=serial"]
    small = ["algo=ppo", "algo.hidden_sizes=[8]", "algo.num_steps=24", "algo.minibatch_size=16", "algo.epochs=1"]
    little = ["algo.eval_every_iterations=2", "algo.eval_episodes=1", "algo.eval_max_steps=20"]
    line = [*game, *small, *little]
    for folder, bounds, vec in (("once", [4], "atari"), ("twice", [2, 4], "atari"), ("serial", [4], "serial")):
        for iterations in bounds:
            code = call_main(*line, f"vec={vec}", f"budget.iterations={iterations}", f"run.dir={tmp_path / folder}")
            assert code == 0
    once = rows(tmp_path / "once")
    assert rows(tmp_path / "twice") == once == rows(tmp_path / "serial")
    assert any("train/return_mean" in row for row in once)  # episodes ended, and others were in their midst


def test_its_stack_says_what_observations_are() -> None:
    spec = atari().in_training()
    stack = spec.made.stack
    assert stack == Stack(4, zeros=True)
    with closing(Serial(num_envs=1).make(spec)) as venv:
        before, _ = venv.begin(7, [0])
        assert not before[0, :-1].any() and before[0, -1].any()
        begun = 0
        for action in actions_for(venv, 300):
            obs, _, terminated, truncated, _ = venv.step(action)
            if terminated[0] or truncated[0]:
                assert not obs[0, :-1].any()
                begun += 1
            else:
                assert np.array_equal(obs[0, :-1], before[0, 1:])
            before = obs.copy()
        assert begun
