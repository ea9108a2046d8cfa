"""Native environments behind the vector contract: one or many, saved or not, on any threads, the same bits."""

import gc
import os
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from conftest import call_main, env_spec
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from paddock.envs.errors import ConfigError
from paddock.envs.native import library
from paddock.envs.native.originals import NATIVE
from paddock.envs.native.settings import native_ids, native_task
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Auto, Native, Serial, VectorEnv, VectorMisuse

N = 19  # some lanes of any width are left over
POINTED = {"pit_gap": [0.2, 0.8], "stump_height": [0.1, 0.4], "stair_height": [0.1, 0.3], "roughness": 1.0}


def native(name: str, **changes: Any) -> EnvSpec:
    return env_spec(f"paddock.envs.native:paddock/Native{name}", **changes)


def has(name: str) -> bool:
    try:
        library.find_task(name)
    except (ConfigError, AssertionError):  # no library, or none of the name
        return False
    return True


CLASSIC = {
    "cartpole": native("CartPole-v1", max_episode_steps=30),
    "pendulum": native("Pendulum-v1", max_episode_steps=12),
    "acrobot": native("Acrobot-v1", max_episode_steps=15),
    "mountain_car": native("MountainCar-v0", max_episode_steps=18),
    "mountain_car_continuous": native("MountainCarContinuous-v0", max_episode_steps=21),
}
WALKERS = {
    "walker": native("BipedalWalker-v3", max_episode_steps=25),
    "hardcore": native("BipedalWalkerHardcore-v3", max_episode_steps=25),
    "encoded": native("Terrain-v0", kwargs=POINTED, max_episode_steps=25),
    "fixed": native("Terrain-v0", kwargs=POINTED | {"ground": 3}, max_episode_steps=25),
}
FOUND = {name: task for name, task in CLASSIC.items() if has(name)}
FOUND |= WALKERS if has("walker") else {}
FEW = {name: FOUND[name] for name in ("cartpole", "pendulum", "hardcore", "fixed") if name in FOUND}
every_task = pytest.mark.parametrize("task", FOUND.values(), ids=FOUND)
each_task = pytest.mark.parametrize("task", FEW.values(), ids=FEW)  # of choices, of numbers, on drawn and given grounds
CARTPOLE = CLASSIC["cartpole"]


@pytest.fixture
def make() -> Iterator[Callable[..., Any]]:
    """Make vectors; all are closed after the test."""
    made: list[VectorEnv] = []

    def begin(env: EnvSpec, *arguments: Any, num_envs: int = N, threads: int = 1, **named: Any) -> Any:
        made.append(Native(num_envs=num_envs, threads=threads).make(env, *arguments, **named))
        return made[-1]

    yield begin
    for vec in made:
        vec.close()


def plain(value: Any) -> Any:
    """What a vector gave, in a form that compares by value, bit for bit."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.dtype.str, value.shape, value.tobytes()
    return [plain(item) for item in value] if isinstance(value, np.ndarray | list | tuple) else value


def actions_for(vec: VectorEnv, steps: int, seed: int = 0) -> list[Any]:
    vec.action_space.seed(seed)
    return [vec.action_space.sample() for _ in range(steps)]


def play(vec: VectorEnv, actions: list[Any]) -> list[Any]:
    return [plain(vec.step(action)) for action in actions]


# The same bits


@every_task
def test_one_after_another_gives_what_all_at_once_give(make: Any, task: EnvSpec) -> None:
    ours, serial = make(task), Serial(num_envs=N).make(task)
    try:
        assert ours.observation_space == serial.observation_space and ours.action_space == serial.action_space
        actions = actions_for(ours, 60)
        assert plain(ours.reset(seed=5)) == plain(serial.reset(seed=5))
        assert play(ours, actions) == play(serial, actions)
        assert plain(ours.begin(7, range(N))) == plain(serial.begin(7, range(N)))
        keyed = [ours.step(action) for action in actions]
        assert plain(keyed) == play(serial, actions)
        assert sum(int(infos["_final_obs"].sum()) for *_, infos in keyed if "final_obs" in infos) > N
    finally:
        serial.close()


@pytest.mark.skipif("cartpole" not in FOUND, reason="needs the compiled library")
def test_a_vector_that_is_dropped_leaves_no_thread() -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/task"))
    venv = Native(num_envs=64, threads=3).make(CLASSIC["cartpole"])
    venv.reset(seed=0)
    venv.step(np.zeros(64, int))
    assert len(os.listdir("/proc/self/task")) == before + 2
    del venv
    gc.collect()
    assert len(os.listdir("/proc/self/task")) == before


@each_task
def test_the_number_of_threads_changes_no_number(make: Any, task: EnvSpec) -> None:
    one, *others = (make(task, num_envs=70, threads=threads) for threads in (1, 2, 5))
    actions = actions_for(one, 40)
    expected = plain(one.begin(3)), play(one, actions)
    for other in others:
        assert (plain(other.begin(3)), play(other, actions)) == expected


@every_task
def test_the_width_of_registers_changes_no_number(make: Any, task: EnvSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    usable = [name for name in library.SETS if library.load().has_set(name.encode())]
    played = []
    for name in usable:
        monkeypatch.setenv(library.SET_VARIABLE, name)
        vec = make(replace(task, max_episode_steps=40), num_envs=37)
        begun = plain(vec.begin(13))
        batches = play(vec, actions_for(vec, 90))
        assert vec.arrays.episode.min() >= 2
        played.append((begun, batches, plain(vec.state_dict())))
    assert all(other == played[0] for other in played[1:])


@each_task
def test_a_state_saved_within_episodes_goes_on_with_the_same_bits(make: Any, task: EnvSpec) -> None:
    vec = make(task)
    actions = actions_for(vec, 60)
    for start in (lambda: vec.reset(seed=8), lambda: vec.begin(8)):
        start()
        play(vec, actions[:20])
        vec.send(actions[20][:3], slice(0, 3))  # and not yet received
        state = pickle.loads(pickle.dumps(vec.state_dict()))
        rest = [plain(vec.recv(slice(0, 3))), *play(vec, actions[21:])]
        for other in (vec, make(task)):
            other.load_state_dict(state)
            assert plain(other.state_dict()) == plain(state)
            assert [plain(other.recv(slice(0, 3))), *play(other, actions[21:])] == rest


@each_task
def test_the_caller_may_restart_what_has_ended(make: Any, task: EnvSpec) -> None:
    same, disabled = make(task), make(task, autoreset=AutoresetMode.DISABLED)
    same.reset(seed=2), disabled.reset(seed=2)
    ends = 0
    for action in actions_for(same, 60):
        obs, reward, terminated, truncated, infos = same.step(action)
        last, *rest, said = disabled.step(action)
        assert plain(rest) == plain([reward, terminated, truncated]) and said == {}
        ended = terminated | truncated
        if ended.any():
            np.testing.assert_array_equal(last[ended], np.stack(infos["final_obs"][ended]))
            last, _ = disabled.reset(options={"reset_mask": ended})
            ends += int(ended.sum())
        np.testing.assert_array_equal(last, obs)
    assert ends > N


# Gymnasium's task


def test_a_limit_of_steps_is_the_recipes_or_the_registered_one() -> None:
    limits = [500, 200, 500, 200, 999, 1600, 2000, 1600, 2000, 2000]
    for id, limit in zip(native_ids(), limits, strict=True):
        assert native_task(env_spec(id)).time_limit == limit == gymnasium.spec(id.rpartition(":")[2]).max_episode_steps
        assert native_task(env_spec(id, max_episode_steps=7)).time_limit == 7
    for id, source in NATIVE.items():
        single, own = native_task(env_spec(f"paddock.envs.native:{id}")), native_task(env_spec(source))
        assert single.time_limit == own.time_limit and single.observation_space == own.observation_space


@each_task
def test_a_single_environment_is_gymnasiums_kind(task: EnvSpec) -> None:
    env = gymnasium.make(task.id, disable_env_checker=True, **task.arguments)
    check_env(env.unwrapped, skip_render_check=True)
    first = env.reset(seed=3)[0]
    env.action_space.seed(0)
    for _ in range(9):
        env.step(env.action_space.sample())
    np.testing.assert_array_equal(env.reset(seed=3)[0], first)
    env.close()
    env.close()


# Bad input


WRONG = np.zeros(N, int)
WRONG[7] = 2


@pytest.mark.parametrize(
    ("misuse", "named"),
    [
        (lambda vec: vec.step(np.zeros(N, int)), "send: .* call reset first"),
        (lambda vec: (vec.reset(), vec.step(WRONG)), "action of environment 7 is 2; pass a choice of 0 to 1"),
        (lambda vec: vec.load_state_dict(vec.state_dict() | {"task": "chess"}), "a state of chess"),
        (lambda vec: (vec.close(), vec.close(), vec.reset()), "reset: .* closed"),
    ],
)
def test_misuse_is_one_clear_line(make: Any, misuse: Any, named: str) -> None:
    with pytest.raises(VectorMisuse, match=named) as caught:
        misuse(make(env_spec("CartPole-v1")))
    assert "\n" not in str(caught.value)


@each_task
def test_a_wrong_action_changes_nothing(make: Any, task: EnvSpec) -> None:
    vec = make(task)
    continuous = vec.arrays.action.ndim > 1
    vec.reset(seed=0)
    actions = actions_for(vec, 10)
    play(vec, actions)
    for wrong in (np.nan, np.inf, -np.inf) if continuous else (-1, 99):
        action = actions[0].copy()
        action[12] = wrong
        before = vec.state_dict()
        for attempt in (lambda a=action: vec.step(a), lambda a=action: (vec.send(a), vec.recv())):
            with pytest.raises(VectorMisuse, match="environment 12"):
                attempt()
        after = vec.state_dict()
        before["arrays"].pop("action"), after["arrays"].pop("action")
        assert plain(after) == plain(before)
    vec.step(actions[0])


@pytest.mark.parametrize(
    ("env", "named"),
    [
        (
            env_spec("LunarLander-v3"),
            r"LunarLander-v3 has no native version; available: CartPole-v1, .*Terrain-v0",
        ),
        (
            env_spec("CartPole-v1", wrappers=[{"_target_": "gymnasium.wrappers.ClipReward"}]),
            r"env.wrappers=\['gym.*ClipR",
        ),
        (env_spec("Acrobot-v1", kwargs={"gravity": 3}), "does not take it; allowed: none"),
        (env_spec("Pendulum-v1", kwargs={"g": float("nan")}), "kwargs.g=nan must be a finite number"),
        (env_spec("CartPole-v1", fresh=True), "env.fresh=true: the native version of CartPole-v1"),
    ],
)
def test_what_has_no_native_version_is_one_clear_line(env: EnvSpec, named: str) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        Native(num_envs=2, threads=1).make(env)
    assert "\n" not in str(caught.value)


# The recipe


def test_auto_offers_native_only_where_it_gives_the_same_numbers() -> None:
    auto = Auto(num_envs=4, restart=False, timeout_s=60.0)
    said: list[str] = []
    section = auto.choose(CARTPOLE, True, said.append)
    assert section == {"_target_": "paddock.envs.vector.Native", "num_envs": 4, "threads": 1}
    assert said == ["vec=auto: native (1 thread; worker processes already use all cores)"]
    walker = env_spec("paddock.envs.bipedal:paddock/BipedalWalkerHardcore-v3")
    assert auto.choose(walker, True, said.append)["_target_"] == "paddock.envs.vector.Native"
    assert auto.choose(env_spec("BipedalWalker-v3"), True, said.append)["_target_"] == "paddock.envs.vector.Serial"
    said.clear()
    assert auto.choose(env_spec("CartPole-v1"), True, said.append)["_target_"] == "paddock.envs.vector.Serial"
    assert said[0].startswith("vec=auto: vec=native would be much faster")
    said.clear()
    assert auto.choose(env_spec("Blackjack-v1"), True, said.append)["_target_"] == "paddock.envs.vector.Serial"
    assert len(said) == 1


@pytest.mark.parametrize("choice", ["algo=es env=cartpole", "experiment=poet_laptop"])
def test_without_the_library_it_says_so_before_anything_is_made(
    choice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(library, "load", library.load.__wrapped__)  # anew
    monkeypatch.setattr(library, "FOLDER", tmp_path)
    run = tmp_path / "run"
    assert call_main(*choice.split(), "vec=native", "compute=serial", f"run.dir={run}") == 2
    error = capsys.readouterr().err
    assert "which were not built" in error and len(error.strip().splitlines()) == 1
    assert not run.exists()
