"""Workers that are Slurm jobs: killed, at the end of their time, orphaned; on a real Slurm."""

import asyncio
import contextlib
import os
import re
import subprocess
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import psutil
import pytest
from conftest import (
    CERTIFICATES,
    ROOT,
    TINY,
    Command,
    assert_refuses_strangers,
    assert_same_run,
    call_main,
    job_recipe,
    rows,
    wait_until,
)
from own_package import write_package
from slurm_cluster import Slurm, at_slurm, slurm  # noqa: F401, fixtures

from paddock.compute.dask import autoscale
from paddock.slurm.workers import submit

Begin = Callable[..., Command]


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    """While this file is there, runs take their time."""
    path = tmp_path / "slow"
    write_package(tmp_path, path)
    path.touch()
    return path


@pytest.fixture
def begin(slurm: Slurm, slow: Path, start: Begin) -> Iterator[Begin]:  # noqa: F811
    """Start a run whose workers are jobs; after the test none of them is left."""

    def begin(run: Path, *arguments: str, serial: bool = False) -> Command:
        path = os.pathsep.join([str(slow.parent), str(ROOT)])
        keys = [*TINY, "env=gymnasium", "env.id=mine:Paced-v0", "env.max_episode_steps=50", f"run.dir={run}"]
        jobs = ["compute=slurm", "compute.host=127.0.0.1", "compute.memory_gb=1"]
        return start(*keys, *(["compute=serial"] if serial else jobs), *arguments, **slurm.environment, PYTHONPATH=path)

    yield begin
    slurm.call("scancel", "-u", "root")
    wait_until(lambda: not jobs(slurm))


def jobs(slurm: Slurm) -> set[str]:  # noqa: F811
    """The ids of the jobs that wait or run."""
    return set(slurm.call("squeue", "-h", "-o", "%i", "-t", "PENDING,RUNNING,COMPLETING").split())


def said(run: Path, job: str) -> str:
    """What a job has written."""
    path = run / "workers" / f"paddock-{job}.err"
    return path.read_text() if path.exists() else ""


def kill(job: str) -> None:
    """`kill -9` of all processes of a job, the youngest first: a worker that outlives its shell is told to retire."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("SLURM_JOB_ID") == job:
                found.append(process)
    for process in sorted(found, key=lambda one: -one.create_time()):
        with contextlib.suppress(psutil.Error):
            process.kill()


def finished(command: Command) -> str:
    """What a command that ends well says."""
    code, _, err = command.wait()
    assert code == 0 and "Traceback" not in err, err
    return err


def assert_same_as_alone(run: Path, slow: Path, begin: Begin, *arguments: str) -> None:
    alone = run.with_name("alone")
    finished(begin(alone, *arguments, serial=True))
    assert_same_run(run, alone)


@pytest.mark.slurm
def test_a_killed_job_is_replaced_and_the_numbers_are_the_same(
    begin: Begin,
    slow: Path,
    slurm: Slurm,  # noqa: F811
    tmp_path: Path,
) -> None:
    run = tmp_path / "a run"  # with a space in its name
    # Tasks of a second: a job that is killed loses one, where short ones may leave it idle just then.
    settings = ["budget.iterations=12", "algo.episodes_per_member=10"]
    command = begin(run, *settings, "compute.workers=2", "compute.cpus=2")
    wait_until(lambda: rows(run) or command.process.poll() is not None)
    before = jobs(slurm)
    assert len(before) == 2, command.wait()
    # All at once, as with its machine: one that is only cancelled ends what it runs, and gives the rest back.
    kill(min(before))
    (new,) = wait_until(lambda: jobs(slurm) - before)
    wait_until(lambda: slurm.state(new) == "RUNNING")
    wait_until(lambda: "Registered to" in said(run, new))
    assert_refuses_strangers(re.search(r"Registered to: +(tls://[\d.:]+)", said(run, new))[1])  # type: ignore[index]
    slow.unlink()
    assert "lost" in finished(command)
    wait_until(lambda: not jobs(slurm))
    assert_same_as_alone(run, slow, begin, *settings)


@pytest.mark.slurm
def test_jobs_retire_in_time_without_losing_tasks(
    begin: Begin,
    slow: Path,
    slurm: Slurm,  # noqa: F811
    tmp_path: Path,
) -> None:
    # A pool grows when there is work for more than two seconds: here four tasks of a second.
    run, settings = tmp_path / "run", ["budget.iterations=40", "+env.kwargs.pace_s=0.25"]
    keys = ["compute.workers.min=1", "compute.workers.max=2", "compute.time_min=1", "compute.retries=0"]
    began = time.monotonic()
    command = begin(run, *settings, *keys)
    first = wait_until(lambda: jobs(slurm))
    assert len(first) == 1
    both = wait_until(lambda: jobs(slurm) if len(jobs(slurm)) == 2 else None)
    assert first < both
    wait_until(lambda: slurm.state(*first) == "COMPLETED", timeout_s=90, say=lambda: slurm.state(*first))
    lasted_s = time.monotonic() - began
    new = wait_until(lambda: jobs(slurm) - both)
    wait_until(lambda: any("Registered to" in said(run, job) for job in new))
    slow.unlink()
    assert "lost" not in finished(command)
    wait_until(lambda: not jobs(slurm))
    assert_same_as_alone(run, slow, begin, *settings)
    print(f"a job of 60 s at most ended by itself after {lasted_s:.0f} s")


@pytest.mark.slurm
def test_encrypted_jobs_come_when_asked_and_go_when_idle(
    at_slurm: Slurm,  # noqa: F811
    certificates: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(autoscale, "IDLE_S", 1.0)
    tls = {name: str(certificates / file) for name, file in CERTIFICATES.items()}
    pool = submit(job_recipe(tls, workers={"min": 1, "max": 2}, cpus=2), (), tmp_path)
    try:
        assert all(address.startswith("tls://") for address in pool._dispatcher.workers)
        assert pool.size == 2 and len(jobs(at_slurm)) == 1
        pool.ask(2)
        wait_until(lambda: pool.size == 4)
        assert len(jobs(at_slurm)) == 2
        pool.ask(1)
        wait_until(lambda: pool.size == 2 and len(jobs(at_slurm)) == 1)
        assert sorted(done.value for done in pool.imap_unordered(abs, range(-9, 0))) == list(range(1, 10))
    finally:
        pool.close()
    wait_until(lambda: not jobs(at_slurm))


@pytest.mark.slurm
def test_jobs_end_by_themselves_when_their_run_is_killed(begin: Begin, slurm: Slurm, tmp_path: Path) -> None:  # noqa: F811
    command = begin(tmp_path / "run", "compute.workers=1")
    wait_until(lambda: rows(tmp_path / "run"))
    # Of one that waits, or has just begun, no worker has met the scheduler.
    (job,) = jobs(slurm)
    script = slurm.call("scontrol", "write", "batch_script", job, "-")
    waiting = subprocess.run(
        ["sbatch", "--begin=now+2"], input=script, env=os.environ | slurm.environment, capture_output=True, text=True
    )
    command.process.kill()
    killed = time.monotonic()
    wait_until(lambda: job not in jobs(slurm), timeout_s=20)
    first_s = time.monotonic() - killed
    wait_until(lambda: not jobs(slurm), timeout_s=90)
    print(f"jobs ended {first_s:.0f} s and {time.monotonic() - killed:.0f} s after their run: {waiting.stdout.strip()}")


@pytest.mark.slurm
@pytest.mark.parametrize(
    ("keys", "parts", "submitted"),
    [
        (
            ["+compute.additional.begin=now+1hour", "compute.wait_s=2"],
            ["no Slurm job started a worker within compute.wait_s=2", "PENDING BeginTime", "increase it"],
            False,
        ),
        (
            ["compute.setup=['exit 3']"],
            ["every job ended before its worker joined", "FAILED NonZeroExitCode", "run/workers"],
            True,
        ),
    ],
    ids=["never", "dies"],
)
def test_jobs_that_cannot_start_are_one_line(
    keys: list[str],
    parts: list[str],
    submitted: bool,
    begin: Begin,
    slurm: Slurm,  # noqa: F811
    tmp_path: Path,
) -> None:
    code, _, err = begin(tmp_path / "run", *keys).wait()
    assert code == 2 and err.count("\n") == 1 and all(part in err for part in parts), err
    assert not jobs(slurm)
    assert (tmp_path / "run").exists() == submitted


def test_jobs_that_keep_ending_are_submitted_ever_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    now, submitted = 0, []

    class Cluster:
        worker_spec: ClassVar[dict[str, dict[str, Any]]] = {"job": {}}
        workers: ClassVar[dict[str, object]] = {"job": None}

        def scale(self, n: int) -> None:
            submitted.append(now)
            self.workers["job"] = None

    async def all_of_them(names: Collection[Any]) -> Collection[Any]:
        return names

    monkeypatch.setattr(autoscale.time, "monotonic", lambda: now)
    fleet = autoscale.WorkerFleet(Cluster(), autoscale.Bounds(1, 1), ended=all_of_them)
    worker: Any = SimpleNamespace(answer={"name": "job"}, items={}, objects=0, idle_since=0, stuck=False)
    fleet.note(worker)
    for now in range(200):
        asyncio.run(fleet.follow(0, [worker] if now == 0 else []))
    # Seen to have ended at 1, 11, 21, 31, 44 and 85; between two tries are at least 5, 10, 20, 40 and 80 seconds.
    assert submitted == [1, 11, 22, 43, 84, 165]


def test_without_slurm_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert call_main(*TINY, "compute=slurm", f"run.dir={tmp_path}/run") == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "needs sbatch on the PATH" in err
    assert not any(tmp_path.iterdir())
