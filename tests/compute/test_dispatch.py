"""The driver's half of the pool by itself: nothing is lost between threads, and whatever breaks, open tasks end."""

import asyncio
import errno
import os
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import distributed.comm
import pytest
from distributed.comm import CommClosedError
from pool_tasks import Counter, square

from algos.pool.broadcast import Broadcast
from algos.pool.protocol import ONE_CPU, Done, End, PoolError, WorkerLost
from algos.pool.script import dump
from paddock.compute.dask import connection, exit_reports, membership, worker_stderr
from paddock.compute.dask import dispatcher as dispatcher_module
from paddock.compute.dask.actors import ActorHandle
from paddock.compute.dask.autoscale import IDLE_S, Bounds, WorkerFleet
from paddock.compute.dask.connection import WorkerConnection
from paddock.compute.dask.dispatcher import SILENCE_S, Dispatcher
from paddock.compute.dask.membership import Membership
from paddock.compute.dask.tasks import drain
from paddock.compute.dask.worker_stderr import LONGEST_LINE, Echo

SETTINGS: dict[str, Any] = {"needs": ONE_CPU, "retry_errors": 0, "renew_after": None}


class FakeWorker(WorkerConnection):
    """A worker that says what it is told to."""

    def __init__(self, address: str, threads: int = 1) -> None:
        capacity = {"cpu": threads, "memory_gb": 1.0, "gpu": 0}
        super().__init__(address, SimpleNamespace(abort=lambda: None), {"capacity": capacity, "leaving": False})
        self.end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def talk(self, heed: Callable[[WorkerConnection, Sequence[tuple[Any, ...]]], None]) -> None:
        self.heed = heed
        await self.end

    @property
    def runs(self) -> list[int]:
        """The numbers of the tasks that it was sent."""
        return [number for operation, *rest in self._out if operation == "run" for number, _ in rest[1]]

    def answer_all(self) -> None:
        """End what it has."""
        ends = [(number, 0.001, True, dump("done")) for number in self.items]
        self.heed(self, [("ends", ends)])


class Ends:
    """Collects what a batch delivers."""

    def __init__(self) -> None:
        self.done: list[Done] = []

    def __call__(self, ends: Sequence[End]) -> None:
        self.done.extend(end() for end in ends)


async def _turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# Two threads


def test_no_broadcast_is_missed_that_goes_at_any_moment_of_telling_the_others() -> None:
    loop = asyncio.new_event_loop()
    dispatcher = Dispatcher(loop, retries=0, timeout_s=None)
    gone: list[str] = []
    told: list[str] = []
    dispatcher.workers["a"] = SimpleNamespace(forget=told.extend)  # type: ignore[assignment]

    def drop_one(frame: Any, event: str, _: Any) -> Any:
        """Between any two instructions of the dispatcher another thread might let a broadcast go."""
        if not frame.f_code.co_filename.endswith("dispatcher.py"):
            return None
        frame.f_trace_opcodes = True
        gone.append(f"{len(gone)}")
        dispatcher._forgotten.append(gone[-1])
        return drop_one

    before = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # Python 3.12 looks only here whether any frame asks for it
    sys.settrace(drop_one)
    dispatcher._feed()
    sys.settrace(before)
    dispatcher._feed()
    loop.close()
    assert sorted(told) == sorted(gone) and len(gone) > 10


def test_what_the_loop_takes_from_a_batch_that_is_cancelled_no_other_thread_takes_out() -> None:
    class Cancels:
        """Has its batch cancelled while it is pickled, as another thread may."""

        def __reduce__(self) -> Any:
            batch.cancel()
            return int, ()

    loop = asyncio.new_event_loop()
    dispatcher, ends = Dispatcher(loop, retries=0, timeout_s=None), Ends()
    batch = dispatcher.open(square, ends, **SETTINGS)
    with pytest.raises(PoolError, match="cancelled"):
        batch.put(Cancels())
    assert len(batch.waiting) == 1
    loop.run_until_complete(_turns())
    loop.close()
    assert not batch.waiting and not ends.done


def test_a_task_taken_back_while_the_pool_fails_is_no_fault() -> None:
    class Shorter(deque[int]):
        """What another thread takes one out of once its length is known."""

        def __len__(self) -> int:
            return super().__len__() + 1

    assert drain(Shorter([1, 2])) == [1, 2]


def test_a_task_put_while_the_pool_fails_ends_too() -> None:
    class Interrupted(deque[Any]):
        """What another thread appends to while it is read."""

        late: Any = None

        def __iter__(self) -> Iterator[Any]:
            yield from list(super().__iter__())
            self._interrupt()

        def popleft(self) -> Any:
            item = super().popleft()
            self._interrupt()
            return item

        def _interrupt(self) -> None:
            if self.late is not None:
                late, self.late = self.late, None
                self.append(late)
                dispatcher.wake()

    async def fail() -> None:
        batch.put(1)
        await _turns()
        batch.waiting = waiting = Interrupted(batch.waiting)
        waiting.late = batch._item(2)
        dispatcher.fail(PoolError("gone"))
        await _turns()

    loop = asyncio.new_event_loop()
    dispatcher, ends = Dispatcher(loop, retries=0, timeout_s=None), Ends()
    batch = dispatcher.open(square, ends, **SETTINGS)
    loop.run_until_complete(fail())
    loop.close()
    assert [(done.index, str(done.error)) for done in ends.done] == [(0, "gone"), (1, "gone")]


def test_a_broadcast_that_cannot_be_pickled_is_the_error_of_who_puts_it() -> None:
    async def main() -> list[Done]:
        dispatcher, ends = Dispatcher(asyncio.get_running_loop(), retries=0, timeout_s=None), Ends()
        batch = dispatcher.open(square, ends, **SETTINGS)
        worker = FakeWorker("tcp://a:1")
        serving = asyncio.ensure_future(dispatcher.serve(worker))
        with pytest.raises(TypeError, match="pickle"):
            batch.put(Broadcast(threading.Lock()))
        batch.put(1)
        await _turns()
        worker.answer_all()
        worker.end.set_result(None)
        await serving
        return ends.done

    assert [done.error for done in asyncio.run(main())] == [None]


def test_nothing_is_taken_once_the_pool_has_failed_and_its_loop_has_gone() -> None:
    loop = asyncio.new_event_loop()
    dispatcher = Dispatcher(loop, retries=0, timeout_s=None)
    ends = Ends()
    batch = dispatcher.open(square, ends, **SETTINGS)
    dispatcher.fail(PoolError("gone"))  # before the loop has seen the batch
    loop.close()
    with pytest.raises(PoolError, match="gone"):
        batch.put(1)


# Faults


def test_a_task_ends_though_nobody_can_say_how_its_worker_did() -> None:
    async def lose() -> list[Done]:
        dispatcher = Dispatcher(asyncio.get_running_loop(), retries=0, timeout_s=None)

        async def read_exit(worker: WorkerConnection) -> str:
            raise ValueError("an answer that nobody expects")

        dispatcher.read_exit = read_exit
        ends = Ends()
        dispatcher.open(square, ends, **SETTINGS).put(1)
        worker = FakeWorker("tcp://a:1")
        serving = asyncio.ensure_future(dispatcher.serve(worker))
        await _turns()
        assert worker.runs
        worker.end.set_result(None)
        await serving
        await _turns()
        return ends.done

    (done,) = asyncio.run(lose())
    assert isinstance(done.error, WorkerLost) and "its process or machine ended" in str(done.error)


def test_a_task_ends_though_the_pool_closes_before_it_is_known_how_its_worker_did() -> None:
    async def lose() -> list[Done]:
        dispatcher = Dispatcher(asyncio.get_running_loop(), retries=0, timeout_s=None)

        async def read_exit(worker: WorkerConnection) -> str:
            await asyncio.sleep(600)
            return ""

        dispatcher.read_exit = read_exit
        ends = Ends()
        dispatcher.open(square, ends, **SETTINGS).put(1)
        worker = FakeWorker("tcp://a:1")
        serving = asyncio.ensure_future(dispatcher.serve(worker))
        await _turns()
        worker.end.set_result(None)
        await serving
        await _turns()
        dispatcher.fail(PoolError("the pool is closed"))
        return ends.done

    (done,) = asyncio.run(lose())
    assert isinstance(done.error, PoolError)


def test_the_tasks_of_a_worker_that_talks_nonsense_run_elsewhere() -> None:
    async def listen() -> list[Done]:
        dispatcher = Dispatcher(asyncio.get_running_loop(), retries=3, timeout_s=None)
        ends = Ends()
        dispatcher.open(square, ends, **SETTINGS).put(1)
        broken = FakeWorker("tcp://a:1")
        serving = asyncio.ensure_future(dispatcher.serve(broken))
        await _turns()
        assert broken.runs
        broken.end.set_exception(TypeError("not a message"))
        with pytest.raises(TypeError):
            await serving
        assert not dispatcher.workers
        good = FakeWorker("tcp://b:1")
        serving = asyncio.ensure_future(dispatcher.serve(good))
        await _turns()
        good.answer_all()
        good.end.set_result(None)
        await serving
        return ends.done

    (done,) = asyncio.run(listen())
    assert (done.value, done.attempts) == ("done", 2)


def test_a_silent_workers_time_is_not_up_for_a_task_that_runs_elsewhere() -> None:
    async def fall_silent() -> list[Done]:
        dispatcher = Dispatcher(asyncio.get_running_loop(), retries=0, timeout_s=1.0)
        ends = Ends()
        dispatcher.open(square, ends, **SETTINGS).put(1)
        silent, other = FakeWorker("tcp://a:1"), FakeWorker("tcp://b:1")
        serving = [asyncio.ensure_future(dispatcher.serve(silent))]
        await _turns()
        assert silent.runs
        serving.append(asyncio.ensure_future(dispatcher.serve(other)))
        await _turns()
        silent.heard -= SILENCE_S + 0.1
        dispatcher.watch()  # gives the task to the other
        await _turns()
        silent.heard -= 3600
        dispatcher.watch()
        assert other.runs and not ends.done
        other.answer_all()
        for worker in (silent, other):
            worker.end.set_result(None)
        await asyncio.gather(*serving)
        return ends.done

    (done,) = asyncio.run(fall_silent())
    assert done.value == "done" and done.error is None


def test_a_task_of_a_silent_worker_is_given_on_where_the_worker_that_took_it_over_is_lost() -> None:
    async def lose() -> list[Done]:
        dispatcher = Dispatcher(asyncio.get_running_loop(), retries=3, timeout_s=None)
        ends = Ends()
        dispatcher.open(square, ends, **SETTINGS).put(1)
        silent, lost, third = (FakeWorker(f"tcp://{name}:1") for name in "abc")
        serving = [asyncio.ensure_future(dispatcher.serve(silent))]
        await _turns()
        serving.append(asyncio.ensure_future(dispatcher.serve(lost)))
        await _turns()
        silent.heard -= SILENCE_S + 0.1
        dispatcher.watch()
        assert silent.runs and lost.runs
        lost.end.set_result(None)
        await _turns()
        serving.append(asyncio.ensure_future(dispatcher.serve(third)))
        await _turns()
        dispatcher.watch()
        third.answer_all()
        for worker in (silent, third):
            worker.end.set_result(None)
        await asyncio.gather(*serving)
        return ends.done

    (done,) = asyncio.run(lose())
    assert (done.value, done.attempts) == ("done", 2)


def test_a_task_waits_once_and_has_lost_one_worker_however_often_that_fell_silent() -> None:
    async def lose() -> tuple[Done, list[int]]:
        dispatcher = Dispatcher(asyncio.get_running_loop(), retries=3, timeout_s=None)
        ends, waiting = Ends(), []
        batch = dispatcher.open(square, ends, **SETTINGS)
        batch.mean_s = 0.001  # so that more is given to a worker that has some
        batch.put(1)
        worker, other = FakeWorker("tcp://a:1"), FakeWorker("tcp://b:1")
        serving = [asyncio.ensure_future(dispatcher.serve(worker))]
        await _turns()
        for _ in range(3):
            worker.heard -= SILENCE_S + 0.1
            dispatcher.watch()
            waiting.append(len(batch.waiting))
            worker.heard += SILENCE_S + 0.1
            worker.heed(worker, [("alive",)])
            waiting.append(len(batch.waiting))
        assert len(worker.runs) == 1
        worker.heard -= SILENCE_S + 0.1
        dispatcher.watch()
        worker.end.set_result(None)
        await _turns()
        waiting.append(len(batch.waiting))
        serving.append(asyncio.ensure_future(dispatcher.serve(other)))
        await _turns()
        other.answer_all()
        other.end.set_result(None)
        await asyncio.gather(*serving)
        return ends.done[0], waiting

    done, waiting = asyncio.run(lose())
    assert (done.value, done.attempts) == ("done", 2)
    assert waiting == [1, 0, 1, 0, 1, 0, 1]


def test_a_task_that_is_to_run_alone_joins_no_others_behind_one_that_has_ended_meanwhile() -> None:
    async def feed() -> list[int]:
        dispatcher = Dispatcher(asyncio.get_running_loop(), retries=3, timeout_s=None)
        batch = dispatcher.open(square, Ends(), **SETTINGS)
        batch.mean_s = 0.001
        batch.put(0)
        worker = FakeWorker("tcp://a:1")
        serving = asyncio.ensure_future(dispatcher.serve(worker))
        await _turns()
        ended, alone = batch._item(1), batch._item(2)
        ended.over = alone.alone = True  # by a worker that had been silent; after the loss of another one
        batch.waiting.extend([ended, alone])
        dispatcher.wake()
        await _turns()
        beside = [item.index for item in worker.items.values()]
        worker.answer_all()
        assert [item.index for item in worker.items.values()] == [2]
        worker.end.set_result(None)
        await serving
        return beside

    assert asyncio.run(feed()) == [0]


@pytest.mark.parametrize(("threads", "calls"), [(1, False), (2, False), (1, True)])
def test_a_lost_task_does_not_wait_until_all_others_are_through(threads: int, calls: bool) -> None:
    """It runs alone, so a worker has to be without any other for it: none that an object's calls keep busy."""

    async def feed() -> tuple[list[Done], int]:
        dispatcher = Dispatcher(asyncio.get_running_loop(), retries=3, timeout_s=None)
        ends, others = Ends(), Ends()
        batches = [dispatcher.open(square, receiver, **SETTINGS) for receiver in (ends, others)]
        batches[1].mean_s = 0.001  # so that more is given to a worker that has some
        batches[0].put(0)
        lost, busy, worker = FakeWorker("tcp://a:1"), FakeWorker("tcp://b:1"), FakeWorker("tcp://c:1", threads)
        serving = []
        for one in (lost, busy, worker) if calls else (lost, worker):
            serving.append(asyncio.ensure_future(dispatcher.serve(one)))
            await _turns()
            if one is busy:
                ActorHandle(dispatcher, dispatcher.placement, Counter, ONE_CPU).call("add", 1)
                await _turns()
            one.leaving = one is not worker  # so that it gets none of the others
            dispatcher.workers.place(one)
        for number in range(40):
            batches[1].put(number)
        await _turns()
        lost.leaving = busy.leaving = False
        dispatcher.workers.place(busy)
        lost.end.set_result(None)
        while not ends.done and len(others.done) < 400:
            for number in range(3):
                batches[1].put(number)
            number = next(iter(worker.items))
            worker.heed(worker, [("ends", [(number, 0.001, True, dump("done"))])])
            await _turns()
        busy.end.set_result(None)
        worker.end.set_result(None)
        await asyncio.gather(*serving)
        return ends.done, len(others.done)

    done, others = asyncio.run(feed())
    assert [end.attempts for end in done] == [2] and others < 100


def test_a_receiver_that_raises_keeps_no_other_from_its_ends(caplog: pytest.LogCaptureFixture) -> None:
    async def deliver() -> list[Done]:
        dispatcher = Dispatcher(asyncio.get_running_loop(), retries=0, timeout_s=None)
        ends = Ends()

        def refuse(some: Sequence[End]) -> None:
            raise KeyError("of the receiver")

        for receiver in (refuse, ends):
            dispatcher.open(square, receiver, **SETTINGS).put(1)
        await _turns()
        dispatcher.fail(PoolError("gone"))
        return ends.done

    (done,) = asyncio.run(deliver())
    assert str(done.error) == "gone"
    assert "of the receiver" in caplog.text


def test_a_pool_that_failed_ends_everything_by_what_it_failed_of_first() -> None:
    async def fail_twice() -> list[Done]:
        dispatcher = Dispatcher(asyncio.get_running_loop(), retries=0, timeout_s=None)
        ends = Ends()
        batch = dispatcher.open(square, ends, **SETTINGS)
        batch.put(1)
        dispatcher.failure = PoolError("lost the scheduler")  # as if it failed while the task was on its way
        await _turns()
        dispatcher.fail(PoolError("a fault that came of it"))
        dispatcher.fail(PoolError("the pool is closed"))
        return ends.done

    (done,) = asyncio.run(fail_twice())
    assert str(done.error) == "lost the scheduler"


def test_a_fault_of_the_pool_itself_ends_what_is_open(caplog: pytest.LogCaptureFixture) -> None:
    async def stumble(beside: bool) -> list[Done]:
        dispatcher = Dispatcher(asyncio.get_running_loop(), retries=0, timeout_s=None)
        ends = Ends()
        dispatcher.open(square, ends, **SETTINGS).put(1)
        await _turns()

        def fault() -> None:
            raise AssertionError("a fault of ours")

        async def fault_beside() -> None:
            fault()

        if beside:
            dispatcher.spawn(fault_beside())
        else:
            dispatcher.call(fault)
        await _turns()
        return ends.done

    for beside in (False, True):
        (done,) = asyncio.run(stumble(beside))
        assert isinstance(done.error, PoolError) and "a fault of ours" in str(done.error)
        assert isinstance(done.error.__cause__, AssertionError)


@pytest.mark.parametrize("way", ["read", "write"])
def test_a_message_that_there_is_no_memory_for_ends_what_is_open_in_one_line(way: str) -> None:
    async def starve() -> list[Done]:
        dispatcher, ends = Dispatcher(asyncio.get_running_loop(), retries=3, timeout_s=None), Ends()
        client = cast(Any, None)
        membership = Membership(client, dispatcher, None, None, {}, lambda worker: None, "nowhere", lambda: None)
        aborted = asyncio.Event()

        async def read() -> None:
            if way == "read":
                raise MemoryError
            await aborted.wait()
            raise CommClosedError

        async def write(message: bytes) -> None:
            if way == "write":
                raise MemoryError

        async def welcome(address: str) -> WorkerConnection:
            comm = SimpleNamespace(read=read, write=write, abort=aborted.set)
            answer = {"capacity": {"cpu": 1, "memory_gb": 1.0, "gpu": 0}, "leaving": False}
            return WorkerConnection(address, comm, answer)

        membership._welcome = welcome  # type: ignore[method-assign]
        dispatcher.open(square, ends, **SETTINGS).put(1)
        await _turns()
        await membership._join("tcp://a:1")
        return ends.done

    (done,) = asyncio.run(starve())
    assert isinstance(done.error, PoolError)
    assert str(done.error) == "this process has no memory left for what tasks take and give; let it be less at once"


def test_a_watch_that_cannot_go_on_ends_what_is_open() -> None:
    async def watch() -> list[Done]:
        dispatcher = Dispatcher(asyncio.get_running_loop(), retries=0, timeout_s=None)
        ends = Ends()
        dispatcher.open(square, ends, **SETTINGS).put(1)

        async def ncores() -> dict[str, int]:
            return {}

        def look() -> None:
            raise RuntimeError("a scheduler of another version")

        client: Any = SimpleNamespace(scheduler=SimpleNamespace(ncores=ncores), status="running")
        membership = Membership(client, dispatcher, None, None, {}, lambda worker: None, "nowhere", look)
        with pytest.raises(PoolError, match="a scheduler of another version"):
            await membership.open(1, timeout_s=60)
        await membership.close()
        return ends.done

    (done,) = asyncio.run(watch())
    assert isinstance(done.error, PoolError)


@pytest.mark.parametrize("amid", ["an answer", "changing the number of workers"])
def test_a_suspended_process_has_lost_nobody(amid: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "TICK_S", 0.01)
    monkeypatch.setattr(membership, "ANSWER_S", 0.1)
    monkeypatch.setattr(membership, "STUCK_S", 0.5)
    monkeypatch.setattr(dispatcher_module, "SILENCE_S", 0.5)

    async def watch() -> None:
        worker: Any = FakeWorker("tcp://a")
        lost = FakeWorker("tcp://b")  # a moment ago, and may come again
        dispatcher = Dispatcher(asyncio.get_running_loop(), retries=0, timeout_s=None)
        asked = 0
        silences: list[bool] = []
        over = asyncio.Event()

        async def ncores() -> dict[str, int]:
            nonlocal asked
            asked += 1
            await be_suspended(amid == "an answer")
            return {}

        async def follow(*_: Any) -> None:
            await be_suspended(amid != "an answer")

        async def be_suspended(here: bool) -> None:
            if here and asked == 2:
                time.sleep(1.0)  # nothing of this process runs
                await asyncio.sleep(0.05)  # and then what it waits for comes

        def look() -> None:
            silences.append(worker.silent)
            if asked == 3:
                over.set()

        client: Any = SimpleNamespace(scheduler=SimpleNamespace(ncores=ncores), status="running")
        fleet: Any = SimpleNamespace(follow=follow, connections={"lost": lost})
        members = Membership(client, dispatcher, fleet, None, {}, lambda worker: None, "nowhere", look)
        dispatcher.workers[worker.address] = worker
        worker.items[0] = dispatcher.open(square, Ends(), **SETTINGS)._item(1)
        worker.heard = lost.heard = time.monotonic()
        await members.open(1, timeout_s=60)
        await over.wait()
        await members.close()
        assert dispatcher.failure is None
        assert not any(silences) and not lost.stuck

    asyncio.run(watch())


# Objects


def test_a_call_is_refused_or_ends_however_its_pool_went() -> None:
    loop = asyncio.new_event_loop()
    dispatcher = Dispatcher(loop, retries=0, timeout_s=None)
    actor = ActorHandle(dispatcher, dispatcher.placement, Counter, ONE_CPU)
    dispatcher.fail(PoolError("gone"))
    loop.close()
    with pytest.raises(PoolError, match="gone"):
        actor.call("add", 1)


def test_a_call_that_is_pickled_while_its_pool_goes_is_refused() -> None:
    loop = asyncio.new_event_loop()
    dispatcher = Dispatcher(loop, retries=0, timeout_s=None)
    actor = ActorHandle(dispatcher, dispatcher.placement, Counter, ONE_CPU)

    class Long:
        def __reduce__(self) -> Any:
            dispatcher.fail(PoolError("gone"))
            loop.close()
            return int, ()

    with pytest.raises(PoolError, match="gone"):
        actor.call("add", Long())


def test_a_call_that_an_object_is_closed_under_is_refused_and_goes_nowhere() -> None:
    class Closing:
        def __reduce__(self) -> Any:
            held[0].close()  # as another thread does while the call is pickled
            return int, ()

    async def main() -> None:
        dispatcher = Dispatcher(asyncio.get_running_loop(), retries=0, timeout_s=None)
        worker: Any = FakeWorker("tcp://a")
        served = asyncio.ensure_future(dispatcher.serve(worker))
        await _turns()
        actor = ActorHandle(dispatcher, dispatcher.placement, Counter, ONE_CPU)
        held.append(actor)
        value = actor.call("add", Closing())
        await _turns()
        assert str(_error(value)) == "the object was closed while a call of it was open"
        assert (worker.items, worker.objects) == ({}, 0)
        worker.end.set_result(None)
        await served

    held: list[ActorHandle] = []
    asyncio.run(main())


def test_a_task_that_kills_every_worker_ends_though_an_object_is_called_on_them_too() -> None:
    async def lose() -> list[int]:
        dispatcher = Dispatcher(asyncio.get_running_loop(), retries=1, timeout_s=None)
        ends, lost = Ends(), []
        dispatcher.open(square, ends, **SETTINGS).put(1)
        actor = ActorHandle(dispatcher, dispatcher.placement, Counter, ONE_CPU)
        for number in range(4):
            worker = FakeWorker(f"tcp://{number}:1")
            serving = asyncio.ensure_future(dispatcher.serve(worker))
            await _turns()
            if not worker.runs:  # the call of before comes first, and is not to blame
                worker.answer_all()
            actor.call("add", 1)
            await _turns()
            worker.end.set_result(None)
            await serving
            await _turns()
            lost += [number] if ends.done else []
        (done,) = ends.done
        assert isinstance(done.error, WorkerLost) and "lost its worker 2 times" in str(done.error)
        return lost

    assert asyncio.run(lose()) == [1, 2, 3]


async def _retire_three_times(was_there_s: float) -> list[Done]:
    """Let three workers retire in the midst of a task that they had for 100 s; a fourth ends it, if it is to."""
    dispatcher = Dispatcher(asyncio.get_running_loop(), retries=2, timeout_s=None)
    ends = Ends()
    dispatcher.open(square, ends, **SETTINGS).put(1)
    for number in range(4):
        worker = FakeWorker(f"tcp://{number}:1")
        serving = asyncio.ensure_future(dispatcher.serve(worker))
        await _turns()
        if number == 3:
            worker.answer_all()
        for item in worker.items.values():
            item.since = time.monotonic() - 100
            worker.joined = item.since - was_there_s
            worker.heed(worker, [("leaving",)])
        worker.end.set_result(None)
        await serving
        await _turns()
    return ends.done


def test_a_task_that_has_all_of_its_workers_time_and_more_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    (done,) = asyncio.run(_retire_three_times(was_there_s=1))
    assert isinstance(done.error, WorkerLost)
    assert str(done.error).endswith(
        "lost its worker 3 times, the last at tcp://2:1: it retired before that had ended; give workers more time "
        "(compute.walltime, or --lifetime of `dask worker`), or tasks less to do"
    )
    assert caplog.text.count("1 task of it run again") == 2


def test_a_task_that_came_late_to_workers_that_retire_is_not_lost(caplog: pytest.LogCaptureFixture) -> None:
    (done,) = asyncio.run(_retire_three_times(was_there_s=100))
    assert (done.value, done.attempts) == ("done", 1)
    assert caplog.text.count("a worker was lost, tcp://0:1: it retired before that had ended") == 1


def test_a_limit_of_open_files_is_no_fault_of_the_pool() -> None:
    async def main() -> PoolError | None:
        dispatcher = Dispatcher(asyncio.get_running_loop(), retries=0, timeout_s=None)

        async def start_another() -> None:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "errors")

        await asyncio.wait([dispatcher.spawn(start_another())])
        await _turns()
        return dispatcher.failure

    said = "the pool may not open another file (Too many open files); raise the limit: `ulimit -n`"
    assert str(asyncio.run(main())) == said


def test_objects_spread_over_workers_that_come_later() -> None:
    async def main() -> None:
        dispatcher = Dispatcher(asyncio.get_running_loop(), retries=0, timeout_s=None)
        workers: list[Any] = [FakeWorker(f"tcp://{name}") for name in "abc"]
        served = [asyncio.ensure_future(dispatcher.serve(workers[0]))]
        actors = [ActorHandle(dispatcher, dispatcher.placement, Counter, ONE_CPU) for _ in range(4)]
        await _turns()
        value = actors[0].call("add", 1)
        await _turns()
        assert [worker.objects for worker in workers] == [4, 0, 0]
        for worker in workers[1:]:
            served.append(asyncio.ensure_future(dispatcher.serve(worker)))
            await _turns()
        assert [worker.objects for worker in workers] == [2, 1, 1]
        assert actors[0].worker is workers[0]  # which would have to begin its call again
        for actor in actors:
            actor.close()
        await _turns()
        assert isinstance(_error(value), PoolError)
        assert [worker.objects for worker in workers] == [0, 0, 0]
        for worker in workers:
            worker.end.set_result(None)
        await asyncio.gather(*served)

    asyncio.run(main())


def test_objects_come_to_rest_on_workers_of_several_sizes() -> None:
    async def main() -> None:
        dispatcher = Dispatcher(asyncio.get_running_loop(), retries=0, timeout_s=None)
        workers: list[Any] = [FakeWorker("tcp://small", 1), FakeWorker("tcp://large", 4)]
        served = [asyncio.ensure_future(dispatcher.serve(workers[0]))]
        actors = [ActorHandle(dispatcher, dispatcher.placement, Counter, ONE_CPU) for _ in range(2)]
        await _turns()
        moves: list[Any] = []
        move = dispatcher.placement._move

        def count(actors: Any) -> None:
            moves.append(actors)
            assert len(moves) < 50, "objects move for ever"
            move(actors)

        dispatcher.placement._move = count  # type: ignore[method-assign]
        served.append(asyncio.ensure_future(dispatcher.serve(workers[1])))
        await _turns()
        assert [worker.objects for worker in workers] == [0, 2]
        for actor in actors:
            actor.close()
        for worker in workers:
            worker.end.set_result(None)
        await asyncio.gather(*served)

    asyncio.run(main())


def test_a_worker_is_not_idle_while_an_object_lives_there_and_waits_for_its_next_call() -> None:
    async def main() -> None:
        dispatcher = Dispatcher(asyncio.get_running_loop(), retries=0, timeout_s=None)
        workers: list[Any] = [FakeWorker(f"tcp://{name}") for name in ("a", "b")]
        for worker in workers:
            worker.answer["name"], worker.idle_since = worker.address, -IDLE_S
        served = [asyncio.ensure_future(dispatcher.serve(worker)) for worker in workers]
        actor = ActorHandle(dispatcher, dispatcher.placement, Counter, ONE_CPU)
        await _turns()
        cluster = SimpleNamespace(worker_spec={worker.address: {} for worker in workers})
        fleet, now = WorkerFleet(cluster, Bounds(1, 2), ended=_nobody, kill=_unreached), workers[0].heard
        assert fleet._idle(workers, now) == ["tcp://b"]
        workers[0].end.set_result(None)
        await _turns()
        assert [worker.objects for worker in workers] == [0, 1]
        assert fleet._idle(workers[1:], now) == []
        actor.close()
        await _turns()
        assert fleet._idle(workers[1:], now) == ["tcp://b"]
        workers[1].end.set_result(None)
        await asyncio.gather(*served)

    asyncio.run(main())


def test_a_worker_that_a_smaller_pool_lets_go_gets_no_task_on_its_way_out() -> None:
    """It would be ended in the midst of it, some seconds later."""

    async def main() -> tuple[list[int], list[int]]:
        dispatcher, ends = Dispatcher(asyncio.get_running_loop(), retries=0, timeout_s=None), Ends()
        batch = dispatcher.open(square, ends, **SETTINGS)
        workers: list[Any] = [FakeWorker(f"tcp://{name}") for name in ("a", "b")]
        for worker in workers:
            worker.answer["name"], worker.idle_since = worker.address, -IDLE_S
        served = [asyncio.ensure_future(dispatcher.serve(worker)) for worker in workers]
        await _turns()
        names: dict[str, dict[str, Any]] = {worker.address: {} for worker in workers}

        async def scale_down(leaving: Sequence[str]) -> None:
            assert list(leaving) == ["tcp://a"]
            batch.put(1)
            await _turns()

        cluster = SimpleNamespace(worker_spec=dict(names), workers=dict(names), scale_down=scale_down)
        fleet = WorkerFleet(cluster, Bounds(1, 2), ended=_nobody, kill=_unreached)
        fleet._target, fleet._again = 2, workers[0].heard + 600
        await fleet.follow(0, 0.0, workers)
        for worker in workers:
            worker.end.set_result(None)
        await asyncio.gather(*served)
        return workers[0].runs, workers[1].runs

    leaving, staying = asyncio.run(main())
    assert not leaving and len(staying) == 1


def test_a_stopped_process_is_not_waited_for_though_its_machine_takes_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "GREETING_S", 0.1)
    monkeypatch.setattr(exit_reports, "NANNY_S", 0.1)

    async def reach() -> None:
        with socket.create_server(("127.0.0.1", 0)) as stopped:
            worker = FakeWorker(f"tcp://127.0.0.1:{stopped.getsockname()[1]}")
            worker.answer["nanny"] = worker.address
            assert not await exit_reports.kill({}, worker)
            with pytest.raises(TimeoutError):
                await connection.greet(worker.address, {}, {})

    asyncio.run(asyncio.wait_for(reach(), 10))


@pytest.mark.parametrize(
    ("given_up", "reachable", "ended"),
    [
        ("ab", "", ["job"]),  # its machine is stuck
        ("ab", "b", []),  # one nanny has ended, the other starts its worker again
        ("a", "", []),  # the nanny of a worker that has retired before the others of its job
        ("", "", []),
    ],
)
def test_a_job_whose_workers_are_stuck_is_replaced_where_no_nanny_of_it_can_be_reached(
    given_up: str, reachable: str, ended: list[str]
) -> None:
    async def kill(worker: WorkerConnection) -> bool:
        return worker.answer["name"].removeprefix("job-") in reachable

    # A job that no worker has come of may wait in a queue for hours.
    spec: dict[str, dict[str, Any]] = {"job": {"group": ["-a", "-b"]}, "waiting": {"group": ["-a", "-b"]}}
    over: list[str] = []
    started: list[int] = []

    async def scale_down(names: Collection[str]) -> None:
        over.extend(names)
        for name in names:
            del spec[name], cluster.workers[name]

    async def follow() -> None:
        fleet = WorkerFleet(cluster, Bounds(2, 2), ended=_nobody, kill=kill)
        for name in "ab":
            worker = FakeWorker(f"tcp://{name}")
            worker.answer["name"] = f"job-{name}"
            fleet.note(worker)
            if name in given_up:
                worker.give_up()
        for _ in range(2):  # looks; at the second there is nobody who would be ended again
            await fleet.follow(0, 0.0, [])

    cluster = SimpleNamespace(worker_spec=spec, workers=dict(spec), scale_down=scale_down, scale=started.append)
    asyncio.run(follow())
    assert over == ended and started == [2] * len(ended)


def test_a_call_made_while_all_workers_are_silent_is_sent_once_one_speaks_again() -> None:
    async def fall_silent() -> Any:
        dispatcher = Dispatcher(asyncio.get_running_loop(), retries=0, timeout_s=None)
        worker = FakeWorker("tcp://a:1")
        serving = asyncio.ensure_future(dispatcher.serve(worker))
        actor = ActorHandle(dispatcher, dispatcher.placement, Counter, ONE_CPU)
        dispatcher.open(square, Ends(), **SETTINGS).put(1)
        await _turns()
        worker.heard -= SILENCE_S + 0.1
        dispatcher.watch()
        value = actor.call("add", 1)
        await _turns()
        worker.heed(worker, [("alive",)])
        worker.answer_all()
        await _turns()
        worker.end.set_result(None)
        await serving
        dispatcher.fail(PoolError("the call was never sent"))
        return value()

    assert asyncio.run(fall_silent()) == "done"


async def _nobody(_: Any) -> list[Any]:
    return []


async def _unreached(_: WorkerConnection) -> bool:
    return False


def _error(value: Callable[[], Any]) -> BaseException | None:
    try:
        value()
    except Exception as error:
        return error
    return None


# What workers write


def test_the_beginning_of_a_line_is_read_once_and_a_line_without_end_is_told_in_pieces(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    echo, errors = Echo(str(tmp_path)), tmp_path / "1"

    def write(text: str) -> list[str]:
        caplog.clear()
        with open(errors, "a") as file:
            file.write(text)
        echo()
        return [message.partition(": ")[2] for message in caplog.messages]

    assert write("one\nbeg") == ["one"]
    assert echo._read[errors] == 7  # it will not be read again
    assert write("un") == []
    assert write(", ended\nnext") == ["begun, ended"]
    assert write("\n\n") == ["next"]
    assert write("x" * LONGEST_LINE) == []
    assert write("yz") == ["x" * LONGEST_LINE + "yz"]
    assert write("end\n") == ["end"]


def test_of_workers_that_have_ended_no_file_stays_and_all_they_wrote_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a pool whose workers are renewed would look through ever more of them, about twice a second."""
    caplog.set_level("INFO")
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    gone, lives = tmp_path / str(ended.pid), tmp_path / str(os.getpid())
    for file in (gone, lives):
        file.write_text("the first\nand the last")
    echo = Echo(str(tmp_path))
    echo()
    assert gone.exists()  # for who asks how it ended
    monkeypatch.setattr(worker_stderr, "ENDED_S", 0.0)
    echo()
    assert [path.name for path in tmp_path.iterdir()] == [lives.name] and set(echo._read) == {lives}
    told = [message for message in caplog.messages if gone.name in message]
    assert [message.partition(": ")[2] for message in told] == ["the first", "and the last"]


def test_a_worker_stopped_before_its_greeting_is_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads nothing, not even a greeting that no buffer holds."""
    monkeypatch.setattr(connection, "GREETING_S", 1.0)

    async def greet() -> None:
        stopped = asyncio.Event()

        async def handle(comm: Any) -> None:
            await stopped.wait()

        async with distributed.comm.listen("tcp://127.0.0.1:0", handle) as listener:
            with pytest.raises(TimeoutError):
                await connection.greet(listener.contact_address, {}, {"experiment": bytes(64_000_000)})
            stopped.set()

    asyncio.run(asyncio.wait_for(greet(), 60))
