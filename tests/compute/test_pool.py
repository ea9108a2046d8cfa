"""What the pool promises beyond the contract of test_compute.py: broadcasts, objects, needs, sizes."""

import functools
import gc
import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import wait_until
from distributed import LocalCluster
from distributed.comm.tcp import TCP
from pool_tasks import (
    Counter,
    Telltale,
    add_shared,
    fail_at_first,
    leave,
    look,
    look_and_die_once,
    most_at_once,
    nap,
    pack_at_most,
    reverse,
    square,
)
from pools import two_fixture, values  # noqa: F401

from paddock.algos.pool import messages
from paddock.algos.pool.protocol import Done, End, Needs, PoolError, RemoteError, WorkerLost
from paddock.algos.pool.serial import SerialPool
from paddock.compute.dask import autoscale
from paddock.compute.dask.autoscale import Bounds
from paddock.compute.dask.cluster import connect, local
from paddock.compute.dask.distribution import CHUNK_S, chunk_size
from paddock.compute.dask.pool import DaskPool


@pytest.fixture(params=["serial", "local"])
def pool(request: pytest.FixtureRequest, two: DaskPool) -> Any:
    return SerialPool() if request.param == "serial" else two


# Chunks


def test_chunks_shrink_from_half_a_share_to_single_tasks() -> None:
    # 5 workers, 2,500 tasks of 1 ms: half a share is 250, which is also CHUNK_S of work.
    assert chunk_size(2500, 5, 1, 0.001) == chunk_size(9999, 5, 1, 0.001) == 250 == CHUNK_S / 0.001
    assert chunk_size(500, 5, 1, 0.001) == 50
    assert [chunk_size(n, 5, 1, 0.01) for n in (21, 11, 10, 3, 1)] == [3, 2, 1, 1, 1]
    assert chunk_size(3, 5, 1, 0.001) == 8  # smaller ones are not worth the message


def test_a_short_task_does_not_wait_behind_a_long_one(two: DaskPool) -> None:
    # The worker that has the long task gives back what waits behind it as soon as the other one is idle.
    began = time.monotonic()
    ends = {}
    for done in two.imap_unordered(nap, [0.001] * 60 + [1.5] + [0.001] * 200):
        ends[done.index] = time.monotonic() - began
    assert max(at for index, at in ends.items() if index != 60) < ends[60]


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


def test_a_function_and_a_broadcast_may_carry_broadcasts(pool: Any) -> None:
    five = pool.broadcast(5)
    assert values(pool.imap_unordered(functools.partial(add_shared, five), range(3))) == [5, 6, 7]
    both = pool.broadcast([five, five])
    assert values(pool.imap_unordered(len_of, [both])) == [2]


def test_a_value_that_cannot_be_pickled_is_an_error_where_it_is_broadcast(two: DaskPool) -> None:
    with pytest.raises(TypeError, match="pickle"):
        two.broadcast(threading.Lock())


def test_a_broadcast_reaches_each_worker_once(two: DaskPool, tmp_path: Path) -> None:
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
    monkeypatch.setattr(messages, "CHUNK", messages.CHUNK)
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
        with pytest.raises(PoolError, match=r"no worker meets .*gpu=2.*--resources GPU=1"):
            next(pool.imap_unordered(square, [1], needs=Needs(gpu=2)))
    finally:
        pool.close()
        cluster.close()


# Sizes


@pytest.mark.parametrize(
    ("size", "asked", "tasks", "pressed", "wanted"),
    [
        (2, 0, 0, 0.0, 2),  # nothing to do: as it is
        (2, 0, 100, 0.2, 2),  # a moment's work is not worth a worker
        (2, 0, 100, 0.6, 4),  # twice as many at a time
        (6, 0, 100, 0.6, 8),  # up to the bound
        (2, 0, 1, 0.6, 3),  # one task cannot use more than one more
        (2, 5, 0, 0.0, 5),  # the algorithm asked
        (2, 50, 0, 0.0, 8),
    ],
)
def test_the_wanted_size(size: int, asked: int, tasks: int, pressed: float, wanted: int) -> None:
    assert Bounds(1, 8).wanted(size, asked, 1, tasks, pressed) == wanted


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
