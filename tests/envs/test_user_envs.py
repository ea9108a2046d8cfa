"""Environments as users write them train, or end in one line that names them."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import user_envs
from conftest import ROOT, call_main, env_spec, rows

from paddock.algos.networks.heads.deterministic import Bounded, Tanh, Unbounded
from paddock.algos.networks.heads.gaussian import Gaussian
from paddock.algos.networks.heads.numbers import Numbers
from paddock.algos.networks.heads.squashed_gaussian import SoftGaussian, SquashedGaussian
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import EnvError, MultiprocessVectorEnv, SerialVectorEnv, VectorEnv

PPO = [
    "algo=ppo",
    "env=gymnasium",
    "vec.num_envs=2",
    "algo.num_steps=32",
    "algo.hidden_sizes=[8]",
    "algo.minibatch_size=32",
]
ES = ["algo=es", "env=gymnasium", "algo.population=4", "algo.hidden_sizes=[8]", "algo.eval_episodes=1"]


def make(vector: type[VectorEnv], spec: EnvSpec) -> VectorEnv:
    if vector is SerialVectorEnv:
        return SerialVectorEnv(spec, 2)
    return MultiprocessVectorEnv(spec, 2, 1, 2, restart=False, timeout_s=60.0)


@pytest.mark.parametrize(
    "words",
    [
        [*PPO, "compute=serial", "budget.iterations=2"],
        [*PPO, "compute=serial", "budget.iterations=2", "algo.rollouts=prefetch"],
        [*ES, "compute=local", "compute.workers=1", "budget.iterations=1"],
    ],
    ids=["serial", "prefetch", "local"],
)
def test_processes_signals_and_event_loops_of_environments_work(words: list[str], tmp_path: Path) -> None:
    asyncio.set_event_loop_policy(None)  # as in a new process: an earlier test of this one may have run a loop
    assert call_main(*words, "env.id=user_envs:Simulator", "env.fresh=false", f"run.dir={tmp_path}/run") == 0
    assert rows(tmp_path / "run")[0]["train/return_mean"] == 10


def test_a_run_survives_a_change_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    wanderer = [*PPO, "env.id=user_envs:Wanderer", "compute=serial", "run.dir=run"]
    for iterations in (1, 2):
        monkeypatch.chdir(tmp_path)
        assert call_main(*wanderer, f"budget.iterations={iterations}") == 0
    assert rows(tmp_path / "run")[-1]["iteration"] == 2 and Path.cwd() != tmp_path
    assert np.geterr()["over"] != "raise"


@pytest.mark.parametrize("vector", [SerialVectorEnv, MultiprocessVectorEnv])
def test_any_exception_of_an_environment_is_an_error_that_names_it(vector: type[VectorEnv]) -> None:
    venv = make(vector, env_spec("user_envs:Impatient"))
    try:
        venv.reset(seed=0)
        with pytest.raises(EnvError, match=r"environment 0 .* raised in step: TimedOut: the simulator"):
            venv.step(np.zeros(2, np.int64))
    finally:
        venv.close()


@pytest.mark.parametrize(
    ("env", "code", "said"),
    [
        ("Unmade", 2, "ValueError: invalid literal for int()"),
        ("Distant", 1, "environment 0 returned an observation with 1.79"),
    ],
)
def test_the_fault_of_an_environment_is_its_own(
    env: str, code: int, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = [*PPO, f"env.id=user_envs:{env}", "compute=serial", "budget.iterations=1", f"run.dir={tmp_path}/run"]
    assert call_main(*words) == code
    err = capfd.readouterr().err
    assert said in err.splitlines()[-1] and ("user_envs.py" in err) == (env == "Unmade")


@pytest.mark.parametrize("kind", [Gaussian, Bounded, Tanh, Unbounded, SquashedGaussian, SoftGaussian])
def test_saturated_actions_stay_within_bounds_of_double_precision(kind: type[Numbers]) -> None:
    space = user_envs.Narrow.action_space
    assert isinstance(space, gymnasium.spaces.Box)
    head = kind.of(space)
    for inside in (-1.0, 1.0):
        (action,) = head.to_env(np.full((1, head.components), inside, np.float32))
        assert space.contains(action)


@pytest.mark.parametrize("shape", [[3, 0], [0], []])
@pytest.mark.parametrize("vector", [SerialVectorEnv, MultiprocessVectorEnv])
def test_observations_of_no_size_or_no_dimension_are_arrays(vector: type[VectorEnv], shape: list[int]) -> None:
    venv = make(vector, env_spec("user_envs:Shaped", kwargs={"shape": shape}))
    try:
        assert venv.reset(seed=0)[0].shape == (2, *shape)
        obs, _, _, _, infos = venv.step(np.zeros(2, np.int64))
        assert obs.shape == (2, *shape) and obs.dtype == np.float32
        assert all((final.shape, final.dtype) == (tuple(shape), np.float32) for final in infos["final_obs"])
    finally:
        venv.close()


@pytest.mark.parametrize("vector", [SerialVectorEnv, MultiprocessVectorEnv])
def test_the_seeds_of_a_vector_are_those_of_its_environments(vector: type[VectorEnv]) -> None:
    venv = make(vector, env_spec("user_envs:Offset"))
    try:
        venv.reset(seed=[3, 5])
        assert venv.np_random_seed == (3, 5)
    finally:
        venv.close()


def test_a_callable_argument_of_a_wrapper_is_given_by_its_name(tmp_path: Path) -> None:
    words = [*PPO, "env.id=user_envs:Steps", "compute=serial", "budget.iterations=1", f"run.dir={tmp_path}/run"]
    negative = "env.wrappers=[{_target_: gymnasium.wrappers.TransformReward, func: numpy.%s}]"
    assert call_main(*words, negative % "negative") == 0
    assert rows(tmp_path / "run")[0]["train/return_mean"] == -10
    assert call_main(*words, negative % "negativ", f"run.dir={tmp_path}/other") == 2


def test_lost_statistics_of_a_wrapper_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    normalize = "env.wrappers=[{_target_: gymnasium.wrappers.NormalizeObservation}]"
    offset = [*PPO, "env.id=user_envs:Offset", "compute=serial", "vec=serial", "algo.num_steps=48"]
    for wrapper, reported in (("env.wrappers=[]", False), (normalize, True)):
        for iterations in (1, 2):
            caplog.clear()
            words = [wrapper, f"budget.iterations={iterations}", f"run.dir={tmp_path}/{reported}"]
            assert call_main(*offset, *words, "env.fresh=false") == 0
            assert ("statistics in evaluations" in caplog.text) == reported
        assert ("replayed actions led to other observations" in caplog.text) == reported


@pytest.mark.real_start
def test_a_thread_left_behind_does_not_keep_a_command_from_ending(tmp_path: Path) -> None:
    words = [*PPO, "env.id=user_envs:Lingering", "compute=serial", "budget.iterations=1", f"run.dir={tmp_path}/run"]
    ended = subprocess.run(
        [sys.executable, "-m", "paddock", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0 and "thread left-behind" in ended.stderr


@pytest.mark.real_start
def test_an_environment_of_the_script_itself_trains_on_local_workers(tmp_path: Path) -> None:
    script = ROOT / "tests/user_envs.py"
    subprocess.run([sys.executable, script], cwd=tmp_path, check=True, capture_output=True, timeout=120)
