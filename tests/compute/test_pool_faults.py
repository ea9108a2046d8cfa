"""Workers that are killed, stopped, stuck, renewed or told to end: no task is lost, and no process stays."""

import contextlib
import errno
import itertools
import multiprocessing.util
import os
import queue
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import wait_until
from distributed import LocalCluster
from pool_tasks import crash, hold, nap, square
from pools import two_fixture, values, worker_pids  # noqa: F401

from paddock.algos.pool.protocol import Done, End, PoolError, TaskTimeout, WorkerLost
from paddock.compute.dask import autoscale, dispatcher
from paddock.compute.dask.autoscale import Bounds
from paddock.compute.dask.cluster import TRIES, connect, local
from paddock.compute.dask.pool import DaskPool


def test_a_task_that_crashes_its_workers_ends_with_signal_and_traceback(two: DaskPool) -> None:
    (error,) = [done.error for done in two.imap_unordered(crash, range(4)) if done.error is not None]
    assert isinstance(error, WorkerLost) and str(error).startswith("task 1 lost its worker 4 times")
    assert "SIGSEGV" in str(error) and "in crash" in str(error)


def test_a_stopped_worker_is_not_waited_for(two: DaskPool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(dispatcher, "SILENCE_S", 3.0)
    wait_until(lambda: two.size == 2)
    ends = two.imap_unordered(hold, [(index, str(tmp_path)) for index in range(2)])
    got: list[Done] = []
    reader = threading.Thread(target=lambda: got.extend(ends))
    reader.start()
    stopped = int(wait_until(lambda: next(tmp_path.glob("began-0-*"), None)).name.split("-")[2])
    os.kill(stopped, signal.SIGSTOP)
    try:
        # A thread on another core goes on for a moment, and might yet see that it may.
        threads = Path(f"/proc/{stopped}/task")
        wait_until(lambda: all(" T " in stat.read_text().rpartition(")")[2][:3] for stat in threads.glob("*/stat")))
        (tmp_path / "go").touch()
        reader.join(60)
        assert values(got) == [0, 1]
        assert len(list(tmp_path.glob("began-0-*"))) == 2
        assert two.size == 1
    finally:
        os.kill(stopped, signal.SIGCONT)
    wait_until(lambda: two.size == 2)  # it is as good as before once it goes on


def test_a_worker_that_stays_silent_is_replaced(two: DaskPool) -> None:
    wait_until(lambda: two.size == 2)
    worker = next(iter(two._dispatcher.workers.values()))
    process = psutil.Process(worker.answer["pid"])

    def fall_silent() -> None:
        worker.quiet_s += 3600

    def replaced() -> bool:
        two._dispatcher.call(fall_silent)  # again, as messages sent before the suspension reset it
        return not process.is_running()

    process.suspend()
    try:
        wait_until(replaced, 60)
    finally:
        with contextlib.suppress(psutil.Error):
            process.kill()
    wait_until(lambda: two.size == 2)


def test_a_silent_time_limit_ends_the_task_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "SILENCE_S", 3.0)
    pool = local(Bounds(2, 2), retries=3, task_timeout_s=1.0)
    try:
        ends = list(pool.imap_unordered(hold, [(index, str(tmp_path)) for index in range(2)]))
        assert all(isinstance(done.error, TaskTimeout) for done in ends)
        wait_until(lambda: pool.size == 2)
        assert values(pool.imap_unordered(square, range(4))) == [0, 1, 4, 9]
    finally:
        pool.close()


def test_signals_to_all_processes_are_left_to_the_driver(two: DaskPool, tmp_path: Path) -> None:
    wait_until(lambda: two.size == 2)
    ends = two.imap_unordered(hold, [(index, str(tmp_path)) for index in range(2)])
    got: list[Done] = []
    reader = threading.Thread(target=lambda: got.extend(ends))
    reader.start()
    wait_until(lambda: len(list(tmp_path.glob("began-*"))) == 2)
    for pid in worker_pids(two):
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(pid, number)
    (tmp_path / "go").touch()
    reader.join(60)
    assert values(got) == [0, 1] and [done.attempts for done in got] == [1, 1]


def test_a_worker_that_retires_gives_back_what_it_has_not_begun(tmp_path: Path) -> None:
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        pool = connect(cluster.scheduler_address, retries=0, task_timeout_s=None)
        try:
            ends = pool.imap_unordered(nap, itertools.chain([0.01] * 10, [0.2] * 20))
            first = [next(ends) for _ in range(12)]
            address = next(iter(pool._dispatcher.workers))
            threading.Thread(target=pool._client.retire_workers, args=([address],), daemon=True).start()
            rest = list(ends)
            # No attempt was lost: with retries=0 one would be an error.
            assert len(first) + len(rest) == 30 and all(done.error is None for done in [*first, *rest])
            assert {done.attempts for done in rest} == {1}
        finally:
            pool.close()


def test_a_worker_is_renewed_when_what_runs_beside_has_ended(tmp_path: Path) -> None:
    folders = [tmp_path / "short", tmp_path / "long"]
    for folder in folders:
        folder.mkdir()
    settings: dict[str, Any] = {"n_workers": 1, "threads_per_worker": 2, "dashboard_address": None}
    with LocalCluster(**settings, env={"PADDOCK_DRAIN_S": "0.2"}) as cluster:
        pool = connect(cluster.scheduler_address, retries=0, task_timeout_s=None)
        ends: queue.SimpleQueue[Sequence[End]] = queue.SimpleQueue()
        batch = pool.open_batch(hold, ends.put, renew_after=1)
        try:
            for number, folder in enumerate(folders):
                batch.put((number, str(folder)))
            wait_until(lambda: all(list(folder.glob("began-*")) for folder in folders))
            (folders[0] / "go").touch()
            assert [end().index for end in ends.get()] == [0]
            threading.Timer(1.0, (folders[1] / "go").touch).start()
            (done,) = [end() for end in ends.get()]
            assert (done.index, done.attempts, done.error) == (1, 1, None)
            assert len(list(folders[1].glob("began-*"))) == 1
        finally:
            (folders[1] / "go").touch()
            pool.close()


@pytest.mark.parametrize("kills", [1, 1000])
def test_workers_killed_while_they_start_are_replaced_a_few_times(kills: int, monkeypatch: pytest.MonkeyPatch) -> None:
    spawn, killed = multiprocessing.util.spawnv_passfds, list[int]()

    def spawn_and_kill(*given: Any) -> int:
        pid: int = spawn(*given)
        if len(killed) < kills:
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)
        return pid

    monkeypatch.setattr(multiprocessing.util, "spawnv_passfds", spawn_and_kill)
    if kills > 1:
        with pytest.raises(PoolError, match=r"cannot start a worker process in 4 attempts: killed by SIGKILL"):
            local(Bounds(1, 1), retries=0, task_timeout_s=None)
        assert len(killed) == TRIES
    else:
        pool = local(Bounds(1, 1), retries=0, task_timeout_s=None)
        assert values(pool.imap_unordered(square, range(9))) == [x * x for x in range(9)]
        pool.close()


def test_a_pool_whose_workers_cannot_be_replaced_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autoscale, "MAX_ATTEMPTS", 2)
    pool = local(Bounds(1, 1), retries=3, task_timeout_s=None)
    (pid,) = worker_pids(pool)

    def spawn_in_vain(*given: Any) -> int:
        raise BlockingIOError(errno.EAGAIN, "try again later")

    monkeypatch.setattr(multiprocessing.util, "spawnv_passfds", spawn_in_vain)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(PoolError, match=r"2 attempts to start others failed: "):
        values(pool.imap_unordered(square, range(9)))
    pool.close()
