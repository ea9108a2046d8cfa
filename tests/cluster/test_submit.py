"""Runs submitted to a real Slurm: left alone, gone on with after the time limit, cancelled, failed."""

import asyncio
import errno
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePath
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT, TINY, assert_same_run, call_main, rows, wait_until
from omegaconf import OmegaConf
from own_package import write_package
from slurm_cluster import CPUS, Slurm, at_slurm, slurm, stand_in_for_slurm  # noqa: F401, fixtures

from paddock import CONF
from paddock.compute.slurm import Jobs
from paddock.envs.errors import NO_ROOM, ConfigError
from paddock.envs.native import library
from paddock.slurm import submit as slurm_submit
from paddock.slurm.queue import submit_commands
from paddock.slurm.snapshot import Tree, find_tree
from paddock.slurm.submit import SlurmLauncher
from paddock.slurm.submitted import Queued
from paddock.sweep.placement import End, Plan
from paddock.sweep.sweeper import OptunaSweeper

SMALL = [*TINY, "env=gymnasium", "env.id=mine:Paced-v0", "env.max_episode_steps=50", "compute=serial"]
Call = Callable[..., tuple[int, str, str]]  # exit code, standard output and error
SUBMIT = ["--multirun", "hydra/launcher=slurm", "hydra.sweep.dir=sweep"]


class Desk:
    """A copy of the house, and a working directory beside it in a repository of its own."""

    def __init__(self, folder: Path) -> None:
        self.house, self.here = folder / "house", folder / "here"
        tree = find_tree(ROOT, "paddock.py", folder)
        assert tree is not None
        tree.copy(self.house)
        subprocess.run(["git", "init", "-q"], cwd=self.house, check=True)
        self.here.mkdir()
        write_package(self.here)
        subprocess.run(["git", "init", "-q"], cwd=self.here, check=True)
        self.environment = os.environ | {"PYTHONPATH": str(self.house)}

    def call(self, module: str, *arguments: str) -> tuple[int, str, str]:
        """Call a command of the house in the working directory: exit code, standard output and error."""
        command = [sys.executable, "-m", module, *arguments]
        ended = subprocess.run(
            command, cwd=self.here, env=self.environment, capture_output=True, text=True, timeout=120
        )
        return ended.returncode, ended.stdout, ended.stderr

    def submit(self, *arguments: str) -> list[str]:
        """Submit a sweep; the ids of its jobs."""
        code, out, err = self.call("paddock", *SMALL, *SUBMIT, *arguments)
        assert (code, err) == (0, "")
        return [line.split()[1].rstrip(":") for line in out.splitlines() if line.startswith("job ")]

    def status(self, folder: str = "sweep") -> tuple[int, str]:
        """What the status command says."""
        code, out, err = self.call("paddock.status", folder)
        assert err == ""
        return code, out


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """For what ends before code is submitted: the command in this process, in a working directory of its own."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> tuple[int, str, str]:
        return call_main(*TINY, "compute=serial", *words), *capfd.readouterr()

    return call


@pytest.fixture
def clustered(desk: Desk, slurm: Slurm) -> Iterator[Desk]:  # noqa: F811
    """A desk from which the cluster is in reach; its jobs are cancelled after the test."""
    desk.environment |= slurm.environment
    yield desk
    slurm.call("scancel", "-u", "root")
    wait_until(lambda: not slurm.call("squeue", "-h").strip())


# On a cluster


@pytest.mark.slurm
def test_runs_are_submitted_and_left_and_do_not_see_later_edits(clustered: Desk, slurm: Slurm) -> None:  # noqa: F811
    jobs = clustered.submit("seed=1,2", "budget.iterations=4", "+hydra.launcher.additional.hold=true")
    assert len(jobs) == 2
    code, out = clustered.status()
    assert (code, out.splitlines()[-1]) == (0, "2 pending")
    assert "JobHeldUser" in out
    for edited in (
        clustered.house / "algos/es.py",
        clustered.house / "platform/runs/loop.py",
        clustered.here / "mine.py",
    ):
        edited.write_text("raise RuntimeError('edited')\n")
    (clustered.house / "conf/algo/es.yaml").write_text("edited: 1\n")
    for job in jobs:
        slurm.call("scontrol", "release", job)
    runs = [clustered.here / "sweep" / number for number in "01"]
    wait_until(lambda: all((run / "done.json").exists() or "rror" in log(run) for run in runs))
    assert [len(rows(run)) for run in runs] == [4, 4], log(runs[0])
    # The house is past use now, and the status of the copy still answers.
    clustered.environment["PYTHONPATH"] = str(ROOT)
    code, out = clustered.status()
    assert (code, out.splitlines()[-1]) == (0, "2 done")


@pytest.mark.slurm
@pytest.mark.timeout(600)
def test_a_run_that_meets_the_time_limit_goes_on_to_the_same_bits(clustered: Desk, slurm: Slurm) -> None:  # noqa: F811
    pace = clustered.here / "slow"
    pace.touch()
    budget = ["seed=1", "budget.iterations=100"]  # more than a slow minute has room for
    [job] = clustered.submit(*budget, "hydra.launcher.time_min=2", "hydra.launcher.signal_delay_s=60")
    run = clustered.here / "sweep/0"
    wait_until(lambda: rows(run))
    wait_until(lambda: slurm.state(job) == "PENDING")
    code, out = clustered.status()
    assert (code, out.splitlines()[-1]) == (0, "1 requeued")
    before = (run / "metrics.jsonl").read_bytes()
    assert 0 < before.count(b"\n") < 100
    pace.unlink()
    # It starts when its old credentials have expired; were it told to start now, Slurm might take the end of the old
    # process for that of the new one.
    wait_until((run / "done.json").exists, say=lambda: slurm.call("scontrol", "show", "job", job) + log(run))
    wait_until(lambda: clustered.status()[1].endswith("1 done\n"))
    code, _, err = clustered.call("paddock", *SMALL, *budget, "run.dir=alone")
    assert (code, err) == (0, "")
    alone = clustered.here / "alone"
    assert_same_run(run, alone)
    assert (run / "metrics.jsonl").read_bytes().startswith(before)
    said = log(run)
    assert said.index("running in") < said.index("stopped by SIGTERM") < said.index("going on in")
    print(f"the time limit came after {len(before.splitlines())} of 100 iterations")


@pytest.mark.slurm
def test_a_preempted_run_saves_and_goes_on(clustered: Desk, slurm: Slurm) -> None:  # noqa: F811
    pace = clustered.here / "slow"
    pace.touch()
    keys = ["hydra.launcher.partition=low", f"hydra.launcher.cpus={CPUS}", "+hydra.launcher.additional.nodelist=node1"]
    [job] = clustered.submit("seed=1", "budget.iterations=100", *keys)
    run = clustered.here / "sweep/0"
    wait_until(lambda: rows(run))
    urgent = slurm.call("sbatch", "-p", "high", "-w", "node1", "-c", str(CPUS), "-o", "/dev/null", "--wrap", "exit")
    wait_until(lambda: "stopped by SIGTERM" in log(run))
    saved = (run / "metrics.jsonl").read_bytes()
    wait_until(lambda: slurm.state(urgent.split()[-1]) == "COMPLETED")
    pace.unlink()
    wait_until(lambda: slurm.state(job) == "COMPLETED")
    assert clustered.status()[1].endswith("1 done\n")
    assert (run / "metrics.jsonl").read_bytes().startswith(saved)
    assert [row["iteration"] for row in rows(run)] == list(range(1, 101))


@pytest.mark.slurm
def test_failed_jobs_say_why(clustered: Desk, slurm: Slurm) -> None:  # noqa: F811
    jobs = clustered.submit("env.id=mine:Absent-v0,mine:Broken-v0", "budget.iterations=4")
    wait_until(lambda: {slurm.state(job) for job in jobs} == {"FAILED"})
    code, out = clustered.status()
    assert code == 1 and "2 failed" in out
    assert "Absent" in out and "gearbox jammed" in out
    code, out, _ = clustered.call("paddock.status", "sweep/0", "log=3")
    assert out.count("    | ") == 3


@pytest.mark.slurm
@pytest.mark.parametrize("code, taken_for", [(NO_ROOM, NO_ROOM), (3, -1)])
def test_a_sweep_learns_that_a_job_ended_for_want_of_room(
    code: int,
    taken_for: int,
    at_slurm: Slurm,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whose folder cannot say so: a trial is kept for when there is room, and no process of it was lost."""
    output = tmp_path / "job.log"
    job = at_slurm.call("sbatch", "--parsable", f"--output={output}", f"--wrap=echo no room; exit {code}").strip()
    noted = {"job": job, "name": "wrap", "submitted": "", "command": "", "code": None, "log": str(output)}
    (tmp_path / "submission.json").write_text(json.dumps(noted))
    (tmp_path / "config.yaml").touch()
    wait_until(lambda: at_slurm.state(job) == "FAILED")
    monkeypatch.setattr("paddock.slurm.submitted.SETTLE_S", 0.0)
    assert wait_until(Queued(tmp_path).ended) == End(taken_for, ["no room"])


@pytest.mark.slurm
def test_a_cancelled_run_saves_and_a_cancelled_job_is_lost(clustered: Desk, slurm: Slurm) -> None:  # noqa: F811
    (clustered.here / "slow").touch()
    running, waiting = clustered.submit("seed=1,2", "hydra.launcher.max_parallel=1")
    runs = [clustered.here / "sweep" / number for number in "01"]
    wait_until(lambda: rows(runs[0]))
    slurm.call("scancel", waiting)
    slurm.call("scancel", running)
    wait_until(lambda: slurm.state(running) == "CANCELLED")
    code, out = clustered.status()
    *_, counts, line = out.splitlines()
    assert (code, counts) == (1, "1 stopped, 1 lost")
    assert line.endswith("hydra.sweep.dir=sweep  # goes on with the grid")
    assert "    SIGTERM" in out and "    CANCELLED: its job never started" in out
    assert max((runs[0] / "checkpoints").glob("*.npz")).stem.endswith(str(len(rows(runs[0]))))


@pytest.mark.slurm
def test_a_job_that_is_cancelled_at_its_time_limit_does_not_come_back(
    at_slurm: Slurm,  # noqa: F811
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", LINGERING, str(tmp_path)]
    parameters = {"time": 5, "signal_delay_s": 60, "setup": [f"export PYTHONPATH={ROOT}"]}
    [job] = submit_commands(tmp_path / "jobs", [command], parameters, 3, "slurm", endless=True)
    wait_until((tmp_path / "begun").exists)
    at_slurm.call("scancel", "--signal=USR2", job.job_id)  # as before the time limit
    wait_until((tmp_path / "told").exists)
    at_slurm.call("scancel", job.job_id)
    wait_until(
        lambda: at_slurm.state(job.job_id) not in ("RUNNING", "COMPLETING"), say=lambda: at_slurm.state(job.job_id)
    )
    assert at_slurm.state(job.job_id) == "CANCELLED"


# Takes three seconds to end when it is told to.
LINGERING = """
import pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
def end(number, frame):
    (folder / "told").touch()
    time.sleep(3)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
(folder / "begun").touch()
while True:
    time.sleep(1)
"""


@pytest.mark.slurm
def test_waiting_can_be_interrupted_and_its_end_tells_how_it_went(clustered: Desk, slurm: Slurm) -> None:  # noqa: F811
    arguments = [*SMALL, *SUBMIT, "seed=1", "budget.iterations=2", "hydra.launcher.wait=true"]
    held = [sys.executable, "-m", "paddock", *arguments, "+hydra.launcher.additional.hold=true"]
    waiting = subprocess.Popen(
        held, cwd=clustered.here, env=clustered.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert waiting.stdout is not None
    job = waiting.stdout.readline().split()[1].rstrip(":")
    assert "waiting for them" in [waiting.stdout.readline() for _ in range(4)][-1]
    waiting.send_signal(signal.SIGINT)
    _, err = waiting.communicate(timeout=30)
    assert (waiting.returncode, "the jobs go on" in err) == (130, True)
    assert slurm.state(job) == "PENDING"
    code, _, err = clustered.call("paddock", *arguments)
    assert code == 2 and f"as job {job}, which is PENDING" in err
    slurm.call("scancel", job)
    code, out, err = clustered.call("paddock", *arguments)
    assert (code, err) == (0, "")
    assert out.endswith("1 done\n")
    code, out, err = clustered.call("paddock", *arguments, "env.id=mine:Broken-v0", "hydra.sweep.dir=other")
    assert code == 1
    assert "1 of 1 runs did not get to their end" in err


@pytest.mark.slurm
def test_what_slurm_refuses_is_one_line(clustered: Desk) -> None:
    code, out, err = clustered.call("paddock", *SMALL, *SUBMIT, "seed=1,2", "hydra.launcher.partition=nowhere")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "invalid partition specified: nowhere" in err
    assert not (clustered.here / "sweep/code").exists()


def log(run: Path) -> str:
    """What a run's job has printed."""
    return (run / "slurm.log").read_text() if (run / "slurm.log").exists() else ""


# Before the cluster


def test_a_job_that_slurm_refuses_costs_those_before_it_no_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "mine.py").touch()
    launcher = SlurmLauncher()
    launcher._sweep, launcher._code, launcher._copied = tmp_path, tmp_path / "code", False
    launcher._copies = {launcher._code / "0": Tree(tree, [PurePath("mine.py")])}
    launcher._keys = SimpleNamespace(parameters=lambda *_: {}, max_requeues=1)
    refused = [True, False, True]

    def submit(*_: Any) -> list[Any]:
        assert (launcher._code / "0/mine.py").exists()
        if refused.pop(0):
            raise ConfigError("Slurm refuses the jobs: QOSMaxSubmitJobPerUserLimit")
        return [SimpleNamespace(job_id=1, paths=SimpleNamespace(stdout=tmp_path / "log"))]

    monkeypatch.setattr(slurm_submit, "submit_commands", submit)
    plan = Plan([], tmp_path / "run", ["true"])
    with pytest.raises(ConfigError, match="refuses"):
        launcher.submit([plan])
    assert not launcher._code.exists()  # nobody's
    launcher.submit([plan])
    with pytest.raises(ConfigError, match="refuses"):
        launcher.submit([plan])
    assert (launcher._code / "0/mine.py").exists()


def test_a_job_that_slurm_refuses_costs_another_command_at_the_sweep_no_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def launch() -> SlurmLauncher:
        launcher = SlurmLauncher()
        launcher._sweep, launcher._code, launcher._copied = tmp_path, tmp_path / "code", False
        launcher._copies = {launcher._code / "0": Tree(tmp_path, [PurePath("mine.py")])}
        launcher._keys = SimpleNamespace(parameters=lambda *_: {"signal_delay_s": 60}, max_requeues=1)
        return launcher

    def command(number: int) -> Sequence[str]:
        return ["true", "--config-dir", f"{tmp_path}/code/0/conf", f"run.dir={tmp_path}/{number}"]

    stand_in_for_slurm(tmp_path / "bin", "echo Submitted batch job 7", monkeypatch)
    (tmp_path / "mine.py").touch()
    one, other, third = (launch() for _ in range(3))  # which began at the same time
    [taken] = one.submit([Plan([], tmp_path / "1", command(1))])
    (tmp_path / "bin/sbatch").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(ConfigError, match="refuses"):
        other.submit([Plan([], tmp_path / "2", command(2))])
    other._copies = {}  # as of an installed Paddock
    with pytest.raises(ConfigError, match="refuses"):
        other.submit([Plan([], tmp_path / "2", command(2))])
    assert (tmp_path / "code/0/mine.py").exists() and f"{tmp_path}/code/0/conf" in taken.command
    assert list((tmp_path / ".submitit").rglob("*_submitted.pkl"))
    (tmp_path / "bin/sbatch").write_text("#!/bin/sh\necho Submitted batch job 8\n")
    [again] = third.submit([Plan([], tmp_path / "2", command(2))])
    assert (tmp_path / "code-2/0/mine.py").exists() and again.code == str(tmp_path / "code-2")
    assert f"--config-dir {tmp_path}/code-2/0/conf run.dir={tmp_path}/2" in again.command


def test_a_submission_notes_when_its_run_had_ended_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = SlurmLauncher()
    launcher._sweep, launcher._copied, launcher._copies = tmp_path, False, {}
    launcher._keys = SimpleNamespace(parameters=lambda *_: {"signal_delay_s": 60}, max_requeues=1)
    stand_in_for_slurm(tmp_path / "bin", "echo Submitted batch job 7", monkeypatch)
    (tmp_path / "0").mkdir()
    (tmp_path / "0/done.json").write_text('{"reason": "budget.steps=3000", "time": "then"}')
    launcher.submit([Plan([], tmp_path / name, ["true"]) for name in "01"])
    assert [json.loads((tmp_path / name / "submission.json").read_text())["ended"] for name in "01"] == ["then", None]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), KeyboardInterrupt()], ids=repr)
def test_jobs_that_nobody_would_know_of_are_cancelled(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = SlurmLauncher()
    launcher._sweep, launcher._code, launcher._copied, launcher._copies = tmp_path, tmp_path / "code", False, {}
    launcher._keys = SimpleNamespace(parameters=lambda *_: {"signal_delay_s": 60}, max_requeues=1)
    stand_in_for_slurm(tmp_path / "bin", "echo Submitted batch job 7", monkeypatch)
    (tmp_path / "bin/scancel").write_text(f"#!/bin/sh\necho $* >> {tmp_path}/cancelled\n")
    (tmp_path / "bin/scancel").chmod(0o755)

    def fail(*_: Any, **__: Any) -> None:
        raise error

    for place in ("paddock.slurm.submit.write_atomically", "submitit.core.utils.JobPaths.move_temporary_file"):
        with monkeypatch.context() as patch:
            patch.setattr(place, fail)
            with pytest.raises(type(error)):
                launcher.submit([Plan([], tmp_path / str(number), ["true"]) for number in range(2)])
    assert (tmp_path / "cancelled").read_text() == "7\n7\n"


def test_a_sweep_that_has_no_room_for_its_code_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    launcher = SlurmLauncher()
    launcher._sweep = tmp_path / "sweep"
    monkeypatch.setattr(launcher, "_leave", full)
    with pytest.raises(ConfigError, match=r"sweep cannot be written \(No space left on device\); .*hydra.sweep.dir="):
        launcher._run([])


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["hydra.launcher.time_min=0"], ["hydra.launcher.time_min=0", "at least 1"]),
        (["hydra.launcher.time_min=soon"], ["hydra.launcher.time_min='soon'", "a whole number"]),
        (["hydra.launcher.cpu=2"], ["hydra.launcher.cpu ", "'hydra.launcher.cpus'"]),
        (["hydra.launcher.memory_gb=-1"], ["hydra.launcher.memory_gb=-1", "at least 0.001"]),
        (["hydra.launcher.memory_gb=0.0001"], ["hydra.launcher.memory_gb=0.0001", "at least 0.001"]),
        (["hydra.launcher.signal_delay_s=5"], ["hydra.launcher.signal_delay_s=5", "10 to 3600"]),
        (["hydra.launcher.time_min=2"], ["hydra.launcher.signal_delay_s=120", "raise time_min to 3"]),
        (["+hydra.launcher.additional.output=x"], ["additional: output", "slurm.yaml"]),
        (["+hydra.launcher.additional.test_only=true"], ["additional: test_only", "slurm.yaml"]),
        (["+hydra.launcher.additional.parsable=true"], ["additional: parsable", "slurm.yaml"]),
        (["seed=1,-1"], ["seed=-1"]),
        ([], ["sbatch", "on the PATH"]),
    ],
)
def test_bad_input_is_one_line_before_anything_is_written(
    arguments: list[str], parts: list[str], call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    code, out, err = call(*SUBMIT, "seed=1,2", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert all(part in err for part in parts), err
    assert not Path("sweep").exists()


def test_a_cluster_out_of_reach_is_one_line_and_leaves_nothing(
    call: Call, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = [
        "sbatch: error: fetch_config: DNS SRV lookup failed",
        "sbatch: fatal: Could not establish a configuration source",
    ]
    script = f"printf '%s\\n' {shlex.join(said)} >&2; exit 1"
    stand_in_for_slurm(tmp_path_factory.mktemp("slurm") / "bin", script, monkeypatch)
    code, out, err = call("--multirun", "hydra/launcher=slurm", "seed=1,2")
    assert (code, out) == (2, "")
    why = "Slurm is out of reach here (Could not establish a configuration source)"
    assert err == f"paddock: {why}; submit where sinfo answers, or set SLURM_CONF to the cluster's slurm.conf\n"
    assert not any(Path.cwd().iterdir())


def test_a_dry_run_has_sbatch_read_what_is_said_to_it_alone(
    call: Call, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = (
        "case $1 in --constrait=*) echo \"sbatch: unrecognized option '$1'\" >&2; exit 255;; esac; echo --constraint="
    )
    stand_in_for_slurm(tmp_path_factory.mktemp("slurm") / "bin", script, monkeypatch)
    code, out, err = call(*SUBMIT, "seed=1,2", "dry_run=true", "+hydra.launcher.additional.constrait=a100")
    assert (code, out) == (2, "")
    what = "hydra.launcher.additional.constrait: sbatch says unrecognized option '--constrait=a100'"
    assert err == f"paddock: {what}; did you mean 'constraint'?\n"
    assert call(*SUBMIT, "seed=1,2", "dry_run=true", "+hydra.launcher.additional.constraint=a100")[0] == 0


BANNER = "Welcome to the Stampede3 Supercomputer\nNo job 12 of project 99 is charged"


@pytest.mark.parametrize("count", [1, 2])
def test_a_job_has_the_id_that_slurm_gives_it_behind_a_banner(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters = {"time": 5, "signal_delay_s": 60}
    stand_in_for_slurm(tmp_path / "bin", f"echo '{BANNER}'; echo Submitted batch job 7001 on cluster a", monkeypatch)
    jobs = submit_commands(tmp_path / "jobs", [["true"]] * count, parameters, 3, "slurm")
    assert [job.job_id.partition("_")[0] for job in jobs] == ["7001"] * count
    stand_in_for_slurm(tmp_path / "mute", "echo Good morning", monkeypatch)
    with pytest.raises(ConfigError, match="sbatch names no job: Good morning; mend slurm"):
        submit_commands(tmp_path / "jobs", [["true"]], parameters, 3, "slurm")


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("echo no such project; exit 1", "Slurm refuses the jobs: no such project; mend slurm, or see sinfo"),
        ("exit 1", "Slurm refuses the jobs: sbatch does not say why; mend slurm, or see sinfo"),
        (
            "echo sbatch: error: Batch job submission failed: Socket timed out on send/recv operation >&2; exit 1",
            "Slurm may have the jobs, as it did not answer in time (Batch job submission failed: Socket timed out on "
            "send/recv operation); see squeue before you submit again",
        ),
    ],
    ids=["on its output", "silent", "in time"],
)
def test_a_refusal_by_slurm_is_told_wherever_it_says_so(
    script: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in_for_slurm(tmp_path / "bin", script, monkeypatch)
    with pytest.raises(ConfigError) as refusal:
        submit_commands(tmp_path / "jobs", [["true"]], {"time": 5, "signal_delay_s": 60}, 3, "slurm")
    assert str(refusal.value) == line


def test_a_job_of_workers_has_the_id_that_slurm_gives_it_behind_a_banner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in_for_slurm(tmp_path / "bin", f"echo '{BANNER}'; echo Submitted batch job 7001", monkeypatch)
    job = Jobs.job_cls(scheduler="tcp://127.0.0.1:1", name="0", cores=1, memory="1GB")
    asyncio.run(job.start())
    assert job.job_id == "7001"


def test_a_job_that_is_submitted_from_inside_another_has_none_of_its_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {"SLURM_CONF": "/etc/slurm.conf", "SLURM_CLUSTERS": "a", "SBATCH_ACCOUNT": "mine"}
    of_job = ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_MEM_PER_NODE", "SLURMD_NODENAME", "SUBMITIT_EXECUTOR")
    for name, value in {**kept, **dict.fromkeys(of_job, "7")}.items():
        monkeypatch.setenv(name, value)
    script = f"env | grep -E '^(SLURM|SRUN|SUBMITIT|SBATCH)' > {tmp_path}/$$.env; echo Submitted batch job 8"
    stand_in_for_slurm(tmp_path / "bin", script, monkeypatch)
    submit_commands(tmp_path / "jobs", [["true"]], {"time": 5, "signal_delay_s": 60}, 3, "slurm")
    asyncio.run(Jobs.job_cls(scheduler="tcp://127.0.0.1:1", name="0", cores=1, memory="1GB").start())
    seen = [sorted(path.read_text().split()) for path in tmp_path.glob("*.env")]
    assert seen == [sorted(f"{name}={value}" for name, value in kept.items())] * 2
    assert os.environ["SLURM_ARRAY_JOB_ID"] == "7"


def test_without_multirun_nothing_starts_here_instead(call: Call) -> None:
    code, out, err = call("hydra/launcher=slurm")
    assert (code, out) == (2, "")
    assert "add --multirun" in err


def test_a_dry_run_shows_the_commands_and_needs_no_slurm(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    code, out, _ = call(*SUBMIT, "seed=1,2", "dry_run=true")
    lines = out.splitlines()
    assert (code, len(lines)) == (0, 2)
    assert "seed=2" in lines[1] and lines[1].endswith(f"run.dir={Path.cwd()}/sweep/1")


def test_jobs_find_their_groups_in_the_copy_of_the_code(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    shutil.copytree(CONF, "whole")
    for name in ("my groups", "plain"):
        Path(name, "algo").mkdir(parents=True)
        Path(name, "algo/own.yaml").touch()
    subprocess.run(["git", "init", "-q"], check=True)
    searched = "hydra.searchpath=[file://my groups,'plain',pkg://conf,file:///tmp]"
    line = [*SUBMIT, "seed=1,2", "dry_run=true", "--config-path", "whole", searched]
    code, out, err = call(*line)
    assert (code, err) == (0, "")
    copy = f"{Path.cwd()}/sweep/code/1/{Path.cwd().name}"
    words = shlex.split(out.splitlines()[0])
    assert words[words.index("--config-path") + 1] == f"{copy}/whole"
    there = [f"file://{copy}/my groups", f"{copy}/plain", "pkg://conf", "file:///tmp"]
    assert f"hydra.searchpath=[{','.join(map(repr, there))}]" in words


def test_a_trial_finds_its_groups_in_the_copy_of_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["paddock", "--config-dir", str(tmp_path / "mine")])
    sweeper: Any = OptunaSweeper()
    sweeper._fixed, sweeper._parameters, sweeper._loader, sweeper._launcher = [], [], None, SlurmLauncher()
    sweeper._launcher._copies = {tmp_path / "code": Tree(tmp_path, [PurePath("mine/algo/own.yaml")])}
    sweeper._config = OmegaConf.create({"hydra": {"overrides": {"hydra": []}, "job": {"env_set": {}}}})
    _, plan = sweeper._plan(SimpleNamespace(number=0), tmp_path / "0")
    assert plan.command[-3:-1] == ["--config-dir", f"{tmp_path}/code/mine"]


def test_a_run_on_native_environments_runs_from_a_copy(desk: Desk) -> None:
    if not any(path.is_relative_to(ROOT) for path in library.built()):
        pytest.skip("the native environments are not built here, or from older sources")
    words = ["algo=es", "env=cartpole", "vec=native", "compute=serial", "budget.iterations=1", "run.dir=run"]
    assert desk.call("paddock", *words)[::2] == (0, "")
    where = "import paddock.envs.native.library as it; print(it.built()[0])"
    found = subprocess.run(
        [sys.executable, "-P", "-c", where], cwd=desk.here, env=desk.environment, capture_output=True, text=True
    )
    assert Path(found.stdout.strip()).parent == desk.house / "envs/native"
