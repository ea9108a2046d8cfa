"""What the pool promises beyond the contract of test_compute.py: broadcasts, objects, needs, sizes, faults."""

import asyncio
import contextlib
import functools
import gc
import itertools
import os
import queue
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import wait_until
from distributed import Client, LocalCluster
from distributed.comm.tcp import TCP
from pool_tasks import (
    Counter,
    Leaves,
    Telltale,
    add_shared,
    complain_and_die,
    crash,
    fail_at_first,
    hold,
    leave,
    look,
    look_and_die_once,
    most_at_once,
    nap,
    pack_at_most,
    process_id,
    reverse,
    square,
    total,
)

from algos.pool import messages
from algos.pool.protocol import Done, End, Needs, PoolError, RemoteError, TaskTimeout, WorkerLost
from algos.pool.serial import SerialPool
from paddock.compute.dask import autoscale, dispatcher
from paddock.compute.dask.autoscale import Bounds
from paddock.compute.dask.cluster import connect, local
from paddock.compute.dask.distribution import CHUNK_S, chunk_size
from paddock.compute.dask.pool import DaskPool
from paddock.compute.preflight import install


@pytest.fixture(scope="module")
def two() -> Iterator[DaskPool]:
    pool = local(Bounds(2, 2), retries=3, task_timeout_s=None)
    yield pool
    pool.close()


@pytest.fixture(params=["serial", "local"])
def pool(request: pytest.FixtureRequest, two: DaskPool) -> Any:
    return SerialPool() if request.param == "serial" else two


def values(ends: Any) -> list[Any]:
    return [done.value for done in sorted(ends, key=lambda done: done.index)]


def worker_pids(pool: DaskPool) -> list[int]:
    return [worker.answer["pid"] for worker in pool._dispatcher.workers.values()]


# Chunks


def test_chunks_shrink_from_half_a_share_to_single_tasks() -> None:
    # 5 workers, 2,500 tasks of 1 ms: half a share is 250, which is also CHUNK_S of work.
    assert chunk_size(2500, 5, 1, 0.001) == chunk_size(9999, 5, 1, 0.001) == 250 == CHUNK_S / 0.001
    assert chunk_size(500, 5, 1, 0.001) == 50
    assert [chunk_size(n, 5, 1, 0.01) for n in (21, 11, 10, 3, 1)] == [3, 2, 1, 1, 1]
    assert chunk_size(3, 5, 1, 0.001) == 8  # smaller ones are not worth the message


def test_long_tasks_and_unknown_ones_travel_one_by_one() -> None:
    assert chunk_size(1000, 5, 1, 1.0) == 1
    assert chunk_size(1000, 5, 1, None) == 1
    assert chunk_size(1000, 20, 4, None) == 4  # one for each of the worker's threads


def test_a_short_task_does_not_wait_behind_a_long_one(two: DaskPool) -> None:
    # The worker that has the long task gives back what waits behind it as soon as the other one is idle.
    values(two.imap_unordered(nap, [0.001] * 400))  # so that the pool takes these tasks for short ones
    began = time.monotonic()
    ends = {}
    for done in two.imap_unordered(nap, [0.001] * 20 + [1.5] + [0.001] * 200):
        ends[done.index] = time.monotonic() - began
    assert max(at for index, at in ends.items() if index != 20) < ends[20]


# Batches that are put in one by one


def test_a_batch_delivers_each_end_once(pool: Any) -> None:
    ends: list[Done] = []

    def deliver(some: Sequence[End]) -> None:
        ends.extend(end() for end in some)

    batch = pool.open_batch(square, deliver)
    assert [batch.put(x) for x in range(50)] == list(range(50))
    wait_until(lambda: len(ends) == 50)
    assert values(ends) == [x * x for x in range(50)]
    batch.cancel()
    batch.cancel()
    with pytest.raises(PoolError, match="cancelled"):
        batch.put(1)


def test_errors_are_retried_only_when_asked(pool: Any, tmp_path: Path) -> None:
    tasks = [(index, str(tmp_path)) for index in range(4)]
    assert all(isinstance(done.error, RuntimeError) for done in pool.imap_unordered(fail_at_first, tasks))
    for marker in tmp_path.iterdir():
        marker.unlink()
    ends = list(pool.imap_unordered(fail_at_first, tasks, retry_errors=1))
    assert values(ends) == [0, 1, 2, 3] and {done.attempts for done in ends} == {2}


# Broadcasts


def test_a_broadcast_is_read_by_every_task(pool: Any) -> None:
    numbers = pool.broadcast([1, 2, 3])
    assert values(pool.imap_unordered(total, [(numbers, factor) for factor in range(20)])) == [
        6 * factor for factor in range(20)
    ]


def test_a_function_and_a_broadcast_may_carry_broadcasts(pool: Any) -> None:
    five = pool.broadcast(5)
    assert values(pool.imap_unordered(functools.partial(add_shared, five), range(3))) == [5, 6, 7]
    both = pool.broadcast([five, five])
    assert values(pool.imap_unordered(len_of, [both])) == [2]


def test_a_value_that_cannot_be_pickled_is_an_error_where_it_is_broadcast(two: DaskPool) -> None:
    with pytest.raises(TypeError, match="pickle"):
        two.broadcast(threading.Lock())


def test_a_broadcast_is_pickled_once_and_reaches_each_worker_once_lost_ones_included(
    two: DaskPool, tmp_path: Path
) -> None:
    shared = two.broadcast(Telltale(str(tmp_path)))
    assert values(two.imap_unordered(look_and_die_once, [(shared, x) for x in range(40)])) == list(range(40))
    assert values(two.imap_unordered(look, [(shared, x) for x in range(40)])) == list(range(40))
    assert len(list(tmp_path.glob("pickled-*"))) == 1
    readers = [path.name.split("-")[1] for path in tmp_path.glob("unpickled-*")]
    assert len(readers) == len(set(readers)) >= 2


def test_a_broadcast_is_forgotten_when_its_handle_is_gone(two: DaskPool) -> None:
    shared = two.broadcast(b"x" * 1000)
    id = shared.id
    values(two.imap_unordered(len_of, [shared] * 10))
    workers = two._dispatcher.workers.values()
    assert any(id in worker._values for worker in workers)
    del shared
    gc.collect()
    values(two.imap_unordered(square, range(4)))
    wait_until(lambda: not any(id in worker._values for worker in workers))


def len_of(shared: Any) -> int:
    return len(shared.value)


def test_a_message_may_be_larger_than_what_dask_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TCP, "write", TCP.write)
    monkeypatch.setattr(messages, "PART", messages.PART)
    pool = local(Bounds(1, 1), retries=1, task_timeout_s=None)
    try:
        assert [done.error for done in pool.imap_unordered(pack_at_most, [1000])] == [None]
        pack_at_most(1000)
        data = [bytes(range(256)) * 40, b"short"]
        assert values(pool.imap_unordered(reverse, data)) == [reverse(one) for one in data]
        assert values(pool.imap_unordered(len_of, [pool.broadcast(data[0])])) == [len(data[0])]
    finally:
        pool.close()


# Objects


def test_an_object_keeps_its_state_and_its_place(pool: Any) -> None:
    counter = pool.stateful(Counter)
    sums = [counter.call("add", amount) for amount in (1, 2, 3)]
    assert [value() for value in sums] == [1, 3, 6]
    assert counter.call("where")() == counter.call("where")()
    with pytest.raises(KeyError, match="of the object"):
        counter.call("fail")()
    assert counter.call("add", 0)() == 6
    counter.close()
    counter.close()
    with pytest.raises(PoolError, match="closed"):
        counter.call("add", 1)


def test_what_leaves_its_process_is_a_task_s_own_error_and_ends_nobody(pool: Any) -> None:
    ends = {done.index: done for done in pool.imap_unordered(leave, [0, None])}
    assert isinstance(ends[0].error, SystemExit) and ends[1].value is None
    counter = pool.stateful(Counter)
    with pytest.raises(RemoteError, match="SystemExit: 3"):
        counter.call("leave")()
    assert counter.call("add", 1)() == 1


def test_a_value_that_leaves_where_it_is_loaded_is_a_task_s_own_error(two: DaskPool) -> None:
    [done] = two.imap_unordered(Leaves, [None])
    assert isinstance(done.error, SystemExit)


def test_an_object_of_this_process_is_closed_by_its_own_close_as_one_on_a_worker() -> None:
    closed: list[str] = []

    class Closes:
        def close(self) -> None:
            closed.append("once")
            raise OSError("of the object")

    actor = SerialPool().stateful(Closes)
    actor.call("__len__")
    actor.close()
    actor.close()
    SerialPool().stateful(Closes).close()  # was never made
    assert closed == ["once"]


def test_objects_spread_over_the_workers(two: DaskPool) -> None:
    wait_until(lambda: two.size == 2)
    counters = [two.stateful(Counter) for _ in range(4)]
    places = [counter.call("where")() for counter in counters]
    assert sorted(places.count(pid) for pid in set(places)) == [2, 2]
    for counter in counters:
        counter.close()


def test_a_lost_object_is_made_again_elsewhere(two: DaskPool) -> None:
    counter = two.stateful(Counter)
    assert counter.call("add", 1)() == 1
    assert counter.call("add", 1)() == 2
    first = counter.call("where")()
    os.kill(first, signal.SIGKILL)
    assert counter.call("add", 1)() == 1
    assert counter.call("where")() != first
    counter.close()


def test_a_call_that_kills_its_workers_is_given_up(two: DaskPool) -> None:
    counter = two.stateful(Counter)
    with pytest.raises(WorkerLost, match="lost its worker 4 times"):
        counter.call("die")()
    assert counter.call("add", 1)() == 1
    counter.close()


# Needs


def test_tasks_run_side_by_side_as_their_needs_allow(tmp_path: Path) -> None:
    cluster = LocalCluster(n_workers=1, threads_per_worker=4, resources={"GPU": 1}, dashboard_address=None)
    pool = connect(cluster.scheduler_address, retries=3, task_timeout_s=None)
    try:
        assert (pool.size, pool.threads) == (1, 4)
        tasks = [(index, str(tmp_path)) for index in range(6)]
        assert max(values(pool.imap_unordered(most_at_once, tasks))) in (3, 4)
        assert max(values(pool.imap_unordered(most_at_once, tasks, needs=Needs(cpu=2)))) == 2
        assert max(values(pool.imap_unordered(most_at_once, tasks, needs=Needs(gpu=1)))) == 1
        with pytest.raises(PoolError, match=r"no worker can hold .*gpu=2.*--resources GPU=1"):
            next(pool.imap_unordered(square, [1], needs=Needs(gpu=2)))
    finally:
        pool.close()
        cluster.close()


# Sizes


@pytest.mark.parametrize(
    ("size", "asked", "tasks", "work_s", "pressed", "wanted"),
    [
        (2, 0, 0, 0.0, 0.0, 2),  # nothing to do: as it is
        (2, 0, 100, 1.0, 0.2, 2),  # a second of work is not worth a worker
        (2, 0, 100, 50.0, 0.2, 4),  # twice as many at a time
        (6, 0, 100, 50.0, 0.2, 8),  # up to the bound
        (2, 0, 1, 50.0, 0.2, 3),  # one task cannot use more than one more
        (2, 5, 0, 0.0, 0.0, 5),  # the algorithm asked
        (2, 50, 0, 0.0, 0.0, 8),
        (2, 0, 4, 0.8, 0.6, 4),  # short tasks, again and again
    ],
)
def test_the_wanted_size(size: int, asked: int, tasks: int, work_s: float, pressed: float, wanted: int) -> None:
    assert Bounds(1, 8).wanted(size, asked, 1, tasks, work_s, pressed) == wanted


def test_a_pool_grows_with_the_work_and_shrinks_without(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(autoscale, "IDLE_S", 6.0)  # longer than a worker's signs of life are apart
    with caplog.at_level("INFO", logger="paddock"):
        pool = local(Bounds(1, 3), retries=3, task_timeout_s=None)
        try:
            assert pool.size == 1
            pids = set(values(pool.imap_unordered(nap, [0.25] * 60)))
            assert len(pids) >= 2
            wait_until(lambda: pool.size == 1)
            wait_until(lambda: "workers: 1, were" in caplog.text)
            assert "were 1" in caplog.text
            # What is left still works, and grows again when it is asked.
            pool.ask(3)
            wait_until(lambda: pool.size == 3)
            assert values(pool.imap_unordered(square, range(10))) == [x * x for x in range(10)]
        finally:
            pool.close()


# Faults


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
        for worker in two._dispatcher.workers.values():
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
    process.suspend()
    try:
        assert cluster is not None
        if not known:
            cluster.sync(cluster.scheduler.remove_worker, worker.address, stimulus_id="test")
        two._dispatcher.call(worker.abort)
        wait_until(lambda: worker not in list(two._dispatcher.workers.values()))
        worker.heard -= 3600
        wait_until(lambda: not process.is_running(), 15)
    finally:
        with contextlib.suppress(psutil.Error):
            process.kill()
    wait_until(lambda: two.size == 2)


def test_a_silent_time_limit_ends_the_task_all_the_same(tmp_path: Path) -> None:
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
