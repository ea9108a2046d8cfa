"""Inside of a Slurm job: signals, other processes at its run, the queue at its time limit, its exit code."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from conftest import ROOT, wait_until
from slurm_cluster import stand_in_for_slurm
from submitit.slurm.slurm import SlurmJobEnvironment

from paddock.envs.errors import IN_USE
from paddock.slurm.job import SlurmJob

CHILD = """
import os, signal, sys, time
heard = []
signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
print("ready", flush=True)
while not heard:
    time.sleep(0.01)
deadline = time.monotonic() + 2.5
while time.monotonic() < deadline:
    time.sleep(0.01)
print("heard", len(heard), flush=True)
sys.exit(143)
"""


@pytest.fixture
def start_job() -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Start what a Slurm job would, around a child that runs a script; it looks at once whether another has gone."""
    started = []

    def begin(script: str, waits_s: float = 60.0) -> subprocess.Popen[str]:
        call = f"import sys; from paddock.slurm import job; job.AGAIN_S, job.OTHER_S = 0.1, {waits_s}"
        call += f"; job.SlurmJob([sys.executable, '-c', {script!r}], 60.0)()"
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", call],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        )
        return started[-1]

    yield begin
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.real_start
@pytest.mark.parametrize("everybody", [True, False], ids=["to all processes", "to the first process"])
def test_the_run_hears_a_signal_once_however_the_cluster_sends_it(
    everybody: bool, start_job: Callable[[str], subprocess.Popen[str]]
) -> None:
    job = start_job(CHILD)
    assert job.stdout is not None and job.stdout.readline() == "ready\n"
    (os.killpg if everybody else os.kill)(job.pid, signal.SIGTERM)
    assert job.stdout.readline() == "heard 1\n"
    # It stays until Slurm ends it, so that a preempted job is requeued.
    wait_until(lambda: all(p.status() == psutil.STATUS_ZOMBIE for p in psutil.Process(job.pid).children()[1:]))
    assert job.poll() is None


def test_a_job_waits_for_another_process_at_its_run(
    start_job: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    # As one that Slurm put into the queue again when it lost sight of a node, where the run still goes on.
    other = tmp_path / "other"
    other.touch()
    script = f"import os; print('begun', flush=True); exit(75 if os.path.exists({str(other)!r}) else 0)"
    job, brief = start_job(script), start_job(script, 0.2)
    assert job.stdout is not None
    assert [job.stdout.readline() for _ in range(3)] == ["begun\n"] * 3
    assert job.poll() is None
    assert brief.wait(30) == 75, "not for ever"
    other.unlink()
    assert job.wait(30) == 0


def test_a_job_that_is_told_to_end_while_it_waits_for_another_process_starts_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[int] = []

    def run(self: SlurmJob, witness: Any) -> int:
        begun.append(1)
        return IN_USE

    monkeypatch.setattr(SlurmJob, "_run", run)
    monkeypatch.setattr(SlurmJob, "_rest", lambda self, seconds: signal.raise_signal(signal.SIGTERM))
    monkeypatch.setattr("paddock.slurm.job.PATIENCE_S", 0)
    monkeypatch.setattr("paddock.slurm.job._start", lambda command: SimpleNamespace(kill=lambda: None))
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as end:
            SlurmJob([], 60.0)()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (begun, end.value.code) == ([1], 143)


def test_a_job_at_its_time_limit_is_put_into_the_queue_again_although_slurm_is_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SlurmJobEnvironment, "_requeue", None)  # which submitit calls next
    monkeypatch.setattr("paddock.slurm.job.RETRY_S", 0.01)
    for name, value in {"SUBMITIT_EXECUTOR": "slurm", "SLURM_JOB_ID": "7"}.items():
        monkeypatch.setenv(name, value)
    busy = f"echo $* >> {tmp_path}/tries; [ $(wc -l < {tmp_path}/tries) -ge 3 ]"
    stand_in_for_slurm(tmp_path / "bin", busy, monkeypatch)
    (tmp_path / "bin/squeue").write_text("#!/bin/sh\nexec sleep 30\n")
    begun = time.monotonic()
    SlurmJob([], 2.0).checkpoint()
    assert time.monotonic() - begun < 2.0
    SlurmJobEnvironment()._requeue(3)
    assert (tmp_path / "tries").read_text() == "requeue 7\n" * 3


@pytest.mark.parametrize(
    ("script", "code"), [("exit(0)", 0), ("exit(2)", 2), ("import os; os.kill(os.getpid(), 9)", 137)]
)
def test_a_job_ends_as_its_run_did(script: str, code: int, start_job: Callable[[str], subprocess.Popen[str]]) -> None:
    job = start_job(script)
    _, err = job.communicate(timeout=30)
    assert job.returncode == code
    assert ("ended by SIGKILL" in err) == (code == 137)
