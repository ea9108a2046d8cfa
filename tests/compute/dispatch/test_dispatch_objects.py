"""Objects that live on workers: which calls are refused, and where objects go when workers come and go."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from fake_workers import SETTINGS, Ends, FakeWorker, turns
from pool_tasks import Counter, square

from paddock.algos.pool.protocol import ONE_CPU, PoolError, WorkerLost
from paddock.compute.dask.actors import ActorHandle
from paddock.compute.dask.dispatcher import Dispatcher


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
        await turns()
        actor = ActorHandle(dispatcher, dispatcher.placement, Counter, ONE_CPU)
        held.append(actor)
        value = actor.call("add", Closing())
        await turns()
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
        dispatcher = Dispatcher(asyncio.get_running_loop(), retries=0, timeout_s=None)
        workers: list[Any] = [FakeWorker(f"tcp://{name}") for name in "abc"]
        served = [asyncio.ensure_future(dispatcher.serve(workers[0]))]
        actors = [ActorHandle(dispatcher, dispatcher.placement, Counter, ONE_CPU) for _ in range(4)]
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
        dispatcher = Dispatcher(asyncio.get_running_loop(), retries=0, timeout_s=None)
        workers: list[Any] = [FakeWorker("tcp://small", 1), FakeWorker("tcp://large", 4)]
        served = [asyncio.ensure_future(dispatcher.serve(workers[0]))]
        actors = [ActorHandle(dispatcher, dispatcher.placement, Counter, ONE_CPU) for _ in range(2)]
        await turns()
        moves: list[Any] = []
        move = dispatcher.placement._move

        def count(actors: Any) -> None:
            moves.append(actors)
            assert len(moves) < 50, "objects move for ever"
            move(actors)

        dispatcher.placement._move = count  # type: ignore[method-assign]
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
