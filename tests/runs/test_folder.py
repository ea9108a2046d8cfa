"""The folder of a run: one process at a time, no two runs in one, and what stands in it."""

import errno
import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import TINY, assert_same_run, call_main, rows
from tiny_runs import ITERATIONS, arguments, undisturbed_fixture  # noqa: F401

from paddock.algos.pool.lazy import LazyPool
from paddock.algos.pool.protocol import PoolError
from paddock.runs.folder import FolderError, RunFolder, read_config
from paddock.runs.provenance import MAX_NEW_BYTES, find_source
from paddock.runs.state import is_locked, last_metrics

# Two at once


def test_run_is_locked_before_its_pool_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, opened = tmp_path / "run", LazyPool.open

    def open_slowly(pool: LazyPool, *settings: Any) -> None:
        with pytest.raises(FolderError, match="is in use by another process"):
            RunFolder.open(run, {})
        opened(pool, *settings)

    monkeypatch.setattr(LazyPool, "open", open_slowly)
    assert call_main(*arguments(run, 2)) == 0, capsys.readouterr().err
    assert len(rows(run)) == 2


def test_runs_of_one_second_have_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rival, opened = tmp_path / "rival", RunFolder.open
    assert call_main(*arguments(rival, 1), "seed=1") == 0
    begun: list[Path] = []

    def open_late(path: Path, config: Any, **how: bool) -> RunFolder:
        if not begun:
            begun.append(shutil.copytree(rival, path))
        return opened(path, config, **how)

    monkeypatch.setattr(RunFolder, "open", open_late)
    words = [word for word in arguments(rival, 2) if not word.startswith("run.dir=")]
    assert call_main(*words, f"run.root={tmp_path / 'runs'}") == 0, capsys.readouterr().err
    theirs, own = sorted((tmp_path / "runs").iterdir())
    assert (theirs, rows(theirs), len(rows(own))) == (begun[0], rows(rival), 2)


def test_grids_of_one_second_have_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    this_second = SimpleNamespace(strftime=lambda _: "this second")
    monkeypatch.setattr("hydra.core.utils.datetime", SimpleNamespace(now=lambda: this_second))
    grid = [*TINY, "compute=serial", "budget.iterations=1", "--multirun"]
    for words in (["seed=1,2"], ["seed=1,2"], ["seed=3"], ["seed=4", "algo.strategy.sigma=-1"]):
        assert call_main(*grid, *words) == (2 if "algo.strategy.sigma=-1" in words else 0), capsys.readouterr().err
    assert "already reached" not in capsys.readouterr().out
    found = {str(path.parent.relative_to(tmp_path / "multirun")) for path in tmp_path.rglob("metrics.jsonl")}
    assert found == {f"this second{n}/{job}" for n, job in [("", 0), ("", 1), ("-2", 0), ("-2", 1), ("-3", 0)]}
    assert len(list((tmp_path / "multirun").iterdir())) == 3


def test_another_number_of_environments_is_named_by_its_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = [
        "algo=ppo",
        "env=cartpole",
        "algo.num_steps=4",
        "algo.hidden_sizes=[8]",
        "compute=serial",
        "budget.iterations=1",
    ]
    run = [*small, f"run.dir={tmp_path}", "algo.minibatch_size=8"]
    assert call_main(*run, "vec.num_envs=2") == 0
    capsys.readouterr()
    assert call_main(*run, "vec.num_envs=4") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"run.dir={tmp_path}" in line and "vec.num_envs was 2 and is now 4; use vec.num_envs=2" in line


def without_work(run: Path) -> None:
    """Leave of a run in a folder what one has that failed before its first row."""
    for file in (*run.glob("*.jsonl"), *run.glob("checkpoints/*")):
        file.unlink()
    (run / "done.json").write_text(json.dumps({"reason": "failed: no room", "time": "", "metrics": {}}))


def test_run_without_work_makes_way_for_other_settings(tmp_path: Path) -> None:
    run, whole = tmp_path / "run", tmp_path / "whole"
    assert call_main(*arguments(run, 1), "algo.strategy.sigma=0.2") == 0
    without_work(run)
    for name in ("provenance.json", "code.diff"):
        (run / name).write_text("{}")
    for folder in (run, whole):
        assert call_main(*arguments(folder, 2), "algo.strategy.sigma=0.3") == 0
    assert_same_run(run, whole)
    assert "algo.strategy.sigma=0.3" in json.loads((run / "provenance.json").read_text())["command"]


@pytest.mark.parametrize("work", ["metrics.jsonl", "checkpoints/00000001.npz", "initial.npz"])
def test_run_with_any_work_refuses_other_settings(
    work: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert call_main(*arguments(run, 1)) == 0
    without_work(run)
    if work == "initial.npz":  # of a run that may be gone by now
        config = (run / "config.yaml").read_text()
        (run / "config.yaml").write_text(config.replace("init_from: null", "init_from: theirs"))
    (run / work).write_text('{"iteration": 1, "st')  # cut off
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert call_main(*arguments(run, 1), "algo.strategy.sigma=0.3") == 2
    assert (
        "holds a run with another configuration: algo.strategy.sigma was 0.1 and is now 0.3" in capsys.readouterr().err
    )
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_file_system_without_locks_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(FolderError, match=r"cannot be locked \(Function not implemented\); .*run.dir="):
        RunFolder.open(tmp_path / "run", {})
    assert not list(tmp_path.iterdir())


def test_pool_that_cannot_open_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise PoolError("no scheduler")

    monkeypatch.setattr(LazyPool, "open", refuse)
    assert call_main(*arguments(tmp_path / "new" / "run", 2)) == 2
    assert list(tmp_path.iterdir()) == []


# What it holds


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


def test_done_json_is_strict_json(tmp_path: Path) -> None:
    folder = RunFolder.open(tmp_path, {})
    folder.finish("SIGTERM", {"iteration": 3, "train/return_mean": float("nan"), "score/0": float("-inf")})
    folder.release()

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    done = json.loads((tmp_path / "done.json").read_text(), parse_constant=refuse)
    assert done["metrics"] == {"iteration": 3, "train/return_mean": None, "score/0": None}
    metrics, _ = last_metrics(tmp_path)
    assert metrics["iteration"] == 3 and np.isnan(metrics["train/return_mean"])


def test_code_diff_holds_edits_and_new_code_but_no_runs(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=A", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True)

    code, names = tmp_path / "code", ["a b/c d.py", "n\u00e9.py", os.fsdecode(b"latin\xe9.py"), "new.yaml"]
    code.write_bytes(b"old\ncaf\xe9\r\n")
    git("init", "-q")
    git("config", "color.ui", "always")
    git("add", "code")
    git("commit", "-qm", "all")
    code.write_bytes(b"new\ncaf\xe9\r\n")
    content = {name: b"1\n2\r\n\xe9" for name in names}
    others = {"run/config.yaml": b"a: 1", "run/lock": b"", "data.csv": b"1", "huge.py": bytes(MAX_NEW_BYTES + 1)}
    for name, text in (content | others).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(text)
    _, diff = find_source(tmp_path / "a b")
    assert diff is not None and diff.count("new file mode") == len(names)
    (tmp_path / "code.diff").write_bytes(diff.encode(errors="surrogateescape"))
    git("checkout", "-q", "code")
    for name in names:
        (tmp_path / name).unlink()
    git("apply", "code.diff")
    assert code.read_bytes() == b"new\ncaf\xe9\r\n"
    assert {name: (tmp_path / name).read_bytes() for name in names} == content


def test_fork_that_outlives_its_run_does_not_hold_the_lock(tmp_path: Path) -> None:
    """As a helper does that an environment starts; the run may go on at once where its process was killed."""
    folder = RunFolder.open(tmp_path, {})
    (gone, go), (there, say) = os.pipe(), os.pipe()
    fork = os.fork()
    if fork == 0:
        os.write(say, b"!")
        os.close(go)
        os.read(gone, 1)
        os._exit(0)
    os.read(there, 1)
    before = is_locked(tmp_path)
    folder._lock.close()  # as the kernel does where its process is killed
    after = is_locked(tmp_path)
    for end in (go, gone, there, say):
        os.close(end)
    os.waitpid(fork, 0)
    assert (before, after) == (True, False)


def test_unreadable_configuration_is_not_a_missing_run(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").mkdir()
    with pytest.raises(FolderError, match=r"config.yaml cannot be read \(Is a directory\)"):
        read_config(tmp_path)
    with pytest.raises(FolderError, match="a run folder holds"):
        read_config(tmp_path / "nowhere/run")


@pytest.mark.parametrize(
    ("settings", "lacking"),
    [
        ("model: gpt", "algo"),
        ("{algo: {}, env: [x]}", "env"),
        ("{algo: {}, env: {}}", "vec"),
    ],
)
def test_settings_of_another_program_are_no_run(settings: str, lacking: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(settings)
    with pytest.raises(FolderError, match=f"config.yaml does not belong to a run: it has no section {lacking}"):
        read_config(tmp_path, ("algo", "env", "vec"))
