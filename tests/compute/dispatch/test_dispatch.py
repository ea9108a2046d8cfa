"""The driver's half of the pool by itself: nothing is lost between threads, and whatever breaks, open tasks end."""

import asyncio
import errno
import os
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest
from distributed.comm import CommClosedError
from fake_workers import SETTINGS, Ends, FakeWorker, turns
from pool_tasks import Counter, square

from paddock.algos.pool.broadcast import Broadcast
from paddock.algos.pool.protocol import ONE_CPU, Done, End, PoolError, RemoteError, WorkerLost
from paddock.algos.pool.script import dump
from paddock.compute.dask import tasks
from paddock.compute.dask.actors import ActorHandle
from paddock.compute.dask.connection import WorkerConnection
from paddock.compute.dask.dispatcher import Dispatcher
from paddock.compute.dask.membership import Membership
from paddock.compute.dask.tasks import HOLD_S, Ended, Item, drain

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
    loop.run_until_complete(turns())
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
        await turns()
        batch.waiting = waiting = Interrupted(batch.waiting)
        waiting.late = batch._item(2)
        dispatcher.fail(PoolError("gone"))
        await turns()

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
        await turns()
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


def test_no_end_waits_until_all_tasks_of_a_slow_iterable_have_come(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(tasks, "time", SimpleNamespace(monotonic=lambda: now, sleep=lambda _: None))
    made: list[int] = []

    def make() -> Iterator[int]:
        nonlocal now
        for x in range(6):
            now += 0.6 * HOLD_S
            made.append(x)
            yield x

    loop = asyncio.new_event_loop()
    batch = Dispatcher(loop, retries=0, timeout_s=None).open(square, Ends(), **SETTINGS)
    coming = make()
    assert batch.take(coming, 9, lambda: True) == (2, False)
    assert batch.take(coming, 9, lambda: len(made) == 5) == (3, False)
    assert batch.take(coming, 9, lambda: False) == (1, True)
    assert [item.index for item in batch.waiting] == made == list(range(6))
    loop.close()


# Faults


def interrupt() -> None:
    raise KeyboardInterrupt


class Interrupts:
    """Stands for a value that Ctrl-C comes upon as it is loaded."""

    def __reduce__(self) -> Any:
        return interrupt, ()


def test_an_interrupt_as_a_value_is_loaded_is_no_task_s_own() -> None:
    end = Ended(Item(None, 0, b"", ()), True, dump(Interrupts()))
    with pytest.raises(KeyboardInterrupt):
        end()
    with ThreadPoolExecutor(1) as thread:  # where none comes, and what raises one by itself must end nobody
        assert isinstance(thread.submit(end).result().error, KeyboardInterrupt)


def lack() -> None:
    raise ImportError("no module named only_there")


class Foreign(Exception):
    """Can be loaded where it was raised, and nowhere else."""

    def __reduce__(self) -> Any:
        return lack, (), {"argument": "of its own"}


def test_an_error_that_cannot_be_loaded_here_is_told_in_words() -> None:
    data = dump((Foreign("why"), "Traceback (most recent call last):\n  somewhere\nForeign: why\n"))
    error = Ended(Item(None, 0, b"", ()), False, data)().error
    assert isinstance(error, RemoteError)
    assert str(error) == "Foreign: why; here it cannot be loaded (ImportError: no module named only_there)"
    assert "somewhere" in str(error.__cause__)


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
        await turns()
        assert worker.runs
        worker.end.set_result(None)
        await serving
        await turns()
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
        await turns()
        worker.end.set_result(None)
        await serving
        await turns()
        dispatcher.fail(PoolError("the pool is closed"))
        return ends.done

    (done,) = asyncio.run(lose())
    assert isinstance(done.error, PoolError)


@pytest.mark.parametrize("late", ["while it is asked how a worker ended", "while ends are told"])
def test_nobody_is_told_of_a_batch_that_was_cancelled(late: str) -> None:
    async def lose() -> list[Done]:
        dispatcher, asked = Dispatcher(asyncio.get_running_loop(), retries=0, timeout_s=None), asyncio.Event()

        async def read_exit(worker: WorkerConnection) -> str:
            await asked.wait()
            return "it was killed"

        dispatcher.read_exit = read_exit
        ends = Ends()
        batch = dispatcher.open(square, ends, **SETTINGS)
        batch.put(1)
        worker = FakeWorker("tcp://a:1")
        serving = asyncio.ensure_future(dispatcher.serve(worker))
        await turns()
        if late == "while ends are told":
            batch.cancel()  # of which the loop, which has them in hand, hears later
            worker.answer_all()
        worker.end.set_result(None)
        await serving
        await turns()
        batch.cancel()
        await turns()
        asked.set()
        await turns()
        return ends.done

    assert asyncio.run(lose()) == []


def test_the_tasks_of_a_worker_that_talks_nonsense_run_elsewhere() -> None:
    async def listen() -> list[Done]:
        dispatcher = Dispatcher(asyncio.get_running_loop(), retries=3, timeout_s=None)
        ends = Ends()
        dispatcher.open(square, ends, **SETTINGS).put(1)
        broken = FakeWorker("tcp://a:1")
        serving = asyncio.ensure_future(dispatcher.serve(broken))
        await turns()
        assert broken.runs
        broken.end.set_exception(TypeError("not a message"))
        with pytest.raises(TypeError):
            await serving
        assert not dispatcher.workers
        good = FakeWorker("tcp://b:1")
        serving = asyncio.ensure_future(dispatcher.serve(good))
        await turns()
        good.answer_all()
        good.end.set_result(None)
        await serving
        return ends.done

    (done,) = asyncio.run(listen())
    assert (done.value, done.attempts) == ("done", 2)


def test_a_fault_in_the_midst_of_a_message_loses_no_end_of_it() -> None:
    async def stumble() -> list[Done]:
        dispatcher, ends = Dispatcher(asyncio.get_running_loop(), retries=3, timeout_s=None), Ends()
        batches = [dispatcher.open(square, ends, **SETTINGS) for _ in range(2)]
        serving, workers = [], [FakeWorker(f"tcp://{name}:1", threads=2) for name in "ab"]
        for batch in batches:
            batch.put(1)
        for worker in workers:
            serving.append(asyncio.ensure_future(dispatcher.serve(worker)))
            await turns()
        learn, batches[1].learn = batches[1].learn, None  # type: ignore[assignment, method-assign]
        with pytest.raises(TypeError):
            workers[0].answer_all()
        batches[1].learn = learn  # type: ignore[method-assign]
        workers[0].end.set_result(None)
        await turns()
        workers[1].answer_all()
        workers[1].end.set_result(None)
        await asyncio.gather(*serving)
        return ends.done

    assert [(done.value, done.attempts) for done in asyncio.run(stumble())] == [("done", 1), ("done", 2)]


def test_a_task_that_is_to_run_alone_joins_no_others_behind_one_that_has_ended_meanwhile() -> None:
    async def feed() -> list[int]:
        dispatcher = Dispatcher(asyncio.get_running_loop(), retries=3, timeout_s=None)
        batch = dispatcher.open(square, Ends(), **SETTINGS)
        batch.mean_s = 0.001
        batch.put(0)
        worker = FakeWorker("tcp://a:1")
        serving = asyncio.ensure_future(dispatcher.serve(worker))
        await turns()
        ended, alone = batch._item(1), batch._item(2)
        ended.over = alone.alone = True  # by a worker that had been silent; after the loss of another one
        batch.waiting.extend([ended, alone])
        dispatcher.wake()
        await turns()
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
            await turns()
            if one is busy:
                ActorHandle(dispatcher, dispatcher.placement, Counter, ONE_CPU).call("add", 1)
                await turns()
            one.leaving = one is not worker  # so that it gets none of the others
            dispatcher.workers.place(one)
        for number in range(40):
            batches[1].put(number)
        await turns()
        lost.leaving = busy.leaving = False
        dispatcher.workers.place(busy)
        lost.end.set_result(None)
        while not ends.done and len(others.done) < 400:
            for number in range(3):
                batches[1].put(number)
            number = next(iter(worker.items))
            worker.heed(worker, [("ends", [(number, 0.001, True, dump("done"))])])
            await turns()
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
        await turns()
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
        await turns()
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
        await turns()

        def fault() -> None:
            raise AssertionError("a fault of ours")

        async def fault_beside() -> None:
            fault()

        if beside:
            dispatcher.spawn(fault_beside())
        else:
            dispatcher.call(fault)
        await turns()
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
        await turns()
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


def test_a_limit_of_open_files_is_no_fault_of_the_pool() -> None:
    async def main() -> PoolError | None:
        dispatcher = Dispatcher(asyncio.get_running_loop(), retries=0, timeout_s=None)

        async def start_another() -> None:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "errors")

        await asyncio.wait([dispatcher.spawn(start_another())])
        await turns()
        return dispatcher.failure

    said = "the pool may not open another file (Too many open files); raise the limit: `ulimit -n`"
    assert str(asyncio.run(main())) == said
