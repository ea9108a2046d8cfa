"""The driver's half of the pool by itself: nothing is lost between threads, and whatever breaks, open tasks end."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from fake_workers import SETTINGS, Ends, FakeWorker, make_dispatcher, make_object, turns
from pool_tasks import square

from paddock.algos.pool.broadcast import Broadcast
from paddock.algos.pool.pickling import dump
from paddock.algos.pool.protocol import Done, PoolError, RemoteError, WorkerLost
from paddock.compute.dask import tasks
from paddock.compute.dask.connection import WorkerConnection
from paddock.compute.dask.tasks import HOLD_S, Ended, Item

# Two threads


def test_a_broadcast_that_cannot_be_pickled_is_the_error_of_who_puts_it() -> None:
    async def main() -> list[Done]:
        dispatcher, ends = make_dispatcher(), Ends()
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
    dispatcher = make_dispatcher(loop=loop)
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
    batch = make_dispatcher(loop=loop).open(square, Ends(), **SETTINGS)
    coming = make()
    assert batch.take(coming, 9, lambda: True) == (2, False)
    assert batch.take(coming, 9, lambda: len(made) == 5) == (3, False)
    assert batch.take(coming, 9, lambda: False) == (1, True)
    assert [item.index for item in batch.waiting] == made == list(range(6))
    loop.close()


# Faults


def lack() -> None:
    raise ImportError("no module named only_there")


class Foreign(Exception):
    """Can be loaded where it was raised, and nowhere else."""

    def __reduce__(self) -> Any:
        return lack, (), {"argument": "of its own"}


def test_an_error_that_cannot_be_loaded_here_is_told_in_words() -> None:
    data = dump(("Traceback (most recent call last):\n  somewhere\nForeign: why\n", dump(Foreign("why"))))
    error = Ended(Item(None, 0, b"", ()), False, data)().error
    assert isinstance(error, RemoteError)
    assert str(error) == "Foreign: why; it cannot be unpickled here (ImportError: no module named only_there)"
    assert "somewhere" in str(error.__cause__)


def test_a_lost_task_ends_when_the_pool_closes() -> None:
    async def lose() -> list[Done]:
        async def read_exit(worker: WorkerConnection) -> str:
            await asyncio.sleep(600)
            return ""

        dispatcher, ends = make_dispatcher(read_exit=read_exit), Ends()
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


def test_no_end_of_a_batch_that_was_cancelled_is_delivered() -> None:
    async def lose() -> list[Done]:
        asked = asyncio.Event()

        async def read_exit(worker: WorkerConnection) -> str:
            await asked.wait()
            return "it was killed"

        dispatcher, ends = make_dispatcher(read_exit=read_exit), Ends()
        batch = dispatcher.open(square, ends, **SETTINGS)
        batch.put(1)
        worker = FakeWorker("tcp://a:1")
        serving = asyncio.ensure_future(dispatcher.serve(worker))
        await turns()
        worker.end.set_result(None)
        await serving
        await turns()
        batch.cancel()
        await turns()
        asked.set()
        await turns()
        return ends.done

    assert asyncio.run(lose()) == []


def test_a_task_that_runs_alone_joins_no_other() -> None:
    async def feed() -> list[int]:
        dispatcher = make_dispatcher(3)
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


def test_a_lost_task_does_not_wait_until_all_others_have_ended() -> None:
    """It runs alone, so a worker has to be without any other for it: none that an object's calls keep busy."""

    async def feed() -> tuple[list[Done], int]:
        dispatcher = make_dispatcher(3)
        ends, others = Ends(), Ends()
        batches = [dispatcher.open(square, receiver, **SETTINGS) for receiver in (ends, others)]
        batches[1].mean_s = 0.001  # so that more is given to a worker that has some
        batches[0].put(0)
        lost, busy, worker = FakeWorker("tcp://a:1"), FakeWorker("tcp://b:1"), FakeWorker("tcp://c:1")
        serving = []
        for one in (lost, busy, worker):
            serving.append(asyncio.ensure_future(dispatcher.serve(one)))
            await turns()
            if one is busy:
                make_object(dispatcher).call("add", 1)
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
            worker.handle(worker, [("ends", [(number, 0.001, True, dump("done"))])])
            await turns()
        busy.end.set_result(None)
        worker.end.set_result(None)
        await asyncio.gather(*serving)
        return ends.done, len(others.done)

    done, others = asyncio.run(feed())
    assert [end.attempts for end in done] == [2] and others < 100


def test_a_fault_of_the_pool_itself_ends_what_is_open(caplog: pytest.LogCaptureFixture) -> None:
    async def stumble(beside: bool) -> list[Done]:
        dispatcher = make_dispatcher()
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


# Objects


def test_a_call_is_refused_or_ends_however_its_pool_went() -> None:
    loop = asyncio.new_event_loop()
    dispatcher = make_dispatcher(loop=loop)
    actor = make_object(dispatcher)
    dispatcher.fail(PoolError("gone"))
    loop.close()
    with pytest.raises(PoolError, match="gone"):
        actor.call("add", 1)


def test_a_task_that_kills_workers_with_objects_is_given_up() -> None:
    async def lose() -> list[int]:
        dispatcher = make_dispatcher(1)
        ends, lost = Ends(), []
        dispatcher.open(square, ends, **SETTINGS).put(1)
        actor = make_object(dispatcher)
        for number in range(4):
            worker = FakeWorker(f"tcp://{number}:1")
            serving = asyncio.ensure_future(dispatcher.serve(worker))
            await turns()
            if not worker.runs:  # the call of before comes first, and is not to blame
                worker.answer_all()
            actor.call("add", 1)
            await turns()
            worker.end.set_result(None)
            await serving
            await turns()
            lost += [number] if ends.done else []
        (done,) = ends.done
        assert isinstance(done.error, WorkerLost) and "lost its worker 2 times" in str(done.error)
        return lost

    assert asyncio.run(lose()) == [1, 2, 3]


def test_objects_spread_over_workers_that_come_later() -> None:
    async def main() -> None:
        dispatcher = make_dispatcher()
        workers: list[Any] = [FakeWorker(f"tcp://{name}") for name in "abc"]
        served = [asyncio.ensure_future(dispatcher.serve(workers[0]))]
        actors = [make_object(dispatcher) for _ in range(4)]
        await turns()
        value = actors[0].call("add", 1)
        await turns()
        assert [worker.objects for worker in workers] == [4, 0, 0]
        for worker in workers[1:]:
            served.append(asyncio.ensure_future(dispatcher.serve(worker)))
            await turns()
        assert [worker.objects for worker in workers] == [2, 1, 1]
        assert actors[0].worker is workers[0]  # which would have to begin its call again
        for actor in actors:
            actor.close()
        await turns()
        assert isinstance(_error(value), PoolError)
        assert [worker.objects for worker in workers] == [0, 0, 0]
        for worker in workers:
            worker.end.set_result(None)
        await asyncio.gather(*served)

    asyncio.run(main())


def test_objects_come_to_rest_on_workers_of_several_sizes() -> None:
    async def main() -> None:
        dispatcher = make_dispatcher()
        workers: list[Any] = [FakeWorker("tcp://small", 1), FakeWorker("tcp://large", 4)]
        served = [asyncio.ensure_future(dispatcher.serve(workers[0]))]
        actors = [make_object(dispatcher) for _ in range(2)]
        await turns()
        moves: list[Any] = []
        move = dispatcher.placement._move

        def count(actors: Any) -> None:
            moves.append(actors)
            assert len(moves) < 50, "objects move for ever"
            move(actors)

        dispatcher.placement._move = count
        served.append(asyncio.ensure_future(dispatcher.serve(workers[1])))
        await turns()
        assert [worker.objects for worker in workers] == [0, 2]
        for actor in actors:
            actor.close()
        for worker in workers:
            worker.end.set_result(None)
        await asyncio.gather(*served)

    asyncio.run(main())


def _error(value: Callable[[], Any]) -> BaseException | None:
    try:
        value()
    except Exception as error:
        return error
    return None
