"""Inside a Slurm job: signals, other processes at its run, its exit code."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from conftest import ROOT, wait_until

from paddock.envs.errors import IN_USE
from paddock.slurm.job import SlurmJob

CHILD = """
import sys, time
from paddock.runs.loop import Signals
told = []
with Signals(told.append) as signals:
    print("ready", flush=True)
    while signals.caught is None:
        time.sleep(0.01)
    time.sleep(0.5)
print("heard", len(told), flush=True)
sys.exit(143)
"""


@pytest.fixture
def start_job() -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Start what a Slurm job would, around a child that runs a script; it looks at once whether another has gone."""
    started = []

    def begin(script: str, waits_s: float = 60.0) -> subprocess.Popen[str]:
        call = f"import sys; from paddock.slurm import job; job.RETRY_S, job.IN_USE_WAIT_S = 0.1, {waits_s}"
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
def test_run_saves_once_however_slurm_sends_the_signal(
    everybody: bool, start_job: Callable[[str], subprocess.Popen[str]]
) -> None:
    job = start_job(CHILD)
    assert job.stdout is not None and job.stdout.readline() == "ready\n"
    (os.killpg if everybody else os.kill)(job.pid, signal.SIGTERM)
    assert job.stdout.readline() == "heard 1\n"
    # It stays until Slurm ends it, so that a preempted job is requeued.
    wait_until(lambda: all(p.status() == psutil.STATUS_ZOMBIE for p in psutil.Process(job.pid).children()))
    assert job.poll() is None


def test_job_told_to_end_while_it_waits_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []

    def run(self: SlurmJob) -> int:
        begun.append(1)
        signal.raise_signal(signal.SIGTERM)
        return IN_USE

    monkeypatch.setattr(SlurmJob, "_run", run)
    monkeypatch.setattr("paddock.slurm.job.END_WAIT_S", 0)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as end:
            SlurmJob([], 60.0)()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (begun, end.value.code) == ([1], 143)


def test_job_waits_for_another_process_at_its_run(
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


@pytest.mark.parametrize(
    ("script", "code"), [("exit(0)", 0), ("exit(2)", 2), ("import os; os.kill(os.getpid(), 9)", 137)]
)
def test_job_ends_with_the_exit_code_of_its_run(
    script: str, code: int, start_job: Callable[[str], subprocess.Popen[str]]
) -> None:
    job = start_job(script)
    _, err = job.communicate(timeout=30)
    assert job.returncode == code
    assert ("ended by SIGKILL" in err) == (code == 137)
