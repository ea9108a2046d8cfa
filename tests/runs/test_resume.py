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
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from conftest import ROOT, TINY, Command, assert_same_run, call_main, kill_and_resume, rows, wait_until
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from own_package import write_package
from tiny_runs import FEW, ITERATIONS, arguments, short_fixture, undisturbed_fixture  # noqa: F401

import paddock.runs.checkpoint
from paddock.algos.dqn import DQN
from paddock.algos.es import ES
from paddock.algos.learning.replay.room import ReplayError
from paddock.algos.pool.late import LatePool
from paddock.config.experiment import last_path
from paddock.envs.errors import NO_ROOM, ConfigError
from paddock.envs.native import library
from paddock.envs.vector import auto
from paddock.evaluation.load import load
from paddock.runs import provenance
from paddock.runs.checkpoint import Checkpoints, read, storing
from paddock.runs.results import read_events
from paddock.runs.state import read_run_states
from paddock.tracking.tracker import Journal

# Killed


@pytest.mark.parametrize("compute", ["serial", "local"])
def test_killed_and_resumed_equals_undisturbed(
    compute: str, undisturbed: Path, tmp_path: Path, start: Callable[..., Command]
) -> None:
    run = tmp_path / "run"
    begin = partial(start, *arguments(run), f"compute={compute}")
    assert kill_and_resume(begin, run, kills=3, furthest=8, chance=random.Random(compute)) < ITERATIONS
    assert_same_run(undisturbed, run)


@pytest.fixture
def begin(tmp_path: Path, start: Callable[..., Command]) -> Callable[..., Command]:
    """Start the run of a test; while the file `slow` is there it takes ten seconds, so that a signal comes before."""
    write_package(tmp_path, tmp_path / "slow", pace_s=0.01)
    (tmp_path / "slow").touch()
    words = [*arguments(tmp_path / "run"), "env=gymnasium", "env.id=mine:Paced-v0"]
    return partial(start, *words, PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]))


def test_killed_before_its_first_checkpoint_a_run_starts_again(
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
    assert f"{run} begins anew: it came to iteration {come} and to no checkpoint (checkpoint.every_s=0)" in out
    assert_same_run(undisturbed, run)


@pytest.mark.parametrize(
    ("name", "folder"),
    [("run.name=null", "*_es_*_seed2"), ("algo.name=0", "*_0_*_seed2"), ("run.name={seed}.5", "*_2.5")],
)
def test_resume_last_goes_on_with_the_newest_run(
    name: str, folder: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    root = [*TINY, "compute=serial", f"run.root={tmp_path}"]
    for seed in (1, 2):
        assert call_main(*root, f"seed={seed}", name.format(seed=seed), "budget.iterations=3") == 0
    capfd.readouterr()
    assert call_main(*root, "seed=2", name.format(seed=2), "budget.iterations=5", "resume=last") == 0
    (run,) = tmp_path.glob(folder)
    assert f"going on in {run}" in capfd.readouterr().out
    assert [row["iteration"] for row in rows(run)] == [1, 2, 3, 4, 5, 5]


def test_commands_at_the_end_of_a_run_name_its_folder_as_a_shell_reads_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "mine (1) & yours"
    assert call_main(*TINY, "compute=serial", "budget.iterations=1", f"run.dir='{run}'") == 0
    said = [line for line in capfd.readouterr().out.splitlines() if line.startswith("  python -m paddock")]
    evaluate, plot, again = (shlex.split(line, comments=True)[2:] for line in said)
    assert evaluate == ["paddock.evaluate", str(run), f"video={run}/episode.mp4"]
    assert plot == ["paddock.plot", str(run)] and again[-1] == f"run.dir='{run}'"


def test_the_last_run_is_neither_a_copy_nor_one_that_repeats_another(tmp_path: Path) -> None:
    def note(name: str, **noted: str) -> Path:
        (tmp_path / name).mkdir()
        (tmp_path / name / "provenance.json").write_text(json.dumps(noted))
        return tmp_path / name

    last = note("b", started="2026-03-01T12:00:00+02:00")
    note("a", started="2026-03-01T09:59:59+00:00")
    shutil.copytree(last, tmp_path / "c")
    note("b-rerun", started="2026-03-02T12:00:00+02:00", repeats=str(last))
    for age, path in enumerate(("b-rerun", "c", "a", "b")):  # the newest first
        os.utime(tmp_path / path / "provenance.json", (10_000 - age, 10_000 - age))
    assert last_path(tmp_path) == last
    note("damaged")
    assert last_path(tmp_path) == tmp_path / "damaged"


def test_a_finished_run_says_so_and_a_raised_budget_goes_on(
    short: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert call_main(*arguments(run, 10)) == 0
    before = (run / "metrics.jsonl").read_bytes()
    capfd.readouterr()
    assert call_main(*arguments(run, 10)) == 0
    assert "has reached budget.iterations=10 before" in capfd.readouterr().out
    assert (run / "metrics.jsonl").read_bytes() == before
    assert call_main(*arguments(run, FEW)) == 0
    assert_same_run(short, run)


def test_a_finished_run_without_its_checkpoints_is_not_played_anew(
    short: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(short, tmp_path / "run")
    shutil.rmtree(run / "checkpoints")
    assert call_main(*arguments(run, FEW)) == 0
    assert f"has reached budget.iterations={FEW} before" in capfd.readouterr().out
    assert call_main(*arguments(run, FEW + 1)) == 2
    err = capfd.readouterr().err
    assert "has ended, and no checkpoint to go on from; delete its done.json to start again" in err
    assert len(err.splitlines()) == 1
    assert (run / "metrics.jsonl").read_bytes() == (short / "metrics.jsonl").read_bytes()
    (run / "done.json").unlink()
    assert call_main(*arguments(run, FEW)) == 0
    assert_same_run(run, short)


def test_killed_while_its_folder_is_made_a_run_starts_again(
    short: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    assert "anew" not in capsys.readouterr().out  # of a run that had come to nothing there is nothing to say


# On another machine


def without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise ConfigError("vec=native needs the native environments, which were not built")

    monkeypatch.setattr(library, "load", missing)


def test_what_vec_auto_chose_before_is_chosen_anew_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(auto, "ROUND_S", 0.001)  # whatever is fastest
    walk = ["algo=es", "env=bipedal", "env.max_episode_steps=20", "algo.population=2", "algo.eval_episodes=1"]
    run = [*walk, "compute=serial", "vec.num_envs=1", f"run.dir={tmp_path / 'run'}"]
    assert call_main(*run, "budget.iterations=1") == 0
    without_library(monkeypatch)
    assert call_main(*run, "budget.iterations=2") == 0
    out, err = capsys.readouterr()
    assert "vec=auto: not as before, for" in out and err == ""
    assert [row["iteration"] for row in rows(tmp_path / "run")] == [1, 2, 2]


def test_a_run_goes_on_without_the_layout_or_the_compiler_it_began_with_and_says_what_that_means(
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
    config["algo"] |= {"device": "cuda:7", "compiled": True, "learners": 2}
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    without_library(monkeypatch)
    capsys.readouterr()
    assert call_main(*small, "vec=serial", "budget.iterations=2", f"run.dir={run}") == 0
    err, kept = capsys.readouterr().err.splitlines(), (run / "log.txt").read_text()
    told = [line.partition(":")[2].strip() for line in err if "may differ" in line]
    assert told == [
        "algo.compiled was True and is now False: from here on numbers may differ",
        "algo.device was cuda:7 and is now cpu: from here on numbers may differ",
        "algo.learners was 2 and is now 1: from here on numbers may differ",
        "vec was native and is now serial, with arithmetic of their own: from here on numbers may differ",
    ]
    assert all(f": {line}\n" in kept for line in told)
    assert f": running in {run}, workers: " in kept and f": going on in {run}, workers: " in kept
    assert call_main(*small, "vec=multiprocess", "budget.iterations=3", f"run.dir={run}") == 0
    assert "may differ" not in capsys.readouterr().err  # the same numbers


def test_a_run_goes_on_with_other_packages_and_on_another_processor_and_says_so(
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
        f"gymnasium was 0.1 and is now {now['packages']['gymnasium']}: from here on numbers may differ",
        f"torch was 0.2 and is now {now['packages']['torch']}: from here on numbers may differ",
        f"the processor was abacus and is now {now['cpu']}: from here on numbers may differ",
    ]


def test_what_a_run_does_not_use_is_no_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "sys", SimpleNamespace(modules={"numpy": None}))
    monkeypatch.setattr(provenance, "ask", lambda *command: "NVIDIA H200\n")
    then = {"cpu": "abacus", "gpus": ["NVIDIA A100"], "packages": {"numpy": "1", "torch": "1", "own-games": "1"}}
    monkeypatch.setattr(provenance, "_packages", lambda: {"numpy": "2", "torch": "2", "own_games": "2"}.items())
    said = [
        "numpy was 1 and is now 2",
        "own-games was 1 and is now 2",
        "the GPU was NVIDIA A100 and is now NVIDIA H200",
    ]
    assert provenance.changed_surroundings(then, ["own_games"], on_gpu=True) == said
    assert provenance.changed_surroundings(then, [], on_gpu=False) == said[:1]
    for unknown in ({}, {"cpu": None, "gpus": None, "packages": None}, {"gpus": [], "packages": ["numpy"]}):
        assert provenance.changed_surroundings(unknown, ["own_games"], on_gpu=True) == []
    more = {**then, "gpus": ["NVIDIA H200"] * 2, "packages": {}}  # another number of the same is no other GPU
    assert provenance.changed_surroundings(more, [], on_gpu=True) == []


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


@pytest.mark.parametrize("track", ["none", "tensorboard"])
def test_a_full_disk_ends_in_one_line_and_after_room_was_made_the_run_goes_on(
    track: str, short: Path, small_disk: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run, ballast = small_disk / "run", small_disk / "ballast"
    assert call_main(*arguments(run, 5), f"track={track}") == 0
    for left in (8_192, 4_096, 0):  # some rows more, a page, nothing at all
        free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
        ballast.write_bytes(bytes(max(free - left, 0)))
        capfd.readouterr()
        code = call_main(*arguments(run, FEW), f"track={track}")
        err = capfd.readouterr().err
        said = [line for line in err.splitlines() if not line.startswith("warning: TensorBoard failed")]
        assert code == NO_ROOM and len(said) == 1, err
        assert said[0].startswith("paddock: ") and str(run) in said[0]
        assert "cannot be written (No space left on device); make room" in said[0]
        ballast.unlink()
        assert Checkpoints(run / "checkpoints", keep=3).load() is not None
    assert call_main(*arguments(run, FEW), f"track={track}") == 0
    assert_same_run(short, run)


def test_a_disk_that_is_full_from_the_start_is_named(
    small_disk: Path, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (small_disk / "ballast").write_bytes(bytes(os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize))
    assert call_main(*arguments(small_disk / "run", 5)) == NO_ROOM
    err = capfd.readouterr().err
    assert err.count("\n") == 1 and f"run.dir={small_disk / 'run'} cannot be written (No space left" in err


@pytest.mark.parametrize("fails", ["checkpoint", "journal", "done.json"])
def test_a_write_that_fails_is_one_line_and_loses_nothing(
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
                if path.suffix == ".npz" if fails == "checkpoint" else path.name == "done.json":
                    raise full
                write(path, content)

            patch.setattr("paddock.runs.checkpoint.write_atomically", refuse)
            patch.setattr("paddock.runs.folder.write_atomically", refuse)
        capfd.readouterr()
        assert call_main(*arguments(run, 6)) == NO_ROOM
    err = capfd.readouterr().err
    assert err.count("\n") == 1 and "No space left on device" in err and f"the run so far is in {run}" in err
    assert call_main(*arguments(run, FEW)) == 0
    assert_same_run(short, run)


def test_a_log_on_a_full_disk_changes_no_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = arguments(tmp_path / "run", 2)
    for stream, words, code in (("stdout", run, 0), ("stderr", [*run, "algo.sigma=-1"], 2)):
        with open("/dev/full", "w") as full, monkeypatch.context() as patch:
            patch.setattr(sys, stream, full)
            assert call_main(*words) == code
    monkeypatch.setattr(sys, "stderr", None)  # the shell has closed it
    assert call_main(*run, "algo.sigma=-1") == 2


# Stopped


@pytest.mark.parametrize(
    ("number", "compute"), [(signal.SIGINT, "serial"), (signal.SIGTERM, "serial"), (signal.SIGINT, "local")]
)
def test_a_signal_finishes_the_iteration_saves_and_exits_with_its_code(
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


FEW_STEPS = ["env=cartpole", "compute=serial", "vec.num_envs=2", "algo.hidden=[8]", "algo.eval_episodes=2"]
REPLAYED = ["algo.warmup=16", "algo.batch_size=8", "algo.row_every=16", "algo.num_steps=4", "algo.eval_every=48"]
WAITING = {  # where an evaluation is played, and its run
    "es": ("paddock.algos.es.play_members", [*TINY, "compute=serial", "budget.iterations=7"]),
    "ppo": (
        "paddock.algos.learning.async_evaluation.evaluate_on_worker",
        [
            "algo=ppo",
            *FEW_STEPS,
            "algo.num_steps=8",
            "algo.minibatch_size=8",
            "algo.eval_every=2",
            "budget.iterations=7",
        ],
    ),
    "dqn": (
        "paddock.algos.learning.async_evaluation.evaluate_on_worker",
        ["algo=dqn", *FEW_STEPS, *REPLAYED, "budget.steps=200"],
    ),
}


@pytest.mark.parametrize("algo", WAITING)
def test_a_signal_ends_the_wait_for_an_evaluation_and_nothing_is_lost(
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
        evaluates, iteration = (
            (shared.sigma is None, shared.iteration) if algo == "es" else (True, shared[0][0].version)
        )
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
    play: Any = pydoc.locate("paddock.algos.es.play_members")
    begun = itertools.count(1)

    def interrupted(task: Any) -> Any:
        if task[0].value.sigma is None and next(begun) == number:
            signal.raise_signal(signal.SIGINT)
        return play(task)

    monkeypatch.setattr("paddock.algos.es.play_members", interrupted)


def test_the_first_row_waits_for_its_evaluation_as_there_is_nothing_else_to_keep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_evaluation(monkeypatch, 1)
    run = tmp_path / "run"
    assert call_main(*TINY, "compute=serial", "algo.eval_every=1", "budget.iterations=3", f"run.dir={run}") == 130
    assert len(rows(run)) == 1 and [path.stem for path in (run / "checkpoints").glob("*.npz")] == ["00000001"]


def test_an_unfinished_row_is_finished_though_the_budget_is_reached_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count_seen = ES._count_seen

    def tell(self: Any, episodes: Any) -> None:
        self.told = [{"iteration": self.iteration + 1, "step": 0, "event": "seen"}]
        count_seen(self, episodes)

    def drain(self: Any) -> Any:
        return [self.told.pop() for _ in list(vars(self).get("told", ()))]

    monkeypatch.setattr(ES, "_count_seen", tell)
    monkeypatch.setattr(ES, "drain_events", drain, raising=False)
    interrupt_evaluation(monkeypatch, 1)
    run, words = tmp_path / "run", [*TINY, "compute=serial", "algo.eval_every=2", f"run.dir={tmp_path / 'run'}"]
    assert call_main(*words, "budget.iterations=3") == 130
    assert len(rows(run)) == 1
    algorithm, progress = load(run)  # for what plays its policy
    assert algorithm.iteration == progress.metrics["iteration"] == 2
    assert algorithm.step == progress.metrics["step"] > rows(run)[-1]["step"]
    assert call_main(*words, "budget.iterations=1") == 0
    assert [(row["iteration"], row.get("eval/of_iteration")) for row in rows(run)] == [(1, None), (2, 2)]
    assert [event["iteration"] for event in read_events(run)] == [1, 2]


def test_a_run_that_lacks_the_evaluation_of_its_end_alone_asks_for_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> None:
        raise ReplayError("the disk is full")

    words = [*WAITING["dqn"][1], f"run.dir={tmp_path / 'run'}"]
    assert call_main(*words) == 0
    (tmp_path / "run/done.json").unlink()  # as if it had been killed in it
    whole = shutil.copytree(tmp_path / "run", tmp_path / "whole")
    monkeypatch.setattr(DQN, "check_room", refuse)
    assert call_main(*words) == 0
    assert_same_run(whole, tmp_path / "run")


def test_a_plan_is_closed_by_the_run_which_its_error_there_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = ES.plan

    def failing(self: ES) -> Any:
        try:
            yield from plan(self)
        finally:
            raise OSError("at its end")

    monkeypatch.setattr(ES, "plan", failing)
    with pytest.raises(OSError, match="at its end"):
        call_main(*TINY, "compute=serial", "budget.iterations=1", f"run.dir={tmp_path / 'run'}")


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("raises", [True, False])
def test_a_fork_that_an_environment_makes_is_no_second_run(
    raises: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends where it comes back from the environment, or by the next row."""
    step, here, forks = CartPoleEnv.step, os.getpid(), list[int]()

    def stepped(self: CartPoleEnv, action: Any) -> Any:
        if not forks:
            forks.append(os.fork())
            if forks == [0] and raises:
                raise RuntimeError("in the fork")
            if forks != [0]:
                os.waitpid(forks[0], 0)
        return step(self, action)

    def play(name: str) -> Path:
        folder, tiny = tmp_path / name, ["algo.num_steps=16", "algo.minibatch_size=16", "algo.hidden=[8]"]
        words = ["algo=ppo", "env=cartpole", "vec=serial", "vec.num_envs=2", "compute=serial", *tiny]
        assert call_main(*words, "budget.iterations=2", f"run.dir={folder}") == 0
        if os.getpid() != here:
            os._exit(9)
        return folder

    undisturbed = play("undisturbed")
    monkeypatch.setattr(CartPoleEnv, "step", stepped)
    assert_same_run(play("forked"), undisturbed)


def test_a_run_saves_and_evaluates_before_its_plan_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_signal_in_the_last_iteration_of_a_run_ends_its_grid_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_signal_as_a_pool_is_closed_comes_once_that_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask would wait ten seconds for a close that was cut short."""
    closed = []

    def close(self: LatePool) -> None:
        signal.raise_signal(signal.SIGINT)
        closed.append(self)

    monkeypatch.setattr(LatePool, "close", close)
    run = tmp_path / "run"
    assert call_main(*TINY, "compute=serial", "budget.iterations=1", f"run.dir={run}") == 130
    assert len(closed) == 1 and read_run_states([run])[0].state == "done"


def test_a_second_interrupt_leaves_at_once_and_no_process(tmp_path: Path, start: Callable[..., Command]) -> None:
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
        if "stopping after this iteration; Ctrl-C again leaves at once, without a checkpoint yet" in line:
            break
    os.kill(command.process.pid, signal.SIGINT)
    assert command.process.wait(60) == 130
    assert command.process.stdout.read() == "left at once, without a checkpoint yet\n"
    wait_until(lambda: not command.processes())
