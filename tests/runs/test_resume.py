"""Stop and resume: a run that is killed at any moment and resumed is the run that was not."""

import errno
import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from conftest import TINY, Command, assert_same_run, call_main, kill_and_resume, rows, wait_until

import paddock.runs.checkpoint
from algos.pool.late import LatePool
from algos.pool.protocol import PoolError
from envs.errors import NO_ROOM, ConfigError
from envs.native import library
from envs.vector import auto
from paddock.config import experiment
from paddock.runs.checkpoint import CheckpointError, Checkpoints, check_fits, read, storing
from paddock.runs.folder import FolderError, FolderInUse, RunFolder
from paddock.runs.identity import changed_keys
from paddock.runs.provenance import find_source
from paddock.runs.state import last_metrics
from paddock.tracking.tracker import Journal

ITERATIONS = 60  # three quarters of a second, in which a kill comes early enough
FEW = 20  # where nothing is killed


def arguments(run: Path, iterations: int = ITERATIONS) -> list[str]:
    return [*TINY, "compute=serial", f"budget.iterations={iterations}", f"run.dir={run}"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    assert call_main(*arguments(run)) == 0
    return run


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("short") / "run"
    assert call_main(*arguments(run, FEW)) == 0
    return run


# Killed


@pytest.mark.parametrize("compute", ["serial", "local"])
def test_killed_and_resumed_equals_undisturbed(
    compute: str, undisturbed: Path, tmp_path: Path, start: Callable[..., Command]
) -> None:
    run = tmp_path / "run"
    begin = partial(start, *arguments(run), f"compute={compute}")
    assert kill_and_resume(begin, run, kills=3, furthest=8, chance=random.Random(compute)) < ITERATIONS
    assert_same_run(undisturbed, run)


def test_killed_before_its_first_checkpoint_a_run_starts_again(
    undisturbed: Path, tmp_path: Path, start: Callable[..., Command]
) -> None:
    run = tmp_path / "run"
    command = start(*arguments(run), "checkpoint.every_s=1000")
    wait_until(lambda: len(rows(run)) >= 3)
    os.kill(command.process.pid, signal.SIGKILL)
    command.process.wait()
    assert not list(run.glob("checkpoints/*.npz"))
    code, _, err = start(*arguments(run)).wait()
    assert code == 0, err
    assert_same_run(undisturbed, run)


def test_resume_last_goes_on_with_the_newest_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    root = [*TINY, "compute=serial", f"run.root={tmp_path}"]
    for seed in (1, 2):
        assert call_main(*root, f"seed={seed}", "budget.iterations=3") == 0
    capfd.readouterr()
    assert call_main(*root, "seed=2", "budget.iterations=5", "resume=last") == 0
    (run,) = tmp_path.glob("*_seed2")
    assert f"going on in {run}" in capfd.readouterr().out
    assert [row["iteration"] for row in rows(run)] == [1, 2, 3, 4, 5, 5]


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


def test_killed_while_its_folder_is_made_a_run_starts_again(short: Path, tmp_path: Path) -> None:
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


# Two at once


def test_a_run_is_locked_before_its_pool_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, opened = tmp_path / "run", LatePool.open

    def open_slowly(pool: LatePool, *settings: Any) -> None:
        with pytest.raises(FolderError, match="is in use by another process"):
            RunFolder.open(run, {})
        opened(pool, *settings)

    monkeypatch.setattr(LatePool, "open", open_slowly)
    assert call_main(*arguments(run, 2)) == 0, capsys.readouterr().err
    assert len(rows(run)) == 2


def test_a_run_is_not_in_use_because_somebody_looks_whether_it_is(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    with open(run / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)  # as `paddock.status` does, for a moment
        threading.Timer(0.05, fcntl.flock, [lock, fcntl.LOCK_UN]).start()
        RunFolder.open(run, {}).release()
        fcntl.flock(lock, fcntl.LOCK_SH)
        with pytest.raises(FolderInUse):
            RunFolder.open(run, {})


def test_what_another_process_added_before_the_lock_was_free_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, ahead, opened = tmp_path / "run", tmp_path / "ahead", RunFolder.open
    assert call_main(*arguments(run, 2)) == 0
    shutil.copytree(run, ahead)
    assert call_main(*arguments(ahead, 6)) == 0

    def open_late(path: Path, config: Any, **how: bool) -> RunFolder:
        shutil.rmtree(run)
        shutil.copytree(ahead, run)
        return opened(path, config, **how)

    monkeypatch.setattr(RunFolder, "open", open_late)
    assert call_main(*arguments(run, 4)) == 0
    assert "has reached budget.iterations=4 before" in capsys.readouterr().out
    assert_same_run(run, ahead)


@pytest.mark.parametrize("when", ["before it is checked", "before it is locked"])
def test_of_runs_that_begin_in_the_same_second_each_has_a_folder(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rival, opened, chosen = tmp_path / "rival", RunFolder.open, experiment.new_path
    assert call_main(*arguments(rival, 1), "seed=1") == 0
    begun: list[Path] = []

    def begin(path: Path) -> None:
        if not begun:
            begun.append(shutil.copytree(rival, path))

    def choose(root: Path, name: str) -> Path:
        path = chosen(root, name)
        if when == "before it is checked":
            begin(path)
        return path

    def open_late(path: Path, config: Any, **how: bool) -> RunFolder:
        begin(path)
        return opened(path, config, **how)

    monkeypatch.setattr(experiment, "new_path", choose)
    monkeypatch.setattr(RunFolder, "open", open_late)
    words = [word for word in arguments(rival, 2) if not word.startswith("run.dir=")]
    assert call_main(*words, f"run.root={tmp_path / 'runs'}") == 0, capsys.readouterr().err
    theirs, own = sorted((tmp_path / "runs").iterdir())
    assert (theirs, rows(theirs), len(rows(own))) == (begun[0], rows(rival), 2)


def test_of_grids_that_begin_in_the_same_second_each_has_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    this_second = SimpleNamespace(strftime=lambda _: "this second")
    monkeypatch.setattr("hydra.core.utils.datetime", SimpleNamespace(now=lambda: this_second))
    grid = [*TINY, "compute=serial", "budget.iterations=1", "--multirun"]
    for words in (["seed=1,2"], ["seed=1,2"], ["seed=3"], ["seed=4", "algo.sigma=-1"]):
        assert call_main(*grid, *words) == (2 if "algo.sigma=-1" in words else 0), capsys.readouterr().err
    assert "has reached" not in capsys.readouterr().out
    found = {str(path.parent.relative_to(tmp_path / "multirun")) for path in tmp_path.rglob("metrics.jsonl")}
    assert found == {f"this second{n}/{job}" for n, job in [("", 0), ("", 1), ("-2", 0), ("-2", 1), ("-3", 0)]}
    assert len(list((tmp_path / "multirun").iterdir())) == 3


def test_another_number_of_environments_is_named_by_its_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["algo=ppo", "env=cartpole", "algo.num_steps=4", "algo.hidden=[8]", "compute=serial", "budget.iterations=1"]
    run = [*small, f"run.dir={tmp_path}", "algo.minibatch_size=8"]
    assert call_main(*run, "vec.num_envs=2") == 0
    capsys.readouterr()
    assert call_main(*run, "vec.num_envs=4") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"run.dir={tmp_path}" in line and "vec.num_envs was 2 and is now 4; use the run's own value, or" in line


def test_a_file_system_without_locks_is_one_line_and_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(FolderError, match=r"cannot be locked \(Function not implemented\); .*run.dir="):
        RunFolder.open(tmp_path / "run", {})
    assert not list(tmp_path.iterdir())


def test_a_name_that_is_too_long_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=r"cannot be written \(File name too long\); .*run.dir="):
        experiment.new_path(tmp_path, 300 * "a")


def test_a_pool_that_cannot_open_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise PoolError("no scheduler")

    monkeypatch.setattr(LatePool, "open", refuse)
    assert call_main(*arguments(tmp_path / "new" / "run", 2)) == 2
    assert list(tmp_path.iterdir()) == []


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
    err = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[2].strip() for line in err if "last bits" in line] == [
        "algo.compiled was True and is now False: from here on numbers may differ in their last bits",
        "algo.device was cuda:7 and is now cpu: from here on numbers may differ in their last bits",
        "algo.learners was 2 and is now 1: from here on numbers may differ in their last bits",
        "vec was native and is now serial, with arithmetic of their own: from here on numbers may differ in their last "
        "bits",
    ]
    assert call_main(*small, "vec=multiprocess", "budget.iterations=3", f"run.dir={run}") == 0
    assert "last bits" not in capsys.readouterr().err  # the same numbers


# A full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 300 kB."""
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
    number: signal.Signals, compute: str, undisturbed: Path, tmp_path: Path, start: Callable[..., Command]
) -> None:
    run = tmp_path / "run"
    command = start(*arguments(run), f"compute={compute}", "checkpoint.every_s=1000")
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
    assert saved["algorithm"]["iteration"] == len(rows(run)) < ITERATIONS
    assert start(*arguments(run), f"compute={compute}").wait()[0] == 0
    assert_same_run(undisturbed, run)


def test_a_second_interrupt_leaves_at_once_and_no_process(tmp_path: Path, start: Callable[..., Command]) -> None:
    run = tmp_path / "run"
    # An iteration of many minutes, so that only the second interrupt can end it.
    command = start(
        "algo=es",
        "env=pendulum",
        "algo.population=20000",
        "algo.pairs_per_task=500",
        "compute=local",
        "compute.workers=2",
        f"run.dir={run}",
    )
    wait_until(lambda: (run / "config.yaml").exists() and (run / "metrics.jsonl").exists())
    os.kill(command.process.pid, signal.SIGINT)
    assert command.process.stdout is not None
    for line in command.process.stdout:
        if "stopping after this iteration" in line:
            break
    os.kill(command.process.pid, signal.SIGINT)
    assert command.process.wait(60) == 130
    wait_until(lambda: not command.processes())


# Checkpoints


def state(iteration: int) -> dict[str, Any]:
    array = np.arange(5.0) * iteration
    return {"algorithm": {"mean": array, "deep": {"count": 3, "rate": 0.1}}, "loop": {"iteration": iteration}}


def test_a_checkpoint_goes_round_unchanged(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=3)
    path = checkpoints.save(7, state(7))
    loaded = read(path)
    np.testing.assert_array_equal(loaded["algorithm"]["mean"], state(7)["algorithm"]["mean"])
    assert loaded["algorithm"]["deep"] == {"count": 3, "rate": 0.1}
    with np.load(path) as archive:  # readable without this program
        assert json.loads(str(archive["plain"]))["loop"] == {"iteration": 7}


PLAIN_DATA = {
    "arrays in lists": {"means": [np.arange(3.0), [np.ones((2, 0), np.float32)]], "none": []},
    "tuples": {"shape": (1, (2.5, None)), "pair": [(True, "x")]},
    "keys that are no text": {"niches": {3: np.arange(3), 0: {"a": 1}, None: 2, 2.5: 3, True: 4}},
    "scalars": {
        "f": np.float32(0.1),
        "d": np.float64(0.1),
        "i": np.int16(-3),
        "b": np.bool_(True),
        "nan": float("inf"),
    },
    "names that savez takes": {"file": np.arange(2), "allow_pickle": np.arange(3), "plain": np.arange(4)},
    "names spelled alike": {"a.b": np.arange(2), "a": {"b": np.arange(3)}, "x": np.ones(1), "x.npy": np.ones(2)},
    "names of tags": {"a": {"__array__": True}, "b": {"__tuple__": [1]}, "c": {"__scalar__": ["<f4", 1]}},
    "dtypes and orders": {"f": np.asfortranarray(np.ones((2, 3))), "zero": np.array(5), "u": np.array(["ab", "c"])},
}


def assert_equal(one: Any, other: Any) -> None:
    """Equal in value and type, at any depth."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other) and list(map(type, one)) == list(map(type, other))
        for key in one:
            assert_equal(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for item, same in zip(one, other, strict=True):
            assert_equal(item, same)
    elif isinstance(one, np.ndarray | np.generic):
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    else:
        assert one == other


@pytest.mark.parametrize("plain", PLAIN_DATA.values(), ids=PLAIN_DATA.keys())
def test_whatever_a_checkpoint_keeps_comes_back_in_value_and_type(plain: dict[str, Any], tmp_path: Path) -> None:
    assert_equal(read(Checkpoints(tmp_path / "checkpoints", keep=1).save(1, plain)), plain)


@pytest.mark.parametrize(
    ("value", "kind"),
    [({1, 2}, "set"), (np.array([None]), "object"), (b"x", "bytes"), (Path("x"), "Path"), ({(1, 2): 3}, "dict")],
)
def test_what_a_checkpoint_cannot_keep_is_refused_by_its_leaf(value: Any, kind: str, tmp_path: Path) -> None:
    with pytest.raises(
        CheckpointError, match=rf"'algorithm.deep.1' holds a \w*{kind}.*; allowed: None, numbers"
    ) as caught:
        Checkpoints(tmp_path / "checkpoints", keep=1).save(1, {"algorithm": {"deep": [0, value]}})
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "checkpoints").exists()


def test_a_checkpoint_cut_off_at_any_byte_never_loses_the_one_before(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=3)
    checkpoints.save(1, state(1))
    newest = checkpoints.save(2, state(2))
    whole = newest.read_bytes()
    for length in range(len(whole)):
        newest.write_bytes(whole[:length])
        loaded = checkpoints.load()
        assert loaded is not None and loaded["loop"]["iteration"] == 1, length
    newest.write_bytes(whole)
    loaded = checkpoints.load()
    assert loaded is not None and loaded["loop"]["iteration"] == 2


def test_a_flipped_byte_in_an_array_is_noticed(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=3)
    path = checkpoints.save(1, state(1))
    content = bytearray(path.read_bytes())
    where = content.find(np.arange(5.0).tobytes())
    content[where + 9] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="damaged"):
        read(path)


def test_a_flipped_bit_that_makes_an_array_look_encrypted_is_damage(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=3)
    checkpoints.save(1, state(1))
    path = checkpoints.save(2, state(2))
    content = bytearray(path.read_bytes())
    content[content.find(b"PK\x01\x02") + 8] ^= 1  # the flags of the first entry of the archive's directory
    path.write_bytes(content)
    loaded = checkpoints.load()
    assert loaded is not None and loaded["loop"]["iteration"] == 1


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2)
    for iteration in (1, 5, 9, 100):
        checkpoints.save(iteration, state(iteration))
    assert [path.name for path in checkpoints.paths()] == ["00000100.npz", "00000009.npz"]
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2


def test_a_damaged_checkpoint_never_pushes_out_those_saved_after_it(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=1)
    checkpoints.save(9, state(9)).write_bytes(b"cut off")
    (tmp_path / "checkpoints" / ".00000008.npz.tmp").write_bytes(b"of a writer that was killed")
    checkpoints.save(5, state(5))
    loaded = checkpoints.load()
    assert loaded is not None and loaded["loop"]["iteration"] == 5
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["00000005.npz"]


def test_a_checkpoint_that_the_disk_will_not_give_is_not_taken_for_a_damaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=3)
    checkpoints.save(1, state(1))
    newest, load = checkpoints.save(2, state(2)), np.load

    def fail(path: Path, **settings: Any) -> Any:
        if path == newest:
            raise OSError(errno.EIO, "Input/output error")
        return load(path, **settings)

    monkeypatch.setattr(np, "load", fail)
    with pytest.raises(CheckpointError, match="Input/output error"):
        checkpoints.load()


def test_a_misfit_names_the_leaf_and_both_shapes() -> None:
    expected = {"a": {"mean": np.zeros((3, 2))}, "n": 1}
    with pytest.raises(CheckpointError, match=r"'a.mean' has shape \(4,\) in the checkpoint and \(3, 2\)"):
        check_fits({"a": {"mean": np.zeros(4)}, "n": 1}, expected)
    with pytest.raises(CheckpointError, match="lacks 'n'"):
        check_fits({"a": {"mean": np.zeros((3, 2))}}, expected)


def test_mappings_that_begin_empty_or_are_keyed_by_numbers_grow() -> None:
    check_fits({"q": {"left": 1.0}, "niches": {3: [1], 7: [2]}}, {"q": {}, "niches": {0: []}})


def test_changed_keys_are_named_and_where_it_runs_may_change() -> None:
    old = {"algo": {"sigma": 0.1, "pairs_per_task": 4}, "seed": 1, "compute": {"workers": 2}}
    new = {"algo": {"sigma": 0.2, "pairs_per_task": None}, "seed": 1, "compute": {"workers": 9}}
    assert changed_keys(old, new) == ["algo.sigma was 0.1 and is now 0.2"]


# The folder


def test_a_run_folder_describes_itself(undisturbed: Path) -> None:
    told = json.loads((undisturbed / "provenance.json").read_text())
    assert "platform" in told["command"] and f"run.dir={undisturbed}" in told["command"]
    assert told["packages"]["numpy"] == np.__version__
    for key in ("started", "commit", "python", "cpu", "cpus", "memory_gb", "gpus", "host"):
        assert key in told, key
    done = json.loads((undisturbed / "done.json").read_text())
    assert done["reason"] == f"budget.iterations={ITERATIONS}"
    assert done["metrics"]["iteration"] == ITERATIONS
    assert "seed: 0" in (undisturbed / "config.yaml").read_text()
    system = rows(undisturbed, "system.jsonl")
    assert len(system) == ITERATIONS and system[-1]["system/steps_per_s"] > 0


def test_how_a_run_ended_is_strict_json_whatever_its_last_metrics(tmp_path: Path) -> None:
    folder = RunFolder.open(tmp_path, {})
    folder.finish("SIGTERM", {"iteration": 3, "train/return_mean": float("nan"), "score/0": float("-inf")})
    folder.release()

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    done = json.loads((tmp_path / "done.json").read_text(), parse_constant=refuse)
    assert done["metrics"] == {"iteration": 3, "train/return_mean": None, "score/0": None}
    metrics, _ = last_metrics(tmp_path)
    assert metrics["iteration"] == 3 and np.isnan(metrics["train/return_mean"])


@pytest.mark.parametrize(
    "context", [b"\n\n\n", b"caf\xe9\n", b"carriage\r\nreturn\r\n"], ids=["blank", "latin-1", "crlf"]
)
def test_edits_are_kept_as_git_tells_them_so_that_they_can_be_made_again(tmp_path: Path, context: bytes) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(
            ["git", "-C", str(tmp_path), "-c", "user.name=A", "-c", "user.email=a@b", *arguments], check=True
        )

    code = tmp_path / "code"
    code.write_bytes(b"old\n" + context)
    git("init", "-q")
    git("config", "color.ui", "always")
    git("add", "code")
    git("commit", "-qm", "all")
    code.write_bytes(b"new\n" + context)
    _, diff = find_source(tmp_path)
    assert diff is not None
    (tmp_path / "code.diff").write_bytes(diff.encode(errors="surrogateescape"))
    git("checkout", "-q", "code")
    git("apply", "code.diff")
    assert code.read_bytes() == b"new\n" + context
