"""Workers that are killed, stopped, stuck, renewed or told to end: no task is lost, and no process stays."""

import asyncio
import contextlib
import errno
import itertools
import multiprocessing.util
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from conftest import alive, wait_until
from distributed import Client, LocalCluster
from distributed.core import Status
from pool_tasks import complain_and_die, crash, hold, nap, process_id, square
from pools import two_fixture, values, worker_pids  # noqa: F401

from paddock.algos.pool.protocol import Done, End, PoolError, TaskTimeout, WorkerLost
from paddock.compute.dask import autoscale, dispatcher
from paddock.compute.dask.autoscale import Bounds
from paddock.compute.dask.cluster import START_S, TRIES, _kill_starting, connect, local
from paddock.compute.dask.pool import DaskPool
from paddock.compute.preflight import install


def test_a_poisonous_task_ends_with_the_cause_and_the_last_lines(two: DaskPool) -> None:
    ends = sorted(two.imap_unordered(complain_and_die, range(12)), key=lambda done: done.index)
    assert isinstance(ends[5].error, WorkerLost)
    text = str(ends[5].error)
    assert "task 5 lost its worker" in text and "SIGKILL" in text and "the last thing it said" in text
    assert values(done for done in ends if done.index != 5) == [x for x in range(12) if x != 5]


def test_a_crash_shows_where_it_was(two: DaskPool) -> None:
    (error,) = [done.error for done in two.imap_unordered(crash, range(4)) if done.error is not None]
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


def test_workers_go_on_though_their_driver_was_stopped_for_an_hour(two: DaskPool) -> None:
    wait_until(lambda: two.size == 2)
    before, cluster = worker_pids(two), two._client.cluster
    assert cluster is not None
    for worker in cluster.scheduler.workers.values():
        worker.last_seen -= 3600
    cluster.sync(cluster.scheduler.periodic_callbacks["worker-ttl"].callback)
    assert worker_pids(two) == before and two.size == 2


def test_a_worker_that_is_stuck_is_replaced(two: DaskPool, tmp_path: Path) -> None:
    wait_until(lambda: two.size == 2)
    ends = two.imap_unordered(hold, [(0, str(tmp_path))])
    got: list[Done] = []
    reader = threading.Thread(target=lambda: got.extend(ends))
    reader.start()
    began = wait_until(lambda: next(tmp_path.glob("began-0-*"), None))
    stuck = int(began.name.split("-")[2])

    def fall_silent() -> bool:
        """As if nothing had come for an hour, until it is gone."""
        for worker in list(two._dispatcher.workers.values()):
            if worker.answer["pid"] == stuck:
                worker.heard = time.monotonic() - 3600
        return not psutil.pid_exists(stuck)

    wait_until(fall_silent)
    (tmp_path / "go").touch()
    reader.join(60)
    assert values(got) == [0]
    wait_until(lambda: two.size == 2)


@pytest.mark.parametrize("known", [True, False], ids=["greeted in vain", "unknown to the scheduler"])
def test_a_worker_that_is_stuck_is_replaced_though_its_connection_broke(two: DaskPool, known: bool) -> None:
    """The kernel breaks it within 30 s where much was on its way; and a worker's loop may end by itself."""
    wait_until(lambda: two.size == 2)
    worker, cluster = next(iter(two._dispatcher.workers.values())), two._client.cluster
    process = psutil.Process(worker.answer["pid"])

    def fall_silent() -> None:
        worker.heard -= 3600

    process.suspend()
    try:
        assert cluster is not None
        if not known:
            cluster.sync(cluster.scheduler.remove_worker, worker.address, stimulus_id="test")
        two._dispatcher.call(worker.abort)
        wait_until(lambda: worker not in list(two._dispatcher.workers.values()))
        two._dispatcher.call(fall_silent)  # where the same is written at each look
        wait_until(lambda: not process.is_running(), 60)
    finally:
        with contextlib.suppress(psutil.Error):
            process.kill()
    wait_until(lambda: two.size == 2)


def hang_next(monkeypatch: pytest.MonkeyPatch) -> list[psutil.Process]:
    """Have the worker that is started next stop before it is told what to run; the list gets its process."""
    spawn, hung = multiprocessing.util.spawnv_passfds, list[psutil.Process]()

    def spawn_and_stop(*given: Any) -> int:
        pid = spawn(*given)
        if not hung:
            os.kill(pid, signal.SIGSTOP)
            hung.append(psutil.Process(pid))
        return pid

    monkeypatch.setattr(multiprocessing.util, "spawnv_passfds", spawn_and_stop)
    return hung


def test_a_worker_that_hangs_while_it_starts_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it has started, the cluster starts and ends no other, and who asks for that would wait for ever."""
    pool = local(Bounds(1, 2), retries=3, task_timeout_s=None)
    hung = hang_next(monkeypatch)
    try:
        cluster: Any = pool._client.cluster
        options = cluster.new_spec["options"]
        assert options.get("death_timeout") == START_S
        options["death_timeout"] = 1.0
        pool.ask(2)
        wait_until(lambda: hung)
        options["death_timeout"] = START_S
        wait_until(lambda: pool.size == 2)
        assert not alive(hung[0]), "it stays, stopped, as long as this machine"
    finally:
        for process in filter(alive, hung):
            process.kill()
        pool.close()


def test_a_pool_closes_though_a_worker_hangs_that_was_just_started(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = local(Bounds(1, 2), retries=3, task_timeout_s=None)
    hung = hang_next(monkeypatch)
    pool.ask(2)
    wait_until(lambda: hung)
    closing = threading.Thread(target=pool.close, daemon=True)
    closing.start()
    closing.join(20)
    closed = not closing.is_alive()
    with contextlib.suppress(psutil.Error):
        hung[0].kill()
    assert closed


@pytest.mark.parametrize("started", [False, True])
def test_a_worker_is_killed_as_its_pool_closes_if_it_has_not_started(
    started: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, killed = queue.SimpleQueue[Any](), list[int]()
    if started:
        said.put("started")  # of which its nanny has not heard
    monkeypatch.setattr(os, "kill", lambda pid, _: killed.append(pid))
    assert _kill_starting(SimpleNamespace(status=Status.starting, pid=7, init_result_q=said)) is not started
    assert killed == ([] if started else [7])


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


def test_what_a_terminal_or_a_scheduler_tells_all_processes_is_left_to_the_driver(
    two: DaskPool, tmp_path: Path
) -> None:
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


def test_nothing_that_workers_share_has_a_name_once_they_run(two: DaskPool) -> None:
    """Or it would stay on the machine where all processes are killed at once."""
    wait_until(lambda: two.size == 2)
    assert two._fleet is not None
    processes = [nanny.process for nanny in two._fleet.cluster.workers.values()]
    queues = [queue for process in processes for queue in (process.init_result_q, process.child_stop_q)]
    names = [lock._semlock.name for queue in queues for lock in (queue._rlock, queue._wlock, queue._sem)]
    assert len(names) == 12 and all(names)
    wait_until(lambda: not any(Path(f"/dev/shm/sem.{name[1:]}").exists() for name in names), 10)


@pytest.mark.real_start
def test_what_a_terminal_tells_all_processes_ends_no_worker_while_it_starts() -> None:
    """It would say so in a traceback of some thirty lines, each."""
    pool, heeding, seen = local(Bounds(1, 1), retries=3, task_timeout_s=None), [], set()
    try:
        (before,) = worker_pids(pool)
        os.kill(before, signal.SIGKILL)
        while worker_pids(pool) in ([before], []):
            for child in psutil.Process().children():
                with contextlib.suppress(psutil.Error, OSError):
                    if child.pid != before and "spawn_main" in str(child.cmdline()):
                        heeding += [child.pid] * _heeds(child.pid, signal.SIGINT)
                        seen.add(child.pid)
        assert seen and not heeding
    finally:
        pool.close()


def _heeds(pid: int, number: int) -> bool:
    """Whether a signal would reach a process: it neither blocks nor ignores it."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return not any(int(status[name], 16) >> number - 1 & 1 for name in ("SigBlk", "SigIgn"))


def test_workers_killed_between_two_batches_are_replaced(two: DaskPool) -> None:
    for pid in worker_pids(two):
        os.kill(pid, signal.SIGKILL)
    assert values(two.imap_unordered(square, range(20))) == [x * x for x in range(20)]


@pytest.mark.parametrize("kills", [1, 1000])
def test_workers_killed_while_they_start_are_replaced_a_few_times(kills: int, two: DaskPool) -> None:
    wait_until(lambda: two.size == 2)  # its workers, which may be on their way, are not meant
    before, opened = set(psutil.Process().children()), threading.Event()
    killed: list[int] = []

    def kill() -> None:
        while not opened.is_set() and len(killed) < kills:
            for child in set(psutil.Process().children()) - before:
                with contextlib.suppress(psutil.Error):
                    if len(killed) < kills and "spawn_main" in str(child.cmdline()):
                        child.kill()
                        killed.append(child.pid)
                        before.add(child)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        if kills > 1:
            with pytest.raises(PoolError, match=r"no worker process starts here, in 4 tries: killed by SIGKILL"):
                local(Bounds(1, 1), retries=0, task_timeout_s=None)
            assert len(killed) == 4
        else:
            pool = local(Bounds(2, 2), retries=0, task_timeout_s=None)
            assert pool.size == 2
            assert values(pool.imap_unordered(square, range(9))) == [x * x for x in range(9)]
            pool.close()
            assert len(killed) == 1
    finally:
        opened.set()
        killer.join()


@pytest.mark.parametrize(
    ("how", "cause"), [("killed", "killed by SIGKILL"), ("unstarted", r"cannot be started \(.*try again later\)")]
)
def test_a_pool_none_of_whose_workers_can_be_replaced_says_so_and_does_not_wait_for_ever(
    how: str, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the machine's memory or processes are used up by something else."""
    monkeypatch.setattr(autoscale, "LAST_TRIES", 2)
    pool = local(Bounds(1, 1), retries=3, task_timeout_s=None)
    (pid,) = worker_pids(pool)
    spawn, tries = multiprocessing.util.spawnv_passfds, itertools.count()

    def spawn_in_vain(*given: Any) -> int:
        next(tries)
        if how == "unstarted":
            raise BlockingIOError(errno.EAGAIN, "try again later")
        started: int = spawn(*given)
        os.kill(started, signal.SIGKILL)
        return started

    monkeypatch.setattr(multiprocessing.util, "spawnv_passfds", spawn_in_vain)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(PoolError, match=f"none has come in their place, in 2 tries: {cause}.*; mend that"):
        values(pool.imap_unordered(square, range(9)))
    # By the nanny of the worker that was lost, and by two more, which the fleet started.
    assert next(tries) == (TRIES if how == "killed" else 1) + 2
    pool.close()


def test_a_pool_goes_on_once_workers_can_be_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = local(Bounds(1, 1), retries=3, task_timeout_s=None)
    (pid,) = worker_pids(pool)
    spawn, refused = multiprocessing.util.spawnv_passfds, list[Any]()

    def spawn_later(*given: Any) -> int:
        if len(refused) < 2:
            refused.append(given)
            raise BlockingIOError(errno.EAGAIN, "try again later")
        return spawn(*given)

    monkeypatch.setattr(multiprocessing.util, "spawnv_passfds", spawn_later)
    os.kill(pid, signal.SIGKILL)
    assert values(pool.imap_unordered(square, range(9))) == [x * x for x in range(9)]
    assert len(refused) == 2
    pool.close()


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


def test_a_result_is_whole_though_it_is_the_last_of_its_worker() -> None:
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        pool = connect(cluster.scheduler_address, retries=0, task_timeout_s=None)
        try:
            # More than the system takes from a process at once, and would send after its end.
            ends = pool.imap_unordered(bytes, [2**26] * 2, renew_after=1)
            assert [(done.error, done.attempts, len(done.value)) for done in ends] == [(None, 1, 2**26)] * 2
        finally:
            pool.close()


def test_several_threads_share_a_pool(two: DaskPool) -> None:
    sums: dict[int, list[Any]] = {}

    def use(number: int) -> None:
        sums[number] = values(two.imap_unordered(square, range(number, number + 200)))

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sums == {number: [x * x for x in range(number, number + 200)] for number in range(4)}


def test_a_worker_that_knows_nothing_of_us_is_told_though_another_does_not_answer() -> None:
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        stopped, other = cluster.workers.values()
        os.kill(stopped.pid, signal.SIGSTOP)
        try:
            with Client(cluster, set_as_default=False) as client:
                client.sync(lambda: asyncio.wait_for(install(client, other.worker_address), 20))
        finally:
            os.kill(stopped.pid, signal.SIGCONT)


def test_two_pools_share_a_scheduler() -> None:
    with LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=None) as cluster:
        pools = [connect(cluster.scheduler_address, retries=3, task_timeout_s=None) for _ in range(2)]
        streams = [pool.imap_unordered(process_id, range(50)) for pool in pools]
        assert [len(list(stream)) for stream in streams] == [50, 50]
        pools[0].close()
        assert len(set(values(pools[1].imap_unordered(process_id, range(5))))) == 1
        pools[1].close()


def test_closing_ends_tasks_that_run(two: DaskPool) -> None:
    wait_until(lambda: two.size == 2)  # its workers, which may be on their way, are not meant
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    pool = local(Bounds(2, 2), retries=3, task_timeout_s=None)
    ends = pool.imap_unordered(nap, [0.0] + [600.0] * 4)
    next(ends)
    began = time.monotonic()
    pool.close()
    assert time.monotonic() - began < 15
    with pytest.raises(PoolError, match="closed"):
        list(ends)
    left = [child for child in psutil.Process().children(recursive=True) if child.pid not in before]
    wait_until(lambda: not any(child.is_running() and "spawn_main" in str(child.cmdline()) for child in left))


ORPHANS = """
import os, sys, time
sys.path.insert(0, {tests!r})
from pool_tasks import square
from paddock.compute.dask.autoscale import Bounds
from paddock.compute.dask.cluster import local
if __name__ == "__main__":
    pool = local(Bounds(1, 1), 3, None)
    assert [done.value for done in pool.imap_unordered(square, [2])] == [4]
    if os.fork() == 0:
        time.sleep(600)
        os._exit(0)
    print("there", flush=True)
    time.sleep(600)
"""


def test_workers_end_with_their_driver_though_a_fork_of_it_lives_on(tmp_path: Path) -> None:
    script = tmp_path / "orphans.py"
    script.write_text(ORPHANS.format(tests=str(Path(__file__).parent)))
    driver = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert driver.stdout is not None and driver.stdout.readline() == "there\n"
        workers = [one for one in psutil.Process(driver.pid).children() if "spawn_main" in " ".join(one.cmdline())]
        assert workers
        driver.kill()
        wait_until(lambda: all(not one.is_running() or one.status() == "zombie" for one in workers), 20)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
