"""Where runs stand, told from their folders alone and with what a queue says."""

import fcntl
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from conftest import ROOT
from run_folders import close

from paddock.envs.errors import ConfigError
from paddock.reports.data import gather
from paddock.runs.frames import read_journals
from paddock.runs.results import find_sweeps, read_columns
from paddock.runs.state import Submission, find_runs, read_run_states, read_submission
from paddock.runs.table import HEAD
from paddock.status import main

Main = Callable[..., tuple[int, str, str]]


@pytest.fixture
def status(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Main:
    """Call the command in tmp_path: its exit code, standard output and error."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["status", *arguments])
        try:
            code: Any = main()
        except SystemExit as ended:
            code = ended.code
        return code, *capsys.readouterr()

    return call


def make_run(folder: Path, length: int = 3, done: str | None = None, at: str = "", **budget: float) -> Path:
    """The folder of a run that has come so far; a return every second iteration."""
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump({"algo": {}, "env": {}, "budget": budget}))
    (folder / "lock").touch()
    with open(folder / "metrics.jsonl", "w") as metrics, open(folder / "system.jsonl", "w") as system:
        for n in range(1, length + 1):
            row = {"iteration": n, "step": 1000 * n, "train/return_mean": n / 2}
            row |= {"eval/return_mean": 10.5 * n} if n % 2 == 0 else {}
            metrics.write(json.dumps(row) + "\n")
            system.write(json.dumps({"iteration": n, "system/seconds": 30.0 * n}) + "\n")
    if done is not None:
        (folder / "done.json").write_text(json.dumps({"reason": done, "time": at, "metrics": {}}))
    return folder


def submitted(folder: Path, job: str, name: str = "paddock-sweep", said: str = "", ended: str | None = None) -> Path:
    """Make it a submitted run's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder.with_suffix(".log")
    if said:
        log.write_text(said)
    note = {"job": job, "name": name, "submitted": "", "command": "", "code": None, "log": str(log), "ended": ended}
    (folder / "submission.json").write_text(json.dumps(note))
    return folder


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put a squeue on the PATH that answers with these rows."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")

    def answer(*lines: str, code: int = 0, error: str = "") -> None:
        command = tmp_path / "bin/squeue"
        command.parent.mkdir(exist_ok=True)
        quoted = "\n".join(lines)
        command.write_text(f"#!/bin/sh\ncat <<'END'\n{quoted}\nEND\necho '{error}' >&2\nexit {code}\n")
        command.chmod(0o755)

    return answer


def test_each_run_has_a_line(status: Main, tmp_path: Path) -> None:
    make_run(tmp_path / "runs/a", 4, done="budget.iterations=4", steps=8000, minutes=4)
    make_run(tmp_path / "runs/sweep/10", 3, done="SIGINT", steps=30000)
    make_run(tmp_path / "runs/sweep/9", 1, done="failed: the gearbox jammed")
    code, out, err = status("runs")
    lines = out.splitlines()
    assert (code, err) == (1, "")
    assert lines[0].split() == [*(name for name in HEAD[:-2] if name != "with"), "last", "row", "reason", "or", "job"]
    assert lines[1].split()[:7] == ["a", "done", "4", "4.0k", "50%", "42", "2m00s"]
    assert lines[1].endswith("budget.iterations=4")
    assert lines[2].split()[:6] == ["sweep/9", "failed", "1", "1.0k", "0.5", "30s"]  # without a bound or an evaluation
    assert lines[3] == "    the gearbox jammed"
    assert lines[4].split()[:7] == ["sweep/10", "stopped", "3", "3.0k", "10%", "21", "1m30s"]
    assert lines[5:] == ["    SIGINT", "1 done, 1 failed, 1 stopped"]
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize(
    ("runs", "shown"),
    [
        (["48_ppo_CartPole-v1_seed0", "49_sac_Cart_seed1"], ["ppo CartPole-v1 s0", "sac Cart s1"]),
        (["48_ppo_Pendulum-v1_seed0", "49_ppo_MountainCar-v0_seed1"], ["ppo Pendulum-v1 s0", "ppo MountainCar-v0 s1"]),
        (["48_ppo_Cart_seed0", "49_ppo_Cart_seed0"], [f"2026-11-28_21-30-{n}_ppo_Cart_seed0" for n in (48, 49)]),
    ],
)
def test_long_names_are_shortened_to_what_differs(
    runs: list[str], shown: list[str], status: Main, tmp_path: Path
) -> None:
    for name in runs:
        make_run(tmp_path / f"runs/2026-11-28_21-30-{name}", 1, done="budget.iterations=1")
    assert [line.partition("  ")[0] for line in status("runs")[1].splitlines()[1:3]] == shown


def test_table_fits_a_narrow_terminal(status: Main, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path / "runs/2026-11-28_21-30-48_ppo_CartPole-v1_seed0", 4, done="budget.iterations=4", steps=8000)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for columns in (80, 60, 40):
        monkeypatch.setenv("COLUMNS", str(columns))
        header, row, _ = status("runs")[1].splitlines()
        assert columns // 2 < max(len(header), len(row)) <= columns
        assert header.startswith("run") and " done " in f"{row} "


def test_runs_of_a_sweep_show_their_differences(status: Main, tmp_path: Path) -> None:
    grid = tmp_path / "runs/grid"
    for k, (algo, rate) in enumerate([("ppo", 0.1), ("ppo", 1 / 3), ("sac", 0.1)]):
        section = {"name": algo, "learning_rate": rate, "hidden_sizes": [8], **({"tau": 0.1} if algo == "sac" else {})}
        config = {"algo": section, "env": {"id": "CartPole-v1"}, "seed": 1, "run": {"dir": str(k)}}
        (make_run(grid / str(k), done="budget.iterations=3") / "config.yaml").write_text(yaml.safe_dump(config))
    (grid / "multirun.yaml").touch()
    alone = make_run(tmp_path / "runs/alone", done="budget.iterations=3")
    (alone / "config.yaml").write_text("{algo: {}, env: {}, budget: null}")  # of another program
    (code, out, _), (_, page, _) = status("runs/grid"), status("runs")
    head, *lines = out.splitlines()
    assert code == 0 and head.split()[:3] == ["run", "with", "state"]
    at = slice(head.index("with"), head.index("state"))
    told = ["algo=ppo learning_rate=0.1", "algo=ppo learning_rate=0.3333", "algo=sac"]
    assert [line[at].strip() for line in lines[:3]] == [told[0], told[1], told[2]]
    assert [line.split()[:2] for line in page.splitlines()[1:3]] == [["alone", "done"], ["grid/0", "algo=ppo"]]


def test_command_that_resumes_a_grid_is_shown(status: Main, tmp_path: Path) -> None:
    arguments = {"task": ["algo=es", "seed=1,2"], "hydra": ["hydra/launcher=local", "hydra.mode=MULTIRUN"]}
    own = {"overrides": arguments, "job": {"config_name": "config"}, "runtime": {"config_sources": []}}
    make_run(tmp_path / "multirun/x/0", 2, done="budget.iterations=2")
    (tmp_path / "multirun/x/multirun.yaml").write_text(yaml.safe_dump({"hydra": own}))
    assert "resumes" not in status("multirun")[1]
    make_run(tmp_path / "multirun/x/1", 2)
    make_run(tmp_path / "multirun/x/2", 2, done="SIGINT")
    line = "  python -m paddock algo=es seed=1,2 --multirun hydra/launcher=local hydra.sweep.dir=multirun/x"
    assert status("multirun")[1].splitlines()[-1] == f"{line}  # resumes the grid"
    assert status(str(tmp_path / "multirun"))[1].count("resumes the grid") == 1
    with open(tmp_path / "multirun/x/2/lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as the process of a run
        assert "resumes the grid" not in status("multirun")[1]
    (tmp_path / "multirun/x/multirun.yaml").write_text("mine: 1")
    assert "resumes the grid" not in status("multirun/x")[1]


def test_several_folders_are_one_table(status: Main, tmp_path: Path) -> None:
    make_run(tmp_path / "runs/a", 4, done="budget.iterations=4")
    make_run(tmp_path / "runs/b/0", 2, done="budget.iterations=2")
    (tmp_path / "runs/notes.txt").touch()
    code, out, err = status("runs/b", "runs/a", "runs/b/0", "runs/notes.txt")
    lines = out.splitlines()
    assert (code, err) == (0, "") and [line.split()[0] for line in lines[1:]] == ["b/0", "a", "2"]
    assert status("runs/a", "runs/a") == status("runs/a")


def test_run_is_running_while_its_lock_is_held(status: Main, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 2, iterations=4)
    with open(run / "lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, out, _ = status("run")
        assert (code, out.splitlines()[1].split()[:5]) == (0, ["run", "running", "2", "2.0k", "50%"])
    code, out, _ = status("run")
    assert (code, out.splitlines()[1].split()[1]) == (1, "lost")
    assert "killed" in out


def test_last_evaluation_of_a_long_run_is_found(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 20_000)
    [run_state] = read_run_states([run])
    assert run_state.metrics["eval/return_mean"] == 10.5 * 20_000


def test_damaged_lines_and_values_hide_no_other(status: Main, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 3)
    huge = "1" + 400 * "0"
    with open(run / "metrics.jsonl", "a") as metrics:
        metrics.write('12\nnull\n[1, 2]\n"x"\n{"iteration": "x", "step": "y"}\n\0\0\0\n')
        metrics.write(f'{{"iteration": 4, "step": 40, "train/return_mean": "abc", "eval/return_mean": {huge}}}\n')
    [run_state] = read_run_states([run])
    assert (run_state.metrics["iteration"], run_state.metrics["step"]) == (4, 40)
    assert math.isnan(run_state.metrics["train/return_mean"]) and math.isnan(run_state.metrics["eval/return_mean"])
    assert status("run")[1].splitlines()[1].split()[:3] == ["run", "lost", "4"]
    columns = read_columns(run)
    assert columns["iteration"].tolist() == [1, 2, 3, 4] and np.isnan(columns["eval/return_mean"][-1])
    assert read_journals([run])["iteration"].to_list() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("begun", "row", "state", "why"),
    [
        (False, "7_0|PENDING|Priority|paddock-sweep", "pending", "Priority"),
        (True, "7_0|PENDING|BeginTime|paddock-sweep", "requeued", "BeginTime"),
        (True, "7_0|RUNNING|None|paddock-sweep", "running", ""),
        (True, "7_0|NODE_FAIL|NodeDown|paddock-sweep", "lost", "NODE_FAIL: "),
        (False, "7_0|RUNNING|None|of-somebody-else", "lost", "its job never started"),
    ],
)
def test_submitted_run_has_the_state_of_its_job(
    begun: bool, row: str, state: str, why: str, queue: Callable[..., None], tmp_path: Path
) -> None:
    run = submitted(make_run(tmp_path / "run") if begun else tmp_path / "run", "7_0")
    queue(row)
    [run_state] = read_run_states(find_runs(tmp_path))
    assert run_state.state == state
    assert run_state.why.startswith(why)
    assert isinstance(read_submission(run), Submission)


ENDED = "2026-03-01T10:30:00+00:00"


@pytest.mark.parametrize(
    ("row", "noted", "state"),
    [
        ("7_0|PENDING|Priority|paddock-sweep", ENDED, "requeued"),
        ("7_0|COMPLETING|None|paddock-sweep", None, "done"),  # it came to that end
        ("7_0|PENDING|Priority|of-somebody-else", ENDED, "done"),
    ],
)
def test_ended_run_that_is_submitted_again_is_not_done(
    row: str, noted: str | None, state: str, queue: Callable[..., None], tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run", done="budget.steps=3000", at=ENDED)
    submitted(run, "7_0", ended=noted)
    queue(row)
    [run_state] = read_run_states([run])
    assert run_state.state == state


def test_ended_run_that_resumes_is_running(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", done="budget.steps=3000")
    with open(run / "lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert read_run_states([run])[0].state == "running"
    assert read_run_states([run])[0].state == "done"


def test_job_that_failed_before_its_run_shows_its_output(
    queue: Callable[..., None], status: Main, tmp_path: Path
) -> None:
    said = "".join(f"line {n}\n" for n in range(30)) + "ImportError: no module named torch\nsrun: error: exit code 1\n"
    submitted(tmp_path / "run", "7", said=said)
    queue("", code=1, error="slurm_load_jobs error: Invalid job id specified")
    code, out, _ = status("run")
    lines = out.splitlines()
    assert (code, lines[1].split()) == (1, ["run", "failed", "7"])
    assert lines[2] == "    ImportError: no module named torch"
    assert lines[10:13] == [
        "    | line 29",
        "    | ImportError: no module named torch",
        "    | srun: error: exit code 1",
    ]


def test_ended_runs_are_known_without_squeue(queue: Callable[..., None], status: Main, tmp_path: Path) -> None:
    submitted(make_run(tmp_path / "sweep/0", done="budget.steps=3000"), "7_0")
    submitted(make_run(tmp_path / "sweep/1"), "7_1")
    queue("", code=1, error="Unable to contact slurm controller")
    code, out, _ = status("sweep")
    assert (code, out.splitlines()[-1]) == (0, "1 done, 1 unknown")


def test_run_with_a_live_job_is_not_submitted_again(queue: Callable[..., None], tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    from paddock.slurm.submit import SlurmTarget, _check_unclaimed
    from paddock.slurm.submitted import Queued

    run, submitted_again = submitted(tmp_path / "run", "7_0"), list[Any]()
    plan: Any = SimpleNamespace(run=run)
    target = SlurmTarget(SimpleNamespace(submit=submitted_again.append), slots=1)  # type: ignore[arg-type]
    queue(code=1, error="slurm_load_jobs error: Unable to contact slurm controller")
    with pytest.raises(ConfigError, match=r"as job 7_0 \(in an unknown state: squeue does not respond"):
        _check_unclaimed([plan])
    assert target.start(plan) is None and not submitted_again
    queue("7_0|PENDING|Priority|paddock-sweep")
    with pytest.raises(ConfigError, match=r"as job 7_0 \(PENDING\); wait for it, or scancel 7_0"):
        _check_unclaimed([plan])
    assert isinstance(target.start(plan), Queued) and not submitted_again
    for line in ("7_0|PENDING|Priority|another", "7_0|FAILED|None|paddock-sweep"):
        queue(line)
        _check_unclaimed([plan])
        assert isinstance(target.start(plan), Queued)
    assert submitted_again == [[plan]] * 2


def test_run_is_lost_only_after_a_while(
    queue: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("submitit")
    from paddock.slurm import submitted as looks

    queue("7_0|COMPLETED|None|paddock-sweep")
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(looks.time, "monotonic", lambda: clock.now)
    run = submitted(make_run(tmp_path / "run"), "7_0", said="no more room")
    job = looks.Queued(run)
    ends = []
    for clock.now in (1002, 1002 + looks.NFS_DELAY_S / 2, 1002 + looks.NFS_DELAY_S):
        ends.append(job.ended())
    assert ends[:2] == [None, None] and ends[2] is not None and ends[2].code == -1
    job = looks.Queued(run)
    clock.now += 2
    assert job.ended() is None
    (run / "done.json").write_text(json.dumps({"reason": "budget.iterations=3"}))
    clock.now += 2
    end = job.ended()
    assert end is not None and end.code == 0


def test_code_snapshot_holds_no_runs(tmp_path: Path) -> None:
    run = make_run(tmp_path / "sweep/0")
    make_run(tmp_path / "sweep/code/0/house/conf")
    (tmp_path / "sweep/code/0/house/.submitted.json").write_text("{}")
    assert find_runs(tmp_path) == [run]


def test_links_to_runs_are_followed(status: Main, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, links = tmp_path / "runs", tmp_path / "links"
    for name in ("9", "10"):
        make_run(runs / name, done="budget.iterations=3")
    links.mkdir()
    for name, target in {
        "best": runs / "10",
        "tree": runs,
        "back": links,
        "gone": runs / "11",
        "self": Path("self"),
    }.items():
        (links / name).symlink_to(target)
    assert find_runs(links) == [links / "best"]
    (runs / "1").symlink_to("9")
    assert find_runs(runs) == find_runs(runs, links) == [runs / "9", runs / "10"]
    assert status("runs/9", "./runs/9", str(runs / "9"), "runs/1")[1].splitlines()[-1] == "1 done"
    assert [entry.run.path for entry in gather([runs / "10", links, runs]).entries] == [runs / n for n in ("10", "9")]


def test_settings_alone_are_no_run(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "conf/runs" / name) for name in ("bare", "copy", "new", "run")]
    for name in ("lock", "metrics.jsonl", "system.jsonl"):
        (runs[0] / name).unlink()  # of one of which only what a policy needs was copied
    (runs[0] / "checkpoints/00000003.npz").touch()
    for journal in ("metrics.jsonl", "system.jsonl"):
        (runs[2] / journal).unlink()  # of one that has only just begun
    (runs[1] / "lock").unlink()
    runs.append(make_run(tmp_path / "conf/runs/some", done="budget.steps=3000"))
    for name in ("lock", "metrics.jsonl", "system.jsonl"):
        (runs[4] / name).unlink()  # of one that was copied in part
    (tmp_path / "conf/config.yaml").write_text("defaults: [algo: es]")
    (tmp_path / "conf/checkpoints").mkdir()  # which others call so too
    assert find_runs(tmp_path) == runs
    (tmp_path / "conf/runs/sweep.json").touch()
    assert find_sweeps(tmp_path) == [tmp_path / "conf/runs"]


def test_closed_folder_hides_no_other_run(status: Main, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path / "runs/a", done="budget.iterations=3")
    (tmp_path / "runs/theirs").mkdir()
    close(tmp_path / "runs/theirs", monkeypatch)
    code, out, err = status("runs")
    assert (code, err) == (0, "") and [line.split()[0] for line in out.splitlines()[1:]] == ["a", "1"]
    code, out, err = status("runs/theirs")
    assert (code, out, err) == (2, "", "paddock: runs/theirs: permission denied\n")
    assert status("runs/theirs/run")[2].startswith("paddock: runs/theirs/run is not a folder")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["file"], ["file is not a folder"]),
        (["empty"], ["no run in empty"]),
        (["empty", "lines=3"], ["lines is not a key of"]),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], parts: list[str], status: Main, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    code, out, err = status(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert all(part in err for part in parts), err


def test_help_imports_nothing_heavy() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "paddock.status", "--help"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0 and "python -m paddock.status DIR" in ended.stdout
    assert not any(name in ended.stderr for name in (" torch\n", " submitit\n", " gymnasium\n", " hydra\n"))
