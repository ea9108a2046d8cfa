"""Stop and resume: a run that is killed at any moment and resumed is the run that was not."""

import errno
import itertools
import json
import os
import pydoc
import random
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from conftest import ROOT, TINY, Command, assert_same_run, call_main, kill_and_resume, rows, wait_until
from own_package import write_package
from tiny_runs import FEW, ITERATIONS, arguments, short_fixture, undisturbed_fixture  # noqa: F401

import paddock.runs.checkpoint
from paddock.algos.es import ES
from paddock.algos.pool.lazy import LazyPool
from paddock.config.command import format_main_command
from paddock.envs.errors import DISK_FULL, ConfigError
from paddock.envs.native import library
from paddock.envs.vector import auto
from paddock.evaluation.load import load
from paddock.runs import provenance
from paddock.runs.checkpoint import Checkpoints, read, storing
from paddock.runs.state import read_run_states
from paddock.tracking.tracker import Journal

# Killed


def test_killed_and_resumed_equals_undisturbed(
    undisturbed: Path, tmp_path: Path, start: Callable[..., Command]
) -> None:
    run = tmp_path / "run"
    begin = partial(start, *arguments(run), "compute=local")
    assert kill_and_resume(begin, run, kills=2, furthest=8, chance=random.Random("local")) < ITERATIONS
    assert_same_run(undisturbed, run)


@pytest.fixture
def begin(tmp_path: Path, start: Callable[..., Command]) -> Callable[..., Command]:
    """Start the run of a test; while the file `slow` is there it takes ten seconds, so that a signal comes before."""
    write_package(tmp_path, tmp_path / "slow", pace_s=0.01)
    (tmp_path / "slow").touch()
    words = [*arguments(tmp_path / "run"), "env=gymnasium", "env.id=mine:Paced-v0"]
    return partial(start, *words, PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]))


def test_run_killed_before_its_first_checkpoint_starts_again(
    undisturbed: Path, tmp_path: Path, begin: Callable[..., Command]
) -> None:
    run = tmp_path / "run"
    command = begin("checkpoint.every_s=1000")
    wait_until(lambda: len(rows(run)) >= 3)
    os.kill(command.process.pid, signal.SIGKILL)
    command.process.wait()
    (tmp_path / "slow").unlink()
    assert not list(run.glob("checkpoints/*.npz"))
    come = len(rows(run))
    code, out, err = begin().wait()
    assert code == 0, err
    assert f"restarting {run} from scratch: killed at iteration {come}, before" in out
    assert_same_run(undisturbed, run)


def test_resume_last_resumes_the_newest_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    root = [*TINY, "compute=serial", f"run.root={tmp_path}"]
    for seed in (1, 2):
        assert call_main(*root, f"seed={seed}", "budget.iterations=3") == 0
    capfd.readouterr()
    assert call_main(*root, "seed=2", "budget.iterations=5", "resume=last") == 0
    (run,) = tmp_path.glob("*_es_*_seed2")
    assert f"resuming in {run}" in capfd.readouterr().out
    assert [row["iteration"] for row in rows(run)] == [1, 2, 3, 4, 5, 5]


def test_finished_run_resumes_with_a_raised_budget(
    short: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert call_main(*arguments(run, 10)) == 0
    before = (run / "metrics.jsonl").read_bytes()
    capfd.readouterr()
    assert call_main(*arguments(run, 10)) == 0
    assert "already reached budget.iterations=10" in capfd.readouterr().out
    assert (run / "metrics.jsonl").read_bytes() == before
    assert call_main(*arguments(run, FEW)) == 0
    assert_same_run(short, run)


def test_run_without_a_budget_says_how_to_limit_and_resume_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = ES.plan
    monkeypatch.setattr(ES, "plan", lambda self: itertools.islice(plan(self), 2))
    words = [*TINY, "compute=serial", f"run.dir={tmp_path / 'run'}"]
    assert call_main(*words) == 0
    lines = capfd.readouterr().out.splitlines()
    told = next(k for k, line in enumerate(lines) if line.startswith("no budget: runs until Ctrl-C"))
    assert "budget.steps=" in lines[told] and lines[told + 1] == f"  python -m platform {shlex.join(words)}"
    assert call_main(*words, "budget.iterations=2") == 0
    assert "no budget" not in capfd.readouterr().out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["/usr/bin/python3", "-m", "platform", "-m", "seed=1,2"], "python -m platform"),
        (["/usr/bin/python3", "-X", "dev", "-m", "paddock"], "python -m paddock"),
        (["/usr/bin/python3", "/usr/bin/paddock", "-m", "seed=1,2"], "paddock"),
        (["/usr/bin/python3", "-m", "paddock.status", "runs"], "python -m paddock"),
    ],
)
def test_messages_name_the_command_as_it_was_started(
    words: list[str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = words[1] if words[1] != "-m" else "/site/__main__.py"
    monkeypatch.setattr("sys.orig_argv", words)
    monkeypatch.setattr("sys.argv", [script, *words[3:]])
    assert format_main_command(["algo=es"]) == f"{expected} algo=es"


def test_finished_run_without_checkpoints_is_not_repeated(
    short: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(short, tmp_path / "run")
    shutil.rmtree(run / "checkpoints")
    assert call_main(*arguments(run, FEW)) == 0
    assert f"already reached budget.iterations={FEW}" in capfd.readouterr().out
    assert call_main(*arguments(run, FEW + 1)) == 2
    err = capfd.readouterr().err
    assert "holds a finished run without a checkpoint" in err
    assert len(err.splitlines()) == 1
    assert (run / "metrics.jsonl").read_bytes() == (short / "metrics.jsonl").read_bytes()
    (run / "done.json").unlink()
    assert call_main(*arguments(run, FEW)) == 0
    assert_same_run(run, short)


def test_run_killed_while_its_folder_is_made_starts_again(short: Path, tmp_path: Path) -> None:
    bare, described = tmp_path / "bare", tmp_path / "described"
    for run in (bare, described):
        run.mkdir()
        (run / "lock").touch()
        (run / ".config.yaml.tmp").write_text("algo:")  # cut off
    (described / "config.yaml").write_bytes((short / "config.yaml").read_bytes())
    for run in (bare, described):
        assert call_main(*arguments(run, FEW)) == 0
        assert_same_run(short, run)
        assert (run / "provenance.json").exists()


# On another machine


def without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise ConfigError("vec=native needs the native environments, which were not built")

    monkeypatch.setattr(library, "load", missing)


def test_vec_auto_chooses_again_where_its_choice_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(auto, "ROUND_S", 0.001)  # whatever is fastest
    walk = ["algo=es", "env=bipedal", "env.max_episode_steps=20", "algo.population=2", "algo.eval_episodes=1"]
    run = [*walk, "compute=serial", "vec.num_envs=1", f"run.dir={tmp_path / 'run'}"]
    assert call_main(*run, "budget.iterations=1") == 0
    without_library(monkeypatch)
    assert call_main(*run, "budget.iterations=2") == 0
    out, err = capsys.readouterr()
    assert "vec=auto: the earlier layout is unavailable" in out and "policies act in NumPy" in err
    assert [row["iteration"] for row in rows(tmp_path / "run")] == [1, 2, 2]


def test_resume_on_other_processors_warns_of_changed_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    small = [
        "algo=ppo",
        "env=cartpole",
        "algo.num_steps=8",
        "algo.minibatch_size=16",
        "vec.num_envs=2",
        "compute=serial",
    ]
    assert call_main(*small, "vec=native", "budget.iterations=1", f"run.dir={run}") == 0
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["algo"] |= {"device": "cuda:7", "learners": 2}
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    without_library(monkeypatch)
    capsys.readouterr()
    assert call_main(*small, "vec=serial", "budget.iterations=2", f"run.dir={run}") == 0
    err, kept = capsys.readouterr().err.splitlines(), (run / "log.txt").read_text()
    told = [line.partition(":")[2].strip() for line in err if "may differ" in line]
    assert told == [
        "algo.device was cuda:7 and is now cpu; results may differ from here on",
        "algo.learners was 2 and is now 1; results may differ from here on",
        "vec was native and is now serial, which compute differently; results may differ from here on",
    ]
    assert all(f": {line}\n" in kept for line in told)
    assert f": running in {run}, workers: " in kept and f": resuming in {run}, workers: " in kept
    assert call_main(*small, "vec=multiprocess", "budget.iterations=3", f"run.dir={run}") == 0
    assert "may differ" not in capsys.readouterr().err  # the same numbers


def test_resume_with_other_packages_warns_of_changed_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    line = [*TINY, "compute=serial", f"run.dir={run}"]
    assert call_main(*line, "budget.iterations=1") == 0
    path = run / "provenance.json"
    now = json.loads(path.read_text())
    then = now | {"cpu": "abacus", "packages": now["packages"] | {"Gymnasium": "0.1", "torch": "0.2", "pytest": "0.3"}}
    del then["packages"]["gymnasium"]  # which was spelled otherwise
    path.write_text(json.dumps(then))
    monkeypatch.setattr(provenance, "sys", SimpleNamespace(modules={"torch": None, "gymnasium": None}, orig_argv=["x"]))
    capsys.readouterr()
    assert call_main(*line, "budget.iterations=2") == 0
    assert [line.partition(":")[2].strip() for line in capsys.readouterr().err.splitlines()] == [
        f"gymnasium was 0.1 and is now {now['packages']['gymnasium']}; results may differ from here on",
        f"torch was 0.2 and is now {now['packages']['torch']}; results may differ from here on",
        f"the processor was abacus and is now {now['cpu']}; results may differ from here on",
    ]


# A full disk


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file system of 300 kB, on which no edits of the code that is tested are noted."""
    monkeypatch.setattr("paddock.runs.folder.find_source", lambda folder: (None, None))
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", disk], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("only root may mount a file system")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


def test_full_disk_is_one_line_and_the_run_resumes_later(
    short: Path, small_disk: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run, ballast = small_disk / "run", small_disk / "ballast"
    assert call_main(*arguments(run, 5), "track=tensorboard") == 0
    for left in (8_192, 0):  # some rows more, nothing at all
        free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
        ballast.write_bytes(bytes(max(free - left, 0)))
        capfd.readouterr()
        code = call_main(*arguments(run, FEW), "track=tensorboard")
        err = capfd.readouterr().err
        said = [line for line in err.splitlines() if not line.startswith("warning: TensorBoard failed")]
        assert code == DISK_FULL and len(said) == 1, err
        assert said[0].startswith("paddock: ") and str(run) in said[0]
        assert "cannot be written (No space left on device); free disk space" in said[0]
        ballast.unlink()
        assert Checkpoints(run / "checkpoints", keep=3).load() is not None
    assert call_main(*arguments(run, FEW)) == 0
    assert_same_run(short, run)


@pytest.mark.parametrize("fails", ["checkpoint", "journal"])
def test_failed_write_is_one_line_and_loses_nothing(
    fails: str, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert call_main(*arguments(run, 4)) == 0
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.MonkeyPatch.context() as patch:
        if fails == "journal":

            def write_some(journal: Journal, row: Any) -> None:
                with storing(journal.path):
                    journal._file.write(b'{"iteration": 5, "st')
                    raise full

            patch.setattr(Journal, "write", write_some)
        else:
            write = paddock.runs.checkpoint.write_atomically

            def refuse(path: Path, content: bytes) -> None:
                if path.suffix == ".npz":
                    raise full
                write(path, content)

            patch.setattr("paddock.runs.checkpoint.write_atomically", refuse)
        capfd.readouterr()
        assert call_main(*arguments(run, 6)) == DISK_FULL
    err = capfd.readouterr().err
    assert err.count("\n") == 1 and "No space left on device" in err and f"the run so far is in {run}" in err
    assert call_main(*arguments(run, FEW)) == 0
    assert_same_run(short, run)


# Stopped


@pytest.mark.parametrize(("number", "compute"), [(signal.SIGTERM, "serial"), (signal.SIGINT, "local")])
def test_signal_finishes_the_iteration_and_saves(
    number: signal.Signals, compute: str, undisturbed: Path, tmp_path: Path, begin: Callable[..., Command]
) -> None:
    run = tmp_path / "run"
    command = begin(f"compute={compute}", "checkpoint.every_s=1000")
    wait_until(lambda: len(rows(run)) >= 2)
    if number == signal.SIGINT:
        command.interrupt()
    else:
        os.kill(command.process.pid, number)
    code, out, err = command.wait()
    assert code == 128 + number, err
    assert f"stopped by {number.name}" in out
    assert "Traceback" not in err
    wait_until(lambda: not command.processes())
    saved = read(max((run / "checkpoints").glob("*.npz")))
    unfinished = saved["loop"]["unfinished"]  # where it came in an evaluation
    assert saved["algorithm"]["iteration"] == len(rows(run)) + (unfinished is not None) < ITERATIONS
    (tmp_path / "slow").unlink()
    assert begin(f"compute={compute}").wait()[0] == 0
    assert_same_run(undisturbed, run)


FEW_STEPS = ["env=cartpole", "compute=serial", "vec.num_envs=2", "algo.hidden_sizes=[8]", "algo.eval_episodes=2"]
REPLAYED = [
    "algo.learning_starts=16",
    "algo.batch_size=8",
    "algo.log_every_steps=16",
    "algo.num_steps=4",
    "algo.eval_every_steps=48",
]
WAITING = {  # where an evaluation is played, and its run
    "es": ("paddock.algos.evolution.generation.play_members", [*TINY, "compute=serial", "budget.iterations=7"]),
    "ppo": (
        "paddock.algos.learning.async_evaluation.evaluate_on_worker",
        [
            "algo=ppo",
            *FEW_STEPS,
            "algo.num_steps=8",
            "algo.minibatch_size=8",
            "algo.eval_every_iterations=2",
            "budget.iterations=7",
        ],
    ),
    "dqn": (
        "paddock.algos.learning.async_evaluation.evaluate_on_worker",
        ["algo=dqn", *FEW_STEPS, *REPLAYED, "budget.steps=200"],
    ),
}


@pytest.mark.parametrize("algo", WAITING)
def test_signal_ends_the_wait_for_an_evaluation_without_loss(
    algo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """One comes in every evaluation, that of the run's end too, and the same command plays it when the run goes on."""
    place, words = WAITING[algo]
    whole, run = tmp_path / "whole", tmp_path / "run"
    assert call_main(*words, f"run.dir={whole}") == 0
    play: Any = pydoc.locate(place)
    met: set[int] = set()

    def interrupted(*arguments: Any) -> Any:
        shared = arguments[-1][0].value
        evaluates, iteration = (shared.evaluation, shared.iteration) if algo == "es" else (True, shared[0][0].version)
        if evaluates and iteration not in met:
            met.add(iteration)
            signal.raise_signal(signal.SIGINT)
            pytest.fail("it was played on")
        return play(*arguments)

    monkeypatch.setattr(place, interrupted)
    stops = 0
    while (code := call_main(*words, f"run.dir={run}")) == 128 + signal.SIGINT:
        stops += 1
        assert len(met) == stops and read_run_states([run])[0].state == "stopped"
    assert code == 0 and stops >= 4
    assert "stopped by SIGINT" in capfd.readouterr().out
    assert_same_run(whole, run)


def interrupt_evaluation(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Have a signal come in an evaluation of ES, from the next run on."""
    play: Any = pydoc.locate("paddock.algos.evolution.generation.play_members")
    begun = itertools.count(1)

    def interrupted(task: Any) -> Any:
        if task[0].value.evaluation and next(begun) == number:
            signal.raise_signal(signal.SIGINT)
        return play(task)

    monkeypatch.setattr("paddock.algos.evolution.generation.play_members", interrupted)


def test_first_row_waits_for_its_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_evaluation(monkeypatch, 1)
    run = tmp_path / "run"
    assert (
        call_main(*TINY, "compute=serial", "algo.eval_every_iterations=1", "budget.iterations=3", f"run.dir={run}")
        == 130
    )
    assert len(rows(run)) == 1 and [path.stem for path in (run / "checkpoints").glob("*.npz")] == ["00000001"]


def test_unfinished_row_is_completed_beyond_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_evaluation(monkeypatch, 1)
    run, words = (
        tmp_path / "run",
        [*TINY, "compute=serial", "algo.eval_every_iterations=2", f"run.dir={tmp_path / 'run'}"],
    )
    assert call_main(*words, "budget.iterations=3") == 130
    assert len(rows(run)) == 1
    algorithm, progress = load(run)  # for what plays its policy
    assert algorithm.iteration == progress.metrics["iteration"] == 2
    assert algorithm.step == progress.metrics["step"] > rows(run)[-1]["step"]
    assert call_main(*words, "budget.iterations=1") == 0
    assert [(row["iteration"], row.get("eval/of_iteration")) for row in rows(run)] == [(1, None), (2, 2)]


def test_run_saves_and_evaluates_before_its_plan_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the plan goes what is played beside it, such as an evaluation that the end of the run waits for."""
    plan, done = ES.plan, list[str]()

    def noted(self: ES) -> Any:
        try:
            yield from plan(self)
        finally:
            done.append("closed")

    def evaluated(self: ES) -> list[dict[str, float]]:
        done.append("evaluated")
        return []

    monkeypatch.setattr(ES, "plan", noted)
    monkeypatch.setattr(ES, "evaluate_last", evaluated)
    monkeypatch.setattr(Checkpoints, "save", lambda self, *_: done.append("saved"))
    assert call_main(*TINY, "compute=serial", "budget.iterations=1", f"run.dir={tmp_path / 'run'}") == 0
    assert done == ["saved", "evaluated", "closed"]


def test_signal_in_a_run_s_last_iteration_ends_its_grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = ES.plan

    def interrupted(self: ES) -> Any:
        for row in plan(self):
            if row["iteration"] == 2:
                signal.raise_signal(signal.SIGINT)
            yield row

    monkeypatch.setattr(ES, "plan", interrupted)
    words = [*TINY, "compute=serial", "budget.iterations=2", "seed=1,2", f"hydra.sweep.dir={tmp_path}"]
    assert call_main("--multirun", *words) == 130
    assert [run.state for run in read_run_states([tmp_path / "0"])] == ["done"] and not (tmp_path / "1").exists()


def test_signal_waits_until_the_pool_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask would wait ten seconds for a close that was cut short."""
    closed = []

    def close(self: LazyPool) -> None:
        signal.raise_signal(signal.SIGINT)
        closed.append(self)

    monkeypatch.setattr(LazyPool, "close", close)
    run = tmp_path / "run"
    assert call_main(*TINY, "compute=serial", "budget.iterations=1", f"run.dir={run}") == 130
    assert len(closed) == 1 and read_run_states([run])[0].state == "done"


def test_second_interrupt_ends_all_processes_at_once(tmp_path: Path, start: Callable[..., Command]) -> None:
    begun = tmp_path / "begun"
    (tmp_path / "mine.py").write_text(
        f"""
from pathlib import Path

import gymnasium
from gymnasium.envs.classic_control import PendulumEnv


class Telling(PendulumEnv):
    steps = 0

    def step(self, action):
        Telling.steps += 1
        if Telling.steps == 100:
            Path({str(begun)!r}).touch()
        return super().step(action)


gymnasium.register("Telling-v0", Telling, max_episode_steps=200)
"""
    )
    # An iteration of many minutes, so that only the second interrupt can end it.
    command = start(
        "algo=es",
        "env=gymnasium",
        "env.id=mine:Telling-v0",
        "algo.population=20000",
        "algo.pairs_per_task=500",
        "compute=local",
        "compute.workers=2",
        f"run.dir={tmp_path / 'run'}",
        PYTHONPATH=str(tmp_path),
    )
    wait_until(lambda: begun.exists() or command.process.poll() is not None)
    os.kill(command.process.pid, signal.SIGINT)
    assert command.process.stdout is not None
    for line in command.process.stdout:
        if "Ctrl-C again quits now, without a checkpoint yet" in line:
            break
    os.kill(command.process.pid, signal.SIGINT)
    assert command.process.wait(60) == 130
    assert command.process.stdout.read() == "quit now, without a checkpoint yet\n"
    wait_until(lambda: not command.processes())
