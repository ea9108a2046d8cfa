"""The pool's laws, on real worker processes with real kills."""

import contextlib
import errno
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import (
    ROOT,
    TINY,
    Command,
    alive,
    assert_same_run,
    call_main,
    command_line,
    launch,
    launch_scheduler,
    rows,
    stop,
    wait_until,
)
from pools import two_fixture  # noqa: F401

from paddock.algos.pool.protocol import Done, PoolError, TaskTimeout, WorkerLost
from paddock.algos.pool.serial import SerialPool
from paddock.compute.dask.autoscale import Bounds
from paddock.compute.dask.cluster import local
from paddock.compute.dask.pool import DaskPool
from paddock.runs.checkpoint import read

TASKS = 24


@pytest.fixture(params=["serial", "local"])
def pool(request: pytest.FixtureRequest, two: DaskPool) -> Any:
    return SerialPool() if request.param == "serial" else two


def by_index(ends: Any) -> list[Done]:
    return sorted(ends, key=lambda done: done.index)


def square(x: int) -> int:
    return x * x


def die_once(task: tuple[int, str]) -> int:
    """Kill the worker that meets the marked task first; the marker file tells that it happened."""
    x, marker = task
    if x == 5 and not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def die_always(x: int) -> int:
    if x == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def hang_on_two(x: int) -> int:
    if x == 2:
        time.sleep(600)
    return x


# The contract, for every pool


def test_every_task_ends_once_with_its_value(pool: Any) -> None:
    ends = by_index(pool.imap_unordered(square, range(TASKS)))
    assert [(done.index, done.value, done.error) for done in ends] == [(x, x * x, None) for x in range(TASKS)]
    assert all(done.seconds >= 0 and done.attempts == 1 for done in ends)


def test_results_stream_and_tasks_are_taken_as_needed(pool: Any) -> None:
    taken: list[int] = []

    def endless() -> Iterator[int]:
        for x in range(10**9):
            taken.append(x)
            yield x

    ends = pool.imap_unordered(square, endless())
    next(ends)
    ends.close()
    assert len(taken) < 50
    # A batch that was given up leaves nothing behind for the next.
    assert [done.value for done in by_index(pool.imap_unordered(square, range(3)))] == [0, 1, 4]


# Faults


def test_a_lost_workers_task_runs_again(two: DaskPool, tmp_path: Path) -> None:
    marker = str(tmp_path / "died")
    ends = by_index(two.imap_unordered(die_once, [(x, marker) for x in range(TASKS)]))
    assert [done.value for done in ends] == list(range(TASKS))
    assert Path(marker).exists()


def test_a_task_that_kills_its_workers_is_given_up_and_the_others_finish(two: DaskPool) -> None:
    ends = by_index(two.imap_unordered(die_always, range(12)))
    assert isinstance(ends[5].error, WorkerLost)
    assert ends[5].attempts == 4
    assert [done.value for done in ends if done.index != 5] == [x for x in range(12) if x != 5]


def test_a_task_that_hangs_is_given_up_and_the_others_finish() -> None:
    pool = local(Bounds(2, 2), retries=3, task_timeout_s=5.0)
    try:
        ends = by_index(pool.imap_unordered(hang_on_two, range(8)))
        assert isinstance(ends[2].error, TaskTimeout)
        assert [done.value for done in ends if done.index != 2] == [0, 1, 3, 4, 5, 6, 7]
        # The worker that hung was replaced, and the pool is as good as before.
        assert [done.value for done in by_index(pool.imap_unordered(square, range(4)))] == [0, 1, 4, 9]
    finally:
        pool.close()


def test_closing_twice_is_fine_and_leaves_no_process() -> None:
    before = set(psutil.Process().children(recursive=True))
    pool = local(Bounds(2, 2), retries=3, task_timeout_s=None)
    during = set(psutil.Process().children(recursive=True)) - before
    assert len(during) >= 2
    pool.close()
    pool.close()
    spawned = [process for process in during if "spawn_main" in command_line(process)]
    wait_until(lambda: not any(map(alive, spawned)), 10)
    with pytest.raises(PoolError, match="closed"):
        next(pool.imap_unordered(square, [1]))


def test_a_worker_that_runs_no_python_ends_with_its_killed_driver(tmp_path: Path) -> None:
    code = """
import sys
from paddock.compute.dask.autoscale import Bounds
from paddock.compute.dask.cluster import local
from pool_tasks import hold
if __name__ == "__main__":
    list(local(Bounds(1, 1), 0, None).imap_unordered(hold, [(0, sys.argv[1])]))
"""
    path = os.pathsep.join(sys.path)
    driver = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], env=os.environ | {"PYTHONPATH": path})
    try:
        began = wait_until(lambda: next(tmp_path.glob("began-*"), None) or driver.poll() is not None)
        worker = psutil.Process(int(began.name.split("-")[2]))
        worker.suspend()  # as if it were in the midst of compiled code that never comes back
    finally:
        driver.kill()
        driver.wait()
    try:
        wait_until(lambda: not alive(worker), 20)
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            worker.kill()


def test_nothing_listens_beyond_this_machine(two: DaskPool) -> None:
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    ours = [process for process in family if process.name().startswith("python")]  # Slurm's daemons may be beside us
    listening = []
    for process in ours:
        with contextlib.suppress(psutil.NoSuchProcess):  # another test's, which has ended meanwhile
            found = process.net_connections("inet")
            listening += [connection.laddr.ip for connection in found if connection.status == psutil.CONN_LISTEN]
    assert listening and set(listening) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}  # the last as gRPC has it


def test_a_lost_scheduler_ends_the_run_with_one_line_and_a_good_checkpoint(
    tmp_path: Path, start: Callable[..., Command]
) -> None:
    scheduler, address = launch_scheduler(tmp_path)
    joining = ["worker", address, "--nthreads", "1", "--preload", "paddock.algos.pool.worker", "--no-dashboard"]
    worker = launch(*joining, cwd=tmp_path, PYTHONPATH=str(ROOT))
    try:
        run = tmp_path / "run"
        command = start(*TINY, "compute=dask", f"compute.address={address}", f"run.dir={run}")
        wait_until(lambda: len(rows(run)) >= 3 or command.process.poll() is not None)
        scheduler.kill()
        code, _, err = command.wait()
        assert code == 1
        (line,) = [line for line in err.splitlines() if line.startswith("paddock: ")]
        assert address in line and "run.dir=" in line and "Traceback" not in err
        pasted = shlex.join([*TINY, "compute=dask", f"compute.address={address}", f"run.dir={run}"])
        assert err.splitlines()[-1].endswith(f" {pasted}")
        assert read(max((run / "checkpoints").glob("*.npz")))["algorithm"]["iteration"] >= 2
    finally:
        for process in (scheduler, worker):
            stop(process)


def test_a_full_folder_of_temporary_files_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tempfile.mkdtemp", full)
    with pytest.raises(PoolError, match=r"cannot start worker processes \(.*No space left.*TMPDIR"):
        local(Bounds(1, 1), 0, None)


# Law 2, through the command


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _finished(tmp_path_factory.mktemp("serial") / "run", "compute=serial")


def _finished(path: Path, *arguments: str) -> Path:
    assert call_main(*TINY, "budget.iterations=12", f"run.dir={path}", *arguments) == 0
    return path


@pytest.mark.parametrize(
    "compute",
    [
        ["compute=local", "compute.workers=3"],
        ["compute=serial", "vec.num_envs=3"],
    ],
    ids=" ".join,
)
def test_numbers_are_the_same_on_every_backend(compute: list[str], reference: Path, tmp_path: Path) -> None:
    assert_same_run(reference, _finished(tmp_path / "run", *compute))


def test_members_sent_to_workers_are_those_of_one_process(tmp_path: Path) -> None:
    serial, local = (
        _finished(tmp_path / compute, "algo/strategy=ga", f"compute={compute}") for compute in ("serial", "local")
    )
    assert_same_run(serial, local)
