"""`python -m paddock.evaluate`, by the laws it obeys, on a real run; expected numbers are worked by hand."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import av
import gymnasium
import numpy as np
import pytest
import yaml
from conftest import ROOT, TINY, Command, Main, call_main
from gymnasium.spaces import Box, Discrete

import paddock
import paddock.runs.checkpoint
from paddock.algos.common.keys import Stream, episode_seed
from paddock.algos.learning import policy_episodes
from paddock.envs.native import library
from paddock.envs.spec import EnvSpec
from paddock.evaluation.description import as_plain
from paddock.evaluation.fresh_episodes import evaluate
from paddock.evaluation.load import load
from paddock.evaluation.target import find_policy

STEPS = 7  # of an episode of Painted


class Painted(gymnasium.Env):
    """CartPole's spaces, episodes of STEPS steps, and frames of odd sides that get brighter with every step."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 12.5}  # noqa: RUF012
    observation_space = Box(-np.inf, np.inf, (4,), np.float32)
    action_space = Discrete(2)
    seeds: list[int | None] = []  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.steps = 0
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.steps += 1
        return np.zeros(4, np.float32), self.np_random.random(), self.steps == STEPS, False, {}

    def render(self) -> Any:
        return np.full((33, 51, 3), 30 * self.steps, np.uint8)


class Unseen(Painted):
    metadata = {"render_modes": ["human"]}  # noqa: RUF012


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    kinds: tuple[Any, ...] = (Painted, Unseen)
    for kind in kinds:
        gymnasium.register(f"{kind.__name__}-v0", kind)
    yield
    for kind in kinds:
        del gymnasium.registry[f"{kind.__name__}-v0"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five iterations, evaluated after the second and the fourth: the best policy is not the last."""
    path = tmp_path_factory.mktemp("evaluate") / "run"
    # A cap that would show in the lengths, were it kept; all members score alike, and only decay moves the mean.
    arguments = [
        "compute=serial",
        "algo.episode_cap=5",
        "algo.strategy.weight_decay=0.1",
        "budget.iterations=5",
        f"run.dir={path}",
    ]
    code, _, err = Command(*TINY, *arguments).wait()
    assert code == 0, err
    return path


@pytest.fixture
def changed(run: Path, tmp_path: Path) -> Callable[..., Path]:
    """A copy of the run that plays another environment."""

    def copy(env: str) -> Path:
        path = tmp_path / "copies" / env
        shutil.copytree(run, path)
        config = yaml.safe_load((path / "config.yaml").read_text())
        config["env"]["id"] = env
        (path / "config.yaml").write_text(yaml.safe_dump(config))
        return path

    return copy


@pytest.fixture
def main(call_command: Main, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Main:
    """The command in this process, in an empty folder."""
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setenv("SDL_AUDIODRIVER", "dummy")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return partial(call_command, "evaluate")


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file below a folder, with its time of change."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def watched(video: Path) -> tuple[str, Any, list[Any]]:
    """Codec and pixel format, frames a second, and the frames."""
    with av.open(str(video)) as container:
        stream = container.streams.video[0]
        pictures = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
        assert stream.frames == len(pictures)
        return f"{stream.codec_context.name} {stream.codec_context.pix_fmt}", stream.average_rate, pictures


# Numbers


def test_equal_arguments_give_equal_text(run: Path, main: Main) -> None:
    first, second = (main(run, "episodes=4", "seed=3") for _ in range(2))
    assert first[0] == 0
    assert first[1] == second[1]
    assert "at iteration 5" in first[1] and "from seed 3" in first[1]
    assert "steps/s" in first[2] and "steps/s" not in first[1]


def test_episode_depends_on_seed_and_index_alone(run: Path) -> None:
    few, many = evaluate(run, episodes=3), evaluate(run, episodes=6)
    assert few.returns.tolist() == many.returns[:3].tolist()
    assert evaluate(run, episodes=6, seed=1).returns.tolist() != many.returns.tolist()


def test_episodes_are_played_beyond_the_cap_of_training(run: Path) -> None:
    assert evaluate(run, episodes=3).lengths.min() > 5


def test_seeds_are_fresh(changed: Callable[..., Path]) -> None:
    Painted.seeds.clear()
    evaluate(changed("Painted-v0"), episodes=4)
    seeds = [seed for seed in Painted.seeds if seed is not None]
    assert seeds == [episode_seed(0, Stream.FRESH, 0, k) for k in range(4)]
    met = [
        episode_seed(0, stream, iteration, index)
        for stream in (Stream.EPISODE, Stream.EVALUATION)
        for iteration in range(6)
        for index in range(20)
    ]
    assert not set(seeds) & set(met)


def test_best_is_the_recorded_best_policy(run: Path) -> None:
    with np.load(max((run / "checkpoints").glob("*.npz"))) as archive:
        last, best = (archive[f"algorithm.{name}"].astype(np.float32) for name in ("strategy.mean", "best.mean"))
    algorithm, progress = load(run)
    assert algorithm.policy("best").parameters.tolist() == best.tolist() != last.tolist()
    assert algorithm.policy("last").parameters.tolist() == last.tolist()
    assert progress.metrics["iteration"] == 5
    assert evaluate(run, episodes=4, which="best").returns.tolist() != evaluate(run, episodes=4).returns.tolist()


# The run


def test_running_run_is_played_and_not_changed(run: Path) -> None:
    before = contents(run)
    with open(run / "lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert len(evaluate(run, episodes=2).returns) == 2
    assert contents(run) == before


def test_best_policy_names_its_iteration(run: Path, main: Main) -> None:
    algorithm, _ = load(run)
    assert algorithm.best_iteration in (2, 4)
    assert f"best, at iteration {algorithm.best_iteration} (of a run at iteration 5" in main(run, "which=best")[1]


# Anywhere


def copy_run(run: Path, path: Path, **sections: dict[str, Any]) -> Path:
    """A copy of a run whose configuration says something else."""
    shutil.copytree(run, path)
    config = yaml.safe_load((path / "config.yaml").read_text())
    for name, changes in sections.items():
        config[name] |= changes
    (path / "config.yaml").write_text(yaml.safe_dump(config))
    return path


@pytest.fixture(scope="module")
def ppo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("evaluate") / "ppo"
    small = [
        "algo.num_steps=8",
        "algo.minibatch_size=16",
        "vec.num_envs=2",
        "algo.hidden_sizes=[4]",
        "budget.iterations=1",
    ]
    assert call_main("algo=ppo", "env=cartpole", "compute=serial", *small, f"run.dir={path}") == 0
    return path


@pytest.mark.parametrize("vec", ["EnvPool"])
def test_evaluation_needs_nothing_of_the_training_machine(
    vec: str, run: Path, ppo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "built", list)
    library.load.cache_clear()
    other = {"_target_": f"paddock.envs.vector.{vec}", "threads": 1}
    es = copy_run(run, tmp_path / "es", vec=other)
    cuda = copy_run(ppo, tmp_path / "cuda", vec=other, algo={"device": "cuda:7", "learners": 2})
    for ours, theirs in ((run, es), (ppo, cuda)):
        assert evaluate(theirs, episodes=3).returns.tolist() == evaluate(ours, episodes=3).returns.tolist()
    library.load.cache_clear()


WALK = ["env=bipedal", "env.max_episode_steps=80", "vec=serial", "vec.num_envs=2", "compute=serial"]
WALKER = ["algo=ppo", "algo.lstm=true", "algo.hidden_sizes=[4]", "algo.num_steps=8", "algo.minibatch_size=16", *WALK]


def test_walkers_are_evaluated_natively_to_the_same_bits(
    main: Main, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, made = tmp_path / "run", EnvSpec.make
    assert call_main(*WALKER, "budget.iterations=1", "algo.eval_episodes=1", f"run.dir={run}") == 0
    stepped: list[Any] = []

    def counted(spec: EnvSpec, *settings: Any) -> Any:
        env = made(spec, *settings)
        step = env.unwrapped.step

        def count(action: Any) -> Any:
            stepped.append(action)
            return step(action)

        monkeypatch.setattr(env.unwrapped, "step", count)
        return env

    monkeypatch.setattr(EnvSpec, "make", counted)
    natively = evaluate(run, episodes=11)
    assert main(run, "episodes=11", "json=natively.json")[0] == 0
    assert not stepped
    filmed = evaluate(run, episodes=2, video=tmp_path / "film.mp4")
    assert filmed.film is not None
    assert len(stepped) == filmed.film.frames + 1  # as the walker's reset steps, too
    assert (filmed.film.frames, filmed.film.return_) == (filmed.lengths[0], filmed.returns[0])
    monkeypatch.setattr(policy_episodes, "exact_task", lambda spec, native_anyway=False: None)
    in_box2d = evaluate(run, episodes=11)
    assert main(run, "episodes=11", "json=box2d.json")[0] == 0 and len(stepped) > filmed.film.frames + 1
    assert Path("natively.json").read_bytes() == Path("box2d.json").read_bytes()
    assert natively.returns.tobytes() == in_box2d.returns.tobytes()
    assert natively.lengths.tolist() == in_box2d.lengths.tolist() and len(set(natively.returns)) > 5


def test_result_is_independent_of_worker_count(ppo: Path, run: Path) -> None:
    natively = ["env.id=paddock.envs.native:paddock/NativeCartPole-v1"]
    for which, env in ((run, []), (ppo, natively)):
        alone = evaluate(which, episodes=5, env=env)
        assert evaluate(which, episodes=5, env=env, workers=2).returns.tolist() == alone.returns.tolist()


def test_endless_episode_is_cut_off(changed: Callable[..., Path], main: Main) -> None:
    code, out, _ = main(changed("Painted-v0"), "episodes=2", f"max_steps={STEPS - 2}")
    assert code == 0 and f"truncated     2 episodes after max_steps={STEPS - 2} steps" in out
    assert "truncated" not in main(Path("../copies/Painted-v0"), "episodes=2")[1]


def test_sampled_actions_are_keyed_by_the_episode(ppo: Path, main: Main) -> None:
    drawn = evaluate(ppo, episodes=6, stochastic=True)
    assert drawn.returns.tolist() == evaluate(ppo, episodes=8, stochastic=True).returns[:6].tolist()
    assert drawn.returns.tolist() != evaluate(ppo, episodes=6).returns.tolist()
    assert "actions       sampled" in main(ppo, "episodes=1", "stochastic=true")[1]


def test_policy_plays_in_another_environment(run: Path, main: Main) -> None:
    code, out, _ = main(run, "episodes=2", "env.max_episode_steps=4")
    assert (
        code == 0 and "environment   CartPole-v1 env.max_episode_steps=4" in out and "mean length   4.00 steps" in out
    )
    heavy = evaluate(run, episodes=3, env=["env.kwargs.sutton_barto_reward=true"])
    added = evaluate(run, episodes=3, env=["+env.kwargs.sutton_barto_reward=true"])
    assert added.returns.tolist() == heavy.returns.tolist()
    assert main(run, "episodes=1", "+env.kwargs.sutton_barto_reward=true")[0] == 0
    assert heavy.returns.tolist() == [-1.0] * 3  # of which each step gives 0, and the fall -1
    named = evaluate(run, episodes=3, env=["env=cartpole"])
    assert named.returns.tolist() == evaluate(run, episodes=3).returns.tolist()


def test_json_has_all_results(run: Path, main: Main) -> None:
    code, out, _ = main(run, "episodes=3", "which=best", "json=found.json")
    found, expected = json.loads(Path("found.json").read_text()), evaluate(run, episodes=3, which="best")
    assert code == 0 and "found.json" in out
    assert found["returns"] == expected.returns.tolist() and found["lengths"] == expected.lengths.tolist()
    assert found["return_mean"] == expected.returns.mean() and found["return_interval_95"] == list(expected.interval)
    assert (found["policy"], found["iteration"]) == ("best", expected.iteration)
    assert found["env"]["id"] == "CartPole-v1" and found["cut"] == 0


# Video


def test_json_is_strict(run: Path) -> None:
    found = evaluate(run, episodes=2)
    odd = np.array([np.nan, np.inf])
    lives: dict[str, Any] = {"lives": [odd, odd[:0]], "seats": [np.zeros(2, np.int64), np.zeros(0, np.int64)]}
    odd_found = replace(found, returns=odd, interval=(-np.inf, np.nan), metrics={"height": -odd}, **lives)
    told = json.loads(json.dumps(as_plain(run, {}, odd_found), allow_nan=False))
    assert told["lives"] == [[None, None], []] and told["return_interval_95"] == told["returns"] == [None, None]


def test_video_shows_each_step_without_a_screen(run: Path, tmp_path: Path) -> None:
    screens = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER", "PYTHONPATH")
    environment = {key: value for key, value in os.environ.items() if key not in screens} | {"PYTHONPATH": str(ROOT)}
    arguments = [str(run), "episodes=2", "video=film.mp4"]
    # From a folder that knows nothing of Paddock.
    done = subprocess.run(
        [sys.executable, "-m", "paddock.evaluate", *arguments],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    codec, rate, pictures = watched(tmp_path / "film.mp4")
    episode = evaluate(run, episodes=1)
    assert len(pictures) == episode.lengths[0]
    assert f"{episode.lengths[0]} frames, return {episode.returns[0]:.2f}" in done.stdout
    assert (codec, rate, pictures[0].shape) == ("h264 yuv420p", 50, (400, 600, 3))
    assert pictures[0].min() < 50 and pictures[0].max() > 200
    assert [path.name for path in tmp_path.iterdir()] == ["film.mp4"]


@pytest.mark.parametrize("codecs", [("libx264", "mpeg4"), ("missing", "mpeg4")])
def test_odd_frames_become_even_in_either_codec(
    codecs: tuple[str, ...], changed: Callable[..., Path], main: Main, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddock.evaluation.video.CODECS", codecs)
    code, out, _ = main(changed("Painted-v0"), "episodes=2", "video=film.mp4")
    codec, rate, pictures = watched(Path("film.mp4"))
    assert code == 0
    assert (codec == "mpeg4 yuv420p") == ("lacks H.264" in out) == (codecs[0] == "missing")
    assert rate == 12.5
    assert {picture.shape for picture in pictures} == {(34, 52, 3)}
    assert [picture.mean() for picture in pictures] == pytest.approx([30 * step for step in range(1, STEPS + 1)], abs=4)


# Bad input

BAD = {
    "unknown key": (("RUN", "episods=3"), "did you mean 'episodes'?"),
    "no checkpoint": (("UNSAVED",), "has no checkpoint yet"),
    "nothing to draw": (("RUN", "stochastic=true"), "stochastic=true: ES has no action distribution"),
    "unknown env": (("RUN", "env=cartpol"), "env=cartpol is not an option of env; did you mean 'cartpole'?"),
    "other actions": (("RUN", "env=pendulum"), "but the policy was trained"),
    "no drawing": (
        ("Unseen-v0", "video=film.mp4"),
        "Unseen-v0 cannot render to an array (render_modes: human)",
    ),
}


@pytest.mark.parametrize("arguments, said", BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_line_and_leaves_nothing(
    arguments: tuple[str, ...],
    said: str,
    run: Path,
    changed: Callable[..., Path],
    main: Main,
    recwarn: pytest.WarningsRecorder,
) -> None:
    def meant(argument: str) -> str:
        if argument.endswith("-v0"):
            return str(changed(argument))
        if argument == "UNSAVED":
            unsaved = changed("CartPole-v1")
            shutil.rmtree(unsaved / "checkpoints")
            return str(unsaved)
        return argument.replace("RUN", str(run))

    code, out, err = main(*map(meant, arguments))
    assert code == 2
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("paddock: ")
    assert said in err
    assert not [one for one in recwarn if one.category is not ResourceWarning]  # of earlier tests' garbage
    assert list(Path().iterdir()) == []


def test_best_before_the_first_evaluation_is_an_error(main: Main, tmp_path: Path) -> None:
    run = tmp_path / "young"
    assert Command(*TINY, "compute=serial", "budget.iterations=1", f"run.dir={run}").wait()[0] == 0
    code, out, _ = main(run, "which=best", "episodes=1")  # its end evaluated it
    assert code == 0 and "best, at iteration 1 (" in out
    assert paddock.load(run).policy("best").iteration == 1  # the same policy, whoever asks
    first, *_ = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text(first)  # as if it had been killed before its end
    assert main(run, "episodes=1")[0] == 0
    code, _, err = main(run, "which=best")
    assert (code, err.count("\n")) == (2, 1)
    assert "which=best is not known before the first evaluation; use which=last" in err


SMALL = ["env=cartpole", "compute=serial", "vec=serial", "vec.num_envs=2", "algo.hidden_sizes=[8]", "track=none"]
ROLLOUTS = [*SMALL, "algo=ppo", "algo.num_steps=16", "algo.minibatch_size=16", "algo.eval_every_iterations=2"]
REPLAY = [
    *SMALL,
    "algo=dqn",
    "algo.num_steps=4",
    "algo.learning_starts=8",
    "algo.batch_size=8",
    "algo.log_every_steps=8",
    "algo.eval_every_steps=16",
]

OPPONENTS = [*ROLLOUTS, "env=tictactoe", "algo.opponents={keep: 2, every: 2, newest: 0.5}"]


@pytest.mark.parametrize("words, of_equals", [(REPLAY, 2), (OPPONENTS, 5)], ids=["dqn", "opponents"])
def test_best_policy_is_the_one_evaluated_best_even_at_the_end(
    words: list[str], of_equals: int, tmp_path: Path
) -> None:
    run, parameters = tmp_path / "run", {}
    for last in range(2, 6):
        budget = ["algo.eval_episodes=2", "checkpoint.every_s=0", f"budget.iterations={last}"]
        assert call_main(*words, *budget, f"run.dir={run}") == 0
        parameters[last] = load(run)[0].policy("last").parameters
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["eval/of_iteration"] for row in rows if "eval/return_mean" in row] == [2, 4, 5]
    for best in (2, 4, 5):  # the state's own, the one being evaluated as it ended, and the last
        told = [row | {"eval/return_mean": 99.0} if row.get("eval/of_iteration") == best else row for row in rows]
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in told))
        algorithm, progress = load(run)
        policy, iteration = find_policy(algorithm, run, "best", None, progress)
        assert iteration == best
        np.testing.assert_array_equal(policy.parameters, parameters[best])
    equal = [row | {"eval/return_mean": 1.0} if "eval/return_mean" in row else row for row in rows]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in equal))
    assert find_policy(algorithm, run, "best", None, progress)[1] == of_equals
