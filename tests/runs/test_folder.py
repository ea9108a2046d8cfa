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
import yaml
from conftest import TINY, assert_same_run, call_main, rows
from tiny_runs import ITERATIONS, arguments, undisturbed_fixture  # noqa: F401

from paddock.algos.pool.late import LatePool
from paddock.algos.pool.protocol import PoolError
from paddock.config import experiment
from paddock.runs import provenance
from paddock.runs.folder import FolderError, FolderInUse, RunFolder, read_config
from paddock.runs.provenance import NEW_BYTES, find_source
from paddock.runs.state import is_locked, last_metrics

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


def test_a_run_is_not_in_use_because_somebody_looks_whether_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    with open(run / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)  # as `paddock.status` does, for a moment
        with monkeypatch.context() as patch:
            glance = SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: fcntl.flock(lock, fcntl.LOCK_UN))
            patch.setattr("paddock.runs.folder.time", glance)
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


def without_work(run: Path) -> None:
    """Leave of a run in a folder what one has that failed before its first row."""
    for file in (*run.glob("*.jsonl"), *run.glob("checkpoints/*")):
        file.unlink()
    (run / "done.json").write_text(json.dumps({"reason": "failed: no room", "time": "", "metrics": {}}))


def test_a_run_that_came_to_nothing_makes_way_for_one_of_other_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, whole = tmp_path / "run", tmp_path / "whole"
    other = [*arguments(run, 2), "algo.sigma=0.3"]
    assert call_main(*arguments(run, 1), "algo.sigma=0.2") == 0
    assert call_main(*arguments(whole, 2), "algo.sigma=0.3") == 0
    without_work(run)
    for name in ("provenance.json", "code.diff"):
        (run / name).write_text("of the other")
    for mirror in ("wandb", "mlflow"):
        (run / mirror).mkdir()
        (run / mirror / "run_id").touch()
    capsys.readouterr()
    assert call_main(*other, "dry_run=true") == 0
    assert (run / "provenance.json").read_text() == "of the other"
    with RunFolder.open(run, {})._lock:
        assert call_main(*other) == 75
    assert call_main(*other) == 0
    said = "begins anew with other settings, as the run there had come to no row and no checkpoint: "
    assert f"{run} {said}algo.sigma was 0.2 and is now 0.3" in capsys.readouterr().out
    assert_same_run(run, whole)
    assert json.loads((run / "provenance.json").read_text())["commit"] != "of the other"
    assert "of the other" not in [file.read_text() for file in run.glob("code.diff")]
    assert not list(run.glob("*/run_id"))


def test_a_run_that_came_to_nothing_has_chosen_no_layout_for_the_next(tmp_path: Path) -> None:
    """As by vec=native, whose arithmetic vec=auto would not choose."""
    ppo = ["algo=ppo", "env=cartpole", "compute=serial", "algo.hidden=[8]", "algo.num_steps=8", "algo.minibatch_size=8"]
    words = [*ppo, "vec.num_envs=2", "budget.iterations=1"]
    run, whole = tmp_path / "run", tmp_path / "whole"
    assert call_main(*words, "vec=native", f"run.dir={run}") == 0
    without_work(run)
    for folder in (run, whole):
        assert call_main(*words, "vec=auto", "algo.learning_rate=0.001", f"run.dir={folder}") == 0
    assert_same_run(run, whole)
    vecs = [yaml.safe_load((folder / "config.yaml").read_text())["vec"]["_target_"] for folder in (run, whole)]
    assert vecs[0] == vecs[1] != "paddock.envs.vector.Native"


@pytest.mark.parametrize(
    "work", ["metrics.jsonl", "events.jsonl", "checkpoints/00000001.npz", "done.json", "initial.npz"]
)
def test_a_run_that_came_to_anything_makes_way_for_none(
    work: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert call_main(*arguments(run, 1)) == 0
    without_work(run)
    if work == "initial.npz":  # of a run that may be gone by now
        config = (run / "config.yaml").read_text()
        (run / "config.yaml").write_text(config.replace("init_from: null", "init_from: theirs"))
    done = json.dumps({"reason": "SIGTERM", "metrics": {"iteration": 3}})
    (run / work).write_text(done if work == "done.json" else '{"iteration": 1, "st')  # cut off
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert call_main(*arguments(run, 1), "algo.sigma=0.3") == 2
    assert "holds a run of another configuration: algo.sigma was 0.1 and is now 0.3" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


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


# The folder


# What stands in it


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
    new = tmp_path / "deep" / "new.py"
    for path in (new, tmp_path / "run/config.yaml", tmp_path / "run/provenance.json", tmp_path / "data.csv"):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"1\n" + context)
    with open(tmp_path / "huge.py", "wb") as huge:
        huge.truncate(NEW_BYTES + 1)
    _, diff = find_source(tmp_path / "deep")
    assert diff is not None and "new, and left out: huge.py" in diff
    (tmp_path / "code.diff").write_bytes(diff.encode(errors="surrogateescape"))
    git("checkout", "-q", "code")
    new.unlink()
    git("apply", "code.diff")
    assert code.read_bytes() == b"new\n" + context and new.read_bytes() == b"1\n" + context
    assert not any(name in diff for name in ("config.yaml", "data.csv"))


def test_new_files_are_told_as_edits_that_make_the_same_again(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=A", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True)

    git("init", "-q")
    git("commit", "-qm", "none", "--allow-empty")
    names = ["a b/c d.py", 'quo"te\\.py', "n\u00e9.py", "tab\t.yaml", os.fsdecode(b"latin\xe9.py"), "x.py.py"]
    new = {name: b"1\n\x0c2\r\n\xe9" for name in names}
    new |= {"empty.py": b"", "one.yaml": b"\n", "whole.py": b"- 1\n+ 2\n"}
    for name, content in new.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "one.yaml").chmod(0o755)
    (tmp_path / "link.py").symlink_to("whole.py")
    (tmp_path / "bytes.py").write_bytes(b"\0")
    _, diff = find_source(tmp_path)
    assert diff is not None and "new, and left out: bytes.py (1 bytes)" in diff
    for name in (*new, "link.py", "bytes.py"):
        (tmp_path / name).unlink()
    (tmp_path / "code.diff").write_bytes(diff.encode(errors="surrogateescape"))
    git("apply", "code.diff")
    assert {name: (tmp_path / name).read_bytes() for name in new} == new
    assert os.access(tmp_path / "one.yaml", os.X_OK) and os.readlink(tmp_path / "link.py") == "whole.py"
    assert not (tmp_path / "bytes.py").exists()


def test_where_git_does_not_tell_new_files_the_edits_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text("old\n")
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qm", "0"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    (tmp_path / "a.py").write_text("new\n")
    told = provenance.ask
    monkeypatch.setattr(provenance, "ask", lambda *words, **rest: None if "ls-files" in words else told(*words, **rest))
    _, diff = find_source(tmp_path)
    assert diff is not None and "-old\n+new\nnew files are not known: " in diff
    (tmp_path / "code.diff").write_text(diff)
    subprocess.run(["git", "apply", "-R", "code.diff"], cwd=tmp_path, check=True)
    assert (tmp_path / "a.py").read_text() == "old\n"


def test_runs_that_begin_in_the_tree_of_the_code_are_no_edits_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for words in (["init", "-q"], ["-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qm", "0", "--allow-empty"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    for name in ("runs/sibling/lock", "runs/sibling/config.yaml", "own/config.yaml", "other/lock", "other/new.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a: 1\n")
    monkeypatch.setattr("paddock.runs.folder.__file__", str(tmp_path / "folder.py"))
    folder = RunFolder.open(tmp_path / "runs/mine", {})
    folder.begin({"seed": 1})
    folder.release()
    told = (tmp_path / "runs/mine/code.diff").read_text().splitlines()
    assert [line for line in told if line.startswith("+++")] == ["+++ b/other/new.py", "+++ b/own/config.yaml"]


def test_edits_that_git_does_not_tell_are_said_to_be_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def begin(name: str) -> dict[str, Any]:
        folder = RunFolder.open(tmp_path / name, {})
        folder.begin({})
        folder.release()
        told: dict[str, Any] = json.loads((tmp_path / name / "provenance.json").read_text())
        return told

    (tmp_path / "git").write_text('#!/bin/sh\n[ "$1" != diff ] && printf "abc\\n/tmp\\n"\n')
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    told = begin("failing")
    assert (told["commit"], told["diff"]) == ("abc", "unknown") and "does not say what is edited" in caplog.text
    caplog.clear()
    (tmp_path / "git").unlink()
    told = begin("without")
    assert told["commit"] is None and "diff" not in told and not caplog.text


def test_a_fork_that_outlives_a_run_s_process_does_not_keep_its_folder(tmp_path: Path) -> None:
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


def test_a_configuration_that_cannot_be_read_is_no_missing_run(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").mkdir()
    with pytest.raises(FolderError, match=r"config.yaml cannot be read \(Is a directory\)"):
        read_config(tmp_path)
    with pytest.raises(FolderError, match="is not a run folder; a run folder holds"):
        read_config(tmp_path / "nowhere/run")


@pytest.mark.parametrize(
    ("settings", "lacking"),
    [
        ("{}", "algo"),
        ("model: gpt", "algo"),
        ("{algo: 3, env: {}}", "algo"),
        ("{algo: {}, env: [x]}", "env"),
        ("{algo: {}, env: {}}", "vec"),
    ],
)
def test_settings_of_another_program_are_no_run_of_ours(settings: str, lacking: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(settings)
    with pytest.raises(FolderError, match=f"config.yaml is of no run: it has no section {lacking}; name a run's"):
        read_config(tmp_path, ("algo", "env", "vec"))
