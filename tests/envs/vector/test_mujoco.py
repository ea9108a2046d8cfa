"""vec=mujoco: Gymnasium's robots in batches, with Gymnasium's results to the last bit."""

import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from bindings import need
from conftest import Command, call_main, env_spec, kill_and_resume
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from vector_cases import actions_for, assert_same, make_fixture  # noqa: F401

import paddock.envs.vector.auto as auto_module
from paddock.envs.errors import ConfigError
from paddock.envs.mujoco.robots import ROBOTS
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Auto, MuJoCo, Serial, VectorMisuse

N = 5
SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("Ant-v5", {"include_cfrc_ext_in_observation": False, "main_body": "torso", "contact_force_range": [-0.5, 2.0]}),
    ("HalfCheetah-v5", {"frame_skip": 3, "ctrl_cost_weight": 0.7, "reset_noise_scale": 0.3}),
    ("Hopper-v5", {"terminate_when_unhealthy": False, "healthy_reward": 2, "healthy_z_range": [1.0, 1.3]}),
    ("Humanoid-v5", {"include_cvel_in_observation": False, "exclude_current_positions_from_observation": False}),
]


@pytest.fixture(autouse=True)
def packages() -> None:
    need("mujoco")


def robot(name: str, **changes: Any) -> EnvSpec:
    return env_spec(f"paddock.envs.bindings.mujoco:{name}", **changes)


def mujoco(num_envs: int = N, threads: int = 2) -> MuJoCo:
    return MuJoCo(num_envs=num_envs, threads=threads)


def test_all_of_gymnasiums_robots_are_supported() -> None:
    theirs = {
        id for id, one in gymnasium.registry.items() if "envs.mujoco" in str(one.entry_point) and id.endswith("5")
    }
    assert ROBOTS.keys() == theirs


@pytest.mark.parametrize(("name", "kwargs"), [*((name, {}) for name in ROBOTS), *SETTINGS])
def test_robots_equal_gymnasiums_bit_for_bit(name: str, kwargs: dict[str, Any], make: Any) -> None:
    env = robot(name, kwargs=kwargs, max_episode_steps=140)
    ours, parallel = (make(mujoco(threads=threads), env) for threads in (1, 2))
    theirs = SyncVectorEnv([env.make] * N, autoreset_mode=AutoresetMode.SAME_STEP)
    assert ours.observation_space == theirs.observation_space and ours.action_space == theirs.action_space
    assert_same(ours.reset(seed=5)[0], theirs.reset(seed=5)[0])
    parallel.reset(seed=5)
    for actions in actions_for(ours, 300):
        *batch, infos = ours.step(actions)
        assert_same(parallel.step(actions), (*batch, infos))
        *expected, others = theirs.step(actions)
        assert_same(batch, expected)
        assert_same(infos.get("final_obs"), others.get("final_obs"))
    theirs.close()


def test_keyed_episodes_equal_those_of_serial(make: Any) -> None:
    env = robot("Hopper-v5")
    few, many = make(Serial(num_envs=3), env), make(mujoco(64), env)
    first, _ = few.begin(7, [4, 0, 9])
    assert_same(first, many.begin(7, [4, 0, 9, *[1] * 61])[0][:3])
    for actions in actions_for(many, 100):
        expected, batch = few.step(actions[:3]), many.step(actions)
        assert_same(tuple(one[:3] for one in batch[:4]), expected[:4])


def test_chosen_environments_are_stepped_and_restarted(make: Any) -> None:
    env = robot("Ant-v5", max_episode_steps=4)
    vecs = [make(vec, env, autoreset=AutoresetMode.DISABLED) for vec in (Serial(num_envs=N), mujoco())]
    actions = actions_for(vecs[0], 1)[0]
    for vec in vecs:
        vec.reset(seed=10)
    for chosen in ([4, 0], [1], [3, 2, 1], [1], [1]):
        ids = np.array(chosen)
        for vec in vecs:
            vec.send(actions[ids], ids)
        expected, batch = (vec.recv(ids) for vec in vecs)
        assert_same(batch[:4], expected[:4])
    assert batch[3].tolist() == [True]  # by the time limit
    mask = np.isin(np.arange(N), [1, 3])
    seeds = [None, 77, None, None, None]  # the fourth continues its generator
    started = [vec.reset(seed=seeds, options={"reset_mask": mask})[0] for vec in vecs]
    assert_same(*started)
    assert_same(*(vec.step(actions)[:4] for vec in vecs))


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("name", ["Hopper-v5", "Ant-v5", "Humanoid-v5"])
def test_saved_state_continues_in_another_vector(name: str, keyed: bool, make: Any) -> None:
    env = robot(name, max_episode_steps=50)
    vec, other = make(mujoco(threads=1), env), make(mujoco(threads=2), env)
    vec.begin(2) if keyed else vec.reset(seed=2)
    actions = actions_for(vec, 120)
    for action in actions[:17]:
        vec.step(action)
    other.load_state_dict(vec.state_dict())
    for action in actions[17:]:
        assert_same(other.step(action), vec.step(action))
    with pytest.raises(VectorMisuse, match="other environments"):
        make(mujoco(N + 1), env).load_state_dict(vec.state_dict())


RUNS = {
    "ppo": "env.id=Hopper-v5 algo.num_steps=16 algo.minibatch_size=32 algo.groups=2 budget.iterations=40",
    "es": "env.id=Swimmer-v5 algo.population=8 algo.episode_cap=40 budget.iterations=12",
    "sac": "env.id=Reacher-v5 algo.learning_starts=64 algo.num_steps=8 algo.hidden_sizes=[16] algo.batch_size=16 "
    "algo.log_every_steps=64 budget.steps=1200",
}


@pytest.mark.parametrize("algo", RUNS)
def test_resumed_run_has_the_metrics_of_serial(algo: str, tmp_path: Path, start: Callable[..., Command]) -> None:
    whole, run = tmp_path / "whole", tmp_path / "run"
    words = [f"algo={algo}", "env=mujoco", *RUNS[algo].split(), "env.max_episode_steps=60", "algo.eval_episodes=1"]
    words += ["vec.num_envs=4", "checkpoint.every_s=0"]
    assert call_main(*words, "vec=serial", "compute=serial", f"run.dir={whole}") == 0
    begin = partial(start, *words, "vec=mujoco", "compute=serial", f"run.dir={run}")
    assert kill_and_resume(begin, run, kills=1, furthest=3, chance=random.Random(0)) > 0
    assert (run / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize("batched", [1.0, 3.0])
def test_auto_takes_batches_where_they_are_faster(batched: float, monkeypatch: pytest.MonkeyPatch) -> None:
    rate = {"Serial": 2.0, "MuJoCo": batched}
    monkeypatch.setattr(
        auto_module, "time_layouts", lambda spec, layouts: [rate[type(one).__name__] for one in layouts]
    )
    chosen = Auto(num_envs=4, restart=False, timeout_s=60.0).choose(robot("Ant-v5"), True, print)
    assert chosen["_target_"].rpartition(".")[2] == ("MuJoCo" if batched > 2 else "Serial")


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (env_spec("HalfCheetah-v4"), "does not support env.id=HalfCheetah-v4; use vec=serial"),
        (env_spec("user_envs:HalfCheetah-v5"), "vec=mujoco does not support"),
        (env_spec("Ant-v5", fresh=True), "set env.fresh=false"),
        (env_spec("Ant-v5", wrappers=[{"_target_": "gymnasium.wrappers.RescaleAction"}]), "cannot wrap"),
        (env_spec("Ant-v5", metrics=["x_position"]), "has no infos"),
        (env_spec("Ant-v5", kwargs={"legs": 6}), "rejects env.kwargs"),
    ],
)
def test_unsupported_environments_are_one_clear_line(env: EnvSpec, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        mujoco().check(env)
    assert "\n" not in str(caught.value)


def test_missing_batches_name_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "paddock.envs.mujoco.vector", raising=False)
    monkeypatch.setitem(sys.modules, "mujoco.batch", None)  # as in versions before 3.17
    with pytest.raises(ConfigError, match=r"needs mujoco>=3.17,<4 .* pip install 'paddock\[mujoco\]'"):
        mujoco().check(robot("Ant-v5"))
