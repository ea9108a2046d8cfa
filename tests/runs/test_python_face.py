"""`import paddock`: runs from Python are those of the command, and policies act on what environments give."""

import asyncio
import inspect
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from conftest import ROOT, TINY, assert_same_run, call_main, deterministic, final_state, rows, wait_until
from gymnasium.vector.utils import batch_space
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

import paddock
from paddock.algos.common.keys import Stream, episode_seed
from paddock.algos.pool.serial import SerialPool
from paddock.algos.ppo import PPO
from paddock.envs.errors import ConfigError, PaddockError
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Serial
from paddock.evaluation.policy import TrainedPolicy, read_observation
from paddock.runs.folder import FolderError
from paddock.runs.loop import ECHO_S, Signals
from paddock.runs.state import read_run_states

pytestmark = pytest.mark.xdist_group("python")  # the runs are made once

HERE = [*TINY, "compute=serial"]
PPO_TINY = [
    *(
        "algo=ppo",
        "compute=serial",
        "vec.num_envs=2",
        "algo.num_steps=16",
        "algo.minibatch_size=16",
        "algo.hidden_sizes=[8]",
    ),
    *("algo.eval_every_iterations=2", "algo.eval_episodes=1", "checkpoint.every_s=0"),
]
TOY = "env=gymnasium"
KINDS = {
    "es": [*HERE, "budget.iterations=2"],
    "ppo": [*PPO_TINY, "env=cartpole", "algo.normalize_observations=true", "budget.iterations=2"],
    "boxes": [*PPO_TINY, "env=pendulum", "budget.iterations=1", "algo.eval_every_iterations=9"],
    "dictionaries": [*PPO_TINY, TOY, "env.id=toy_envs:Parts-v0", "budget.iterations=1"],
    "numbers": [*PPO_TINY, TOY, "env.id=toy_envs:Cell-v0", "env.max_episode_steps=20", "budget.iterations=1"],
    "values": ["algo=dqn", "compute=serial", "env=cartpole", "budget.iterations=1", "algo.log_every_steps=8"],
    "memory": [*PPO_TINY, "env=recall", "algo.lstm=true", "budget.iterations=1"],
}


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], paddock.Run]:
    """A run of each kind, made once."""
    folder, made = tmp_path_factory.mktemp("runs"), {}

    def of(kind: str) -> paddock.Run:
        if kind not in made:
            made[kind] = paddock.run(*KINDS[kind], f"run.dir={folder / kind}", progress=False)
        return made[kind]

    return of


# A run


def test_import_paddock_imports_nothing_heavy() -> None:
    code = (
        "import sys, paddock; early = {'paddock.algos', 'hydra', 'numpy', 'omegaconf', 'polars', 'torch'} & sys.modules.keys();"
        "print(early, {*paddock.__all__} <= {*dir(paddock)})"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout == "set() True\n", done.stderr
    assert all(getattr(paddock, name) is getattr(paddock, name) for name in paddock.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        paddock.nothing  # noqa: B018


def test_run_from_python_equals_the_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    assert call_main(*HERE, "budget.iterations=3", f"run.dir={theirs}") == 0
    capfd.readouterr()
    run = paddock.run(*HERE, "budget.iterations=3", f"run.dir={ours}")
    shown = capfd.readouterr().out
    assert "iteration 3 |" in shown and shown.endswith(f"done: reached budget.iterations=3 (3 iterations): {ours}\n")
    assert run.path == ours and run.config["seed"] == 0
    assert_same_run(ours, theirs)
    assert {path.name for path in ours.rglob("*")} == {path.name for path in theirs.rglob("*")}


def test_command_in_provenance_repeats_the_run(make: Callable[[str], paddock.Run], tmp_path: Path) -> None:
    run = make("es")
    told = json.loads((run.path / "provenance.json").read_text())
    python, *words = shlex.split(told["command"])
    assert [python, *words[:2]] == ["python", "-m", "paddock"] and told["process"] != told["command"]
    again = tmp_path / "again"
    assert call_main(*(f"run.dir={again}" if word.startswith("run.dir=") else word for word in words[2:])) == 0
    assert (again / "metrics.jsonl").read_bytes() == (run.path / "metrics.jsonl").read_bytes()


def test_resumed_run_has_the_same_bits(tmp_path: Path) -> None:
    whole = paddock.run(*HERE, "budget.iterations=4", f"run.dir={tmp_path / 'whole'}", progress=False)
    for iterations in (1, 3, 4, 4):
        parts = paddock.run(*HERE, f"budget.iterations={iterations}", f"run.dir={tmp_path / 'parts'}", progress=False)
        assert len(parts.metrics()) == iterations
    assert final_state(parts.path) == final_state(whole.path)
    assert [read_run_states([run.path])[0].state for run in (whole, parts)] == ["done", "done"]


def test_hydra_state_of_the_caller_is_kept(make: Callable[[str], paddock.Run], tmp_path: Path) -> None:
    (tmp_path / "theirs.yaml").write_text("mine: 1")
    own: Any = OmegaConf.create({"hydra": {"job": {"name": "theirs"}}})
    before = HydraConfig.instance().cfg
    try:
        with initialize_config_dir(str(tmp_path), version_base="1.2"):
            HydraConfig.instance().cfg = own
            whole = GlobalHydra.instance().hydra
            with pytest.raises(ConfigError):
                paddock.run("algo=ess")
            paddock.run(*HERE, "budget.iterations=1", f"run.dir={tmp_path / 'run'}", progress=False)
            make("es").evaluate(episodes=1, env=["env=cartpole"])
            assert GlobalHydra.instance().hydra is whole and HydraConfig.instance().cfg is own
            assert compose("theirs").mine == 1
    finally:
        HydraConfig.instance().cfg = before


def test_run_works_in_threads_and_event_loops(make: Callable[[str], paddock.Run], tmp_path: Path) -> None:
    expected = (make("es").path / "metrics.jsonl").read_bytes()
    line = [*TINY, "compute=local", "compute.workers=1", "budget.iterations=2"]

    async def inside() -> None:
        paddock.run(*line, f"run.dir={tmp_path / 'loop'}", progress=False)

    asyncio.run(inside())
    thread = threading.Thread(
        target=lambda: paddock.run(*KINDS["es"], f"run.dir={tmp_path / 'thread'}", progress=False)
    )
    thread.start()
    thread.join()
    for name in ("loop", "thread"):
        assert (tmp_path / name / "metrics.jsonl").read_bytes() == expected


def test_interrupt_finishes_the_iteration_saves_and_is_raised(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    line = [*HERE, f"run.dir={tmp_path / 'run'}"]

    ended = threading.Event()

    def interrupt() -> None:
        wait_until(lambda: len(rows(tmp_path / "run")) >= 2 or ended.is_set())
        if not ended.is_set():
            os.kill(os.getpid(), signal.SIGINT)

    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            paddock.run(*line)
    finally:
        ended.set()
        thread.join()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert f"paddock.load('{tmp_path / 'run'}')" in capfd.readouterr().out
    come = len(paddock.load(tmp_path / "run").metrics())
    assert read_run_states([tmp_path / "run"])[0].why == "SIGINT"
    run = paddock.run(*line, f"budget.iterations={come + 1}", progress=False)
    straight = paddock.run(*HERE, f"budget.iterations={come + 1}", f"run.dir={tmp_path / 'straight'}", progress=False)
    assert final_state(run.path) == final_state(straight.path)


def test_second_interrupt_calls_leave() -> None:
    def leave(number: int) -> Any:
        raise KeyboardInterrupt(number)

    told: list[int] = []
    with pytest.raises(KeyboardInterrupt), Signals(told.append, leave) as signals:
        signal.raise_signal(signal.SIGINT)
        assert signals.caught == signal.SIGINT and told == [signal.SIGINT]
        signal.raise_signal(signal.SIGINT)


def test_sigterm_from_several_senders_at_once_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    told: list[int] = []
    now = 100.0
    monkeypatch.setattr("paddock.runs.loop.time", SimpleNamespace(monotonic=lambda: now, sleep=time.sleep))
    with Signals(told.append, left.append) as signals:  # type: ignore[arg-type]
        signal.raise_signal(signal.SIGTERM)
        now += ECHO_S / 2
        signal.raise_signal(signal.SIGTERM)
        assert signals.caught == signal.SIGTERM and (told, left) == ([signal.SIGTERM], [])
        signal.raise_signal(signal.SIGINT)
        assert left == [signal.SIGINT]
        now += ECHO_S
        signal.raise_signal(signal.SIGTERM)
        assert left == [signal.SIGINT, signal.SIGTERM] and told == [signal.SIGTERM]


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["algo=ess"], "algo=ess is not an option of algo; did you mean 'es'?"),
        (["algo.popul=8"], "did you mean 'algo.population'?"),
        (["--multirun", "seed=1,2"], "--multirun is for the command line; for a sweep call run() repeatedly"),
        (["--cfg", "job"], "--cfg is for the command line"),
        (["run.dir=/proc/x"], "cannot be written"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_bad_input_is_an_error_of_one_line(overrides: list[Any], said: str) -> None:
    with pytest.raises(PaddockError) as caught:
        paddock.run(*overrides)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_dry_run_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = paddock.run(*HERE, "dry_run=true", f"run.dir={tmp_path / 'run'}")
    assert "paddock.algos.es.ES" in capsys.readouterr().out and not run.path.exists()
    with pytest.raises(FolderError, match="no such run"):
        paddock.load(run.path)


def test_script_without_main_guard_is_refused(tmp_path: Path) -> None:
    line = [*TINY, "compute=local", "compute.workers=1", "budget.iterations=1"]
    (tmp_path / "script.py").write_text(f"import paddock\npaddock.run(*{line!r}, 'run.dir=run')\n")
    command = [sys.executable, str(tmp_path / "script.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and 'if __name__ == "__main__"' in done.stderr.splitlines()[-1], done.stderr


# What a run gave


def test_run_returns_metrics_events_films_and_evaluations(make: Callable[[str], paddock.Run], tmp_path: Path) -> None:
    run = paddock.load(str(make("es").path))
    assert run.metrics().equals(paddock.read_metrics(run.path)) and len(run.metrics()) == 2
    assert run.events() == paddock.read_events(run.path) == []
    assert paddock.read_runs(run.path)["algo.population"].to_list() == [16]
    film = run.film(tmp_path / "episode.mp4", seed=3)
    assert len(repr(film)) < 200  # without the bytes, which a notebook would print
    assert (tmp_path / "episode.mp4").read_bytes() == film.content
    found = run.evaluate(episodes=2, seed=3)
    assert film.return_ == found.returns[0]
    assert repr(found).startswith(f"<Evaluation of iteration 2: mean return {found.mean:.2f}, 95 % [")


@pytest.mark.parametrize("kind", ["es", "ppo", "dictionaries", "numbers", "memory"])
def test_policy_by_hand_equals_evaluation(kind: str, make: Callable[[str], paddock.Run]) -> None:
    run = make(kind)
    policy, env = run.policy(), run.make_env()
    assert (policy.observation_space, policy.action_space) == (env.observation_space, env.action_space)
    returns = []
    for k in range(2):
        observation, _ = env.reset(seed=episode_seed(5, Stream.FRESH, 0, k))
        total, over, state = 0.0, False, None
        while not over:
            action, state = policy.act_with_state(observation, state)
            observation, reward, terminated, truncated, _ = env.step(action)
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    assert returns == run.evaluate(episodes=2, seed=5).returns.tolist()
    assert run.evaluate(episodes=2, seed=5).mean == np.mean(returns)


class SeatedPPO(PPO):
    """PPO of somebody's own: no setting says that its policies see seats, and its member is no section."""

    def __init__(self, *, member: str, **given: Any) -> None:
        super().__init__(**given | {"agent_id_feature": True})


SEATED = {
    "ppo": ["algo=ppo", "env=tictactoe", "algo.agent_id_feature=true", "algo.num_steps=8", "algo.minibatch_size=16"],
    "own": ["algo=ppo", f"algo._target_={__name__}.SeatedPPO", "+algo.member=me", "env=tictactoe"],
}


@pytest.mark.parametrize("kind", SEATED)
def test_agent_ids_are_part_of_observations(kind: str, tmp_path: Path) -> None:
    tiny = ["compute=serial", "vec=serial", "vec.num_envs=2", "algo.eval_episodes=2", "budget.iterations=1"]
    run = paddock.run(*SEATED[kind], *tiny, f"run.dir={tmp_path / 'run'}", progress=False)
    world: Any = run.make_env()
    observations, _ = world.reset(seed=0)
    agent, observation = next(iter(observations.items()))
    policy = run.policy()
    assert world.observation_space(agent) == policy.observation_space and observation in policy.observation_space
    assert policy.act(observation) in policy.action_space
    assert run.evaluate(episodes=1).env.agent_id_feature


# What acts


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "memory"])
def test_batch_gives_the_actions_of_its_observations(kind: str, make: Callable[[str], paddock.Run]) -> None:
    policy = make(kind).policy()
    space: gymnasium.Space = policy.observation_space
    batch = batch_space(space, 3)
    batch.seed(1)
    observations = batch.sample()
    actions = policy.act(observations)
    assert actions.shape == (3, *(policy.action_space.shape or ())) and actions.dtype == policy.action_space.dtype
    for k, one in enumerate(gymnasium.vector.utils.iterate(batch, observations)):
        action = policy.act(one)
        assert np.shape(action) == policy.action_space.shape
        np.testing.assert_allclose(action, actions[k], rtol=1e-5, atol=1e-5)


def test_sampled_actions_follow_their_seed(make: Callable[[str], paddock.Run]) -> None:
    policy = make("boxes").policy()
    observation = np.zeros((64, 3), np.float32)
    first = policy.act(observation, deterministic=False, seed=1)
    assert np.array_equal(first, policy.act(observation, deterministic=False, seed=1))
    assert not np.array_equal(first, policy.act(observation, deterministic=False, seed=2))
    assert not np.array_equal(first, policy.act(observation, deterministic=False))
    generator = np.random.default_rng(1)
    assert np.array_equal(first, policy.act(observation, deterministic=False, seed=generator))
    assert not np.array_equal(first, policy.act(observation, deterministic=False, seed=generator))
    assert (policy.act(observation) == policy.act(observation)).all()
    for kind in ("es", "values"):
        with pytest.raises(ConfigError, match="no action distribution to sample from"):
            make(kind).policy().act(np.zeros(4), deterministic=False)
    with pytest.raises(ConfigError, match="stochastic=true: DQN has no action distribution to sample from"):
        make("values").evaluate(stochastic=True)


def test_memory_is_carried_by_the_state(make: Callable[[str], paddock.Run]) -> None:
    policy = make("memory").policy()
    observation = np.ones((2, *(policy.observation_space.shape or ())), np.float32)
    assert policy.recurrent and not make("ppo").policy().recurrent
    with pytest.raises(ConfigError, match="is recurrent; call act_with_state"):
        policy.act(observation)
    _, first = policy.act_with_state(observation)
    _, second = policy.act_with_state(observation, first)
    assert first.shape == second.shape and not np.array_equal(first, second)
    with pytest.raises(ConfigError, match="state has batch size 2"):
        policy.act_with_state(observation[0], first)


@pytest.mark.parametrize(
    ("observation", "said"),
    [
        (np.zeros(3), r"observation has shape \(3,\); allowed: \(4,\) for one, or \(B, 4\) for a batch"),
        (np.zeros((1, 2, 4)), r"has shape \(1, 2, 4\)"),
        ([[1.0], [1.0, 2.0]], "observation is not an array"),
    ],
    ids=range(3),
)
def test_observation_of_another_shape_is_refused(
    observation: Any, said: str, make: Callable[[str], paddock.Run]
) -> None:
    with pytest.raises(ConfigError, match=said):
        make("es").policy().act(observation)


def test_structured_observations_are_read_part_by_part() -> None:
    space = gymnasium.make("toy_envs:Parts-v0").observation_space
    one = space.sample()
    assert read_observation(space, one)[1] is None
    refused = {
        "must be a mapping with keys count, image, pair; got list": [],
        "with keys count, image, pair; got image, count": {key: one[key] for key in ("image", "count")},
        r"observation\['image'\] has shape \(2,\)": one | {"image": np.zeros(2, np.uint8)},
        r"observation\['image'\] has dtype float64": one | {"image": np.full((3, 2), 0.5)},
        r"observation\['pair'\] must be a tuple with keys 0, 1; got 0": one | {"pair": (one["pair"][0],)},
        "batch sizes in observation differ: one observation, a batch of 2": one
        | {"image": np.zeros((2, 3, 2), np.uint8)},
    }
    for said, observation in refused.items():
        with pytest.raises(ConfigError, match=said):
            read_observation(space, observation)


# By hand


def train_by_hand(steps: int) -> tuple[list[dict[str, float]], TrainedPolicy]:
    """An algorithm without a run: its parts, its settings from YAML, and a loop that pulls it."""
    env = EnvSpec(**paddock.defaults("env=cartpole"))
    ppo = PPO(
        env=env,
        vec=Serial(**paddock.defaults("vec=serial", "vec.num_envs=2")),
        pool=SerialPool(),
        seed=0,
        **paddock.defaults(*(word for word in KINDS["ppo"] if word.startswith("algo"))),
    )
    seen = []
    for metrics in ppo.plan():
        seen.append(metrics)
        if metrics["step"] >= steps:
            break
    return seen, TrainedPolicy(ppo.policy(), env, ppo.iteration)


def test_algorithm_built_by_hand_equals_its_run(make: Callable[[str], paddock.Run]) -> None:
    assert len(inspect.getsource(train_by_hand).splitlines()) <= 20
    run = make("ppo")
    seen, policy = train_by_hand(steps=64)
    for row, metrics in zip(rows(run.path), seen, strict=False):
        assert deterministic(metrics) == row
    observation = np.random.default_rng(0).normal(size=(32, 4))
    assert np.array_equal(policy.act(observation), run.policy().act(observation))


@pytest.mark.parametrize(
    "choice, said",
    [
        *((choice, "is not (an option of|GROUP=OPTION)") for choice in ("ppo", "algoo=ppo", "algo=pppo")),
        ("budget=1", r"^budget=1 is not a mapping; set its keys: budget\.KEY="),
    ],
)
def test_defaults_of_no_option_are_refused(choice: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        paddock.defaults(choice)
