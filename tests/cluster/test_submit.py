"""Runs submitted to a real Slurm: left alone, gone on with after the time limit, cancelled, failed."""

import asyncio
import errno
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT, TINY, assert_same_run, call_main, rows, wait_until
from own_package import write_package
from slurm_cluster import CPUS, Slurm, at_slurm, slurm, stand_in_for_slurm  # noqa: F401, fixtures

from paddock import CONF
from paddock.envs.errors import DISK_FULL, ConfigError
from paddock.envs.native import library
from paddock.slurm.queue import submit_commands
from paddock.slurm.snapshot import find_tree
from paddock.slurm.submit import SlurmLauncher
from paddock.slurm.submitted import Queued
from paddock.slurm.workers import Jobs
from paddock.sweep.placement import End, Plan

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
def test_submitted_runs_do_not_see_later_edits(clustered: Desk, slurm: Slurm) -> None:  # noqa: F811
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
def test_run_at_its_time_limit_resumes_to_the_same_bits(clustered: Desk, slurm: Slurm) -> None:  # noqa: F811
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
    wait_until(lambda: slurm.state(job) == "COMPLETED")
    assert clustered.status()[1].endswith("1 done\n")
    code, _, err = clustered.call("paddock", *SMALL, *budget, "run.dir=alone")
    assert (code, err) == (0, "")
    alone = clustered.here / "alone"
    assert_same_run(run, alone)
    assert (run / "metrics.jsonl").read_bytes().startswith(before)
    said = log(run)
    assert said.index("running in") < said.index("stopped by SIGTERM") < said.index("resuming in")


@pytest.mark.nightly
@pytest.mark.slurm
def test_preempted_run_saves_and_resumes(clustered: Desk, slurm: Slurm) -> None:  # noqa: F811
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
    code, out, _ = clustered.call("paddock.status", "sweep/0")
    assert 3 < out.count("    | ") <= 10


@pytest.mark.slurm
def test_full_disk_is_known_from_the_exit_code_of_a_job(
    at_slurm: Slurm,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whose folder cannot say so: a trial is kept for when there is room, and no process of it was lost."""
    output = tmp_path / "job.log"
    job = at_slurm.call("sbatch", "--parsable", f"--output={output}", f"--wrap=echo no room; exit {DISK_FULL}").strip()
    noted = {"job": job, "name": "wrap", "submitted": "", "command": "", "code": None, "log": str(output)}
    (tmp_path / "submission.json").write_text(json.dumps(noted))
    (tmp_path / "config.yaml").touch()
    wait_until(lambda: at_slurm.state(job) == "FAILED")
    monkeypatch.setattr("paddock.slurm.submitted.NFS_DELAY_S", 0.0)
    assert wait_until(Queued(tmp_path).ended) == End(DISK_FULL, ["no room"])


@pytest.mark.slurm
def test_cancelled_run_saves_and_cancelled_job_is_lost(clustered: Desk, slurm: Slurm) -> None:  # noqa: F811
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
    assert line.endswith("hydra.sweep.dir=sweep  # resumes the grid")
    assert "    SIGTERM" in out and "    CANCELLED: its job never started" in out
    assert max((runs[0] / "checkpoints").glob("*.npz")).stem.endswith(str(len(rows(runs[0]))))


@pytest.mark.slurm
def test_a_run_that_is_in_the_queue_is_not_submitted_again(clustered: Desk, slurm: Slurm) -> None:  # noqa: F811
    arguments = [*SMALL, *SUBMIT, "seed=1", "budget.iterations=2"]
    code, out, _ = clustered.call("paddock", *arguments, "+hydra.launcher.additional.hold=true")
    job = out.split()[1].rstrip(":")
    assert (code, slurm.state(job)) == (0, "PENDING")
    code, _, err = clustered.call("paddock", *arguments)
    assert code == 2 and f"job {job} (PENDING)" in err
    slurm.call("scancel", job)


def log(run: Path) -> str:
    """What a run's job has printed."""
    return (run / "slurm.log").read_text() if (run / "slurm.log").exists() else ""


# Before the cluster


def test_submission_notes_an_earlier_end_of_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = SlurmLauncher()
    launcher._sweep, launcher._copied, launcher._copies = tmp_path, False, {}
    launcher._keys = SimpleNamespace(parameters=lambda *_: {"signal_delay_s": 60}, max_requeues=1)
    stand_in_for_slurm(tmp_path / "bin", "echo Submitted batch job 7", monkeypatch)
    (tmp_path / "0").mkdir()
    (tmp_path / "0/done.json").write_text('{"reason": "budget.steps=3000", "time": "then"}')
    launcher.submit([Plan([], tmp_path / name, ["true"]) for name in "01"])
    assert [json.loads((tmp_path / name / "submission.json").read_text())["ended"] for name in "01"] == ["then", None]


def test_jobs_without_a_note_are_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = SlurmLauncher()
    launcher._sweep, launcher._code, launcher._copied, launcher._copies = tmp_path, tmp_path / "code", False, {}
    launcher._keys = SimpleNamespace(parameters=lambda *_: {"signal_delay_s": 60}, max_requeues=1)
    stand_in_for_slurm(tmp_path / "bin", "echo Submitted batch job 7", monkeypatch)
    (tmp_path / "bin/scancel").write_text(f"#!/bin/sh\necho $* >> {tmp_path}/cancelled\n")
    (tmp_path / "bin/scancel").chmod(0o755)

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("paddock.slurm.submit.write_atomically", fail)
    with pytest.raises(OSError, match="No space left"):
        launcher.submit([Plan([], tmp_path / str(number), ["true"]) for number in range(2)])
    assert (tmp_path / "cancelled").read_text() == "7\n"


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["hydra.launcher.cpu=2"], ["hydra.launcher.cpu ", "'hydra.launcher.cpus'"]),
        (["hydra.launcher.time_min=2"], ["hydra.launcher.signal_delay_s=120", "increase time_min to 3"]),
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


def test_unreachable_cluster_is_one_line(
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
    why = "Slurm cannot be reached from here (Could not establish a configuration source)"
    assert err == f"paddock: {why}; submit where sinfo answers, or set SLURM_CONF to the cluster's slurm.conf\n"
    assert not any(Path.cwd().iterdir())


BANNER = "Welcome to the Stampede3 Supercomputer\nNo job 12 of project 99 is charged"


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("echo no such project; exit 1", "Slurm rejected the jobs: no such project; check hydra.launcher and sinfo"),
        (
            "echo sbatch: error: Batch job submission failed: Socket timed out on send/recv operation >&2; exit 1",
            "Slurm timed out and may have accepted the jobs (Batch job submission failed: Socket timed out on "
            "send/recv operation); check squeue before submitting again",
        ),
    ],
    ids=["on its output", "in time"],
)
def test_message_of_a_refusal_is_shown(script: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in_for_slurm(tmp_path / "bin", script, monkeypatch)
    with pytest.raises(ConfigError) as refusal:
        submit_commands(tmp_path / "jobs", [["true"]], {"time": 5, "signal_delay_s": 60}, 3)
    assert str(refusal.value) == line


def test_worker_job_id_is_read_behind_a_banner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in_for_slurm(tmp_path / "bin", f"echo '{BANNER}'; echo Submitted batch job 7001", monkeypatch)
    job = Jobs.job_cls(scheduler="tcp://127.0.0.1:1", name="0", cores=1, memory="1GB")
    asyncio.run(job.start())
    assert job.job_id == "7001"


def test_job_inherits_no_variables_of_another_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {"SLURM_CONF": "/etc/slurm.conf", "SLURM_CLUSTERS": "a", "SBATCH_ACCOUNT": "mine"}
    of_job = ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_MEM_PER_NODE", "SLURMD_NODENAME", "SUBMITIT_EXECUTOR")
    for name, value in {**kept, **dict.fromkeys(of_job, "7")}.items():
        monkeypatch.setenv(name, value)
    script = f"env | grep -E '^(SLURM|SRUN|SUBMITIT|SBATCH)' > {tmp_path}/$$.env; echo Submitted batch job 8"
    stand_in_for_slurm(tmp_path / "bin", script, monkeypatch)
    submit_commands(tmp_path / "jobs", [["true"]], {"time": 5, "signal_delay_s": 60}, 3)
    asyncio.run(Jobs.job_cls(scheduler="tcp://127.0.0.1:1", name="0", cores=1, memory="1GB").start())
    seen = [sorted(path.read_text().split()) for path in tmp_path.glob("*.env")]
    assert seen == [sorted(f"{name}={value}" for name, value in kept.items())] * 2
    assert os.environ["SLURM_ARRAY_JOB_ID"] == "7"


def test_dry_run_needs_no_slurm(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    code, out, _ = call(*SUBMIT, "seed=1,2", "dry_run=true")
    lines = out.splitlines()
    assert (code, len(lines)) == (0, 2)
    assert "seed=2" in lines[1] and lines[1].endswith(f"run.dir={Path.cwd()}/sweep/1")


def test_jobs_find_configuration_groups_in_the_snapshot(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_native_environments_run_from_a_snapshot(desk: Desk) -> None:
    if not any(path.is_relative_to(ROOT) for path in library.built()):
        pytest.skip("the native environments are not built here, or from older sources")
    words = ["algo=es", "env=cartpole", "vec=native", "compute=serial", "budget.iterations=1", "run.dir=run"]
    assert desk.call("paddock", *words)[::2] == (0, "")
    where = "import paddock.envs.native.library as it; print(it.built()[0])"
    found = subprocess.run(
        [sys.executable, "-P", "-c", where], cwd=desk.here, env=desk.environment, capture_output=True, text=True
    )
    assert Path(found.stdout.strip()).parent == desk.house / "envs/native"
