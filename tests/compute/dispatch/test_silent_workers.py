"""Workers that are stuck, stopped or silent: who takes over, and what is not lost by mistake."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from fake_workers import SETTINGS, Ends, FakeWorker, make_dispatcher, make_object, turns
from pool_tasks import square

from paddock.algos.pool.protocol import Done, PoolError, TaskTimeout
from paddock.compute.dask import membership
from paddock.compute.dask.dispatcher import SILENCE_S, Dispatcher
from paddock.compute.dask.membership import Membership


def test_a_silent_workers_time_is_not_up_for_a_task_that_runs_elsewhere() -> None:
    async def fall_silent() -> list[Done]:
        dispatcher = make_dispatcher(0, 1.0)
        ends = Ends()
        dispatcher.open(square, ends, **SETTINGS).put(1)
        silent, other = FakeWorker("tcp://a:1"), FakeWorker("tcp://b:1")
        serving = [asyncio.ensure_future(dispatcher.serve(silent))]
        await turns()
        assert silent.runs
        serving.append(asyncio.ensure_future(dispatcher.serve(other)))
        await turns()
        silent.quiet_s += SILENCE_S + 0.1
        dispatcher.watch(0.0)  # gives the task to the other
        await turns()
        silent.quiet_s += 3600
        dispatcher.watch(0.0)
        assert other.runs and not ends.done
        other.answer_all()
        for worker in (silent, other):
            worker.end.set_result(None)
        await asyncio.gather(*serving)
        return ends.done

    (done,) = asyncio.run(fall_silent())
    assert done.value == "done" and done.error is None


def test_a_task_on_a_stopped_worker_is_late_the_second_time() -> None:
    """As where a cluster suspends jobs; a task that holds the interpreter looks the same, and is so each time."""

    async def be_stopped(times: int) -> list[Done]:
        dispatcher = make_dispatcher(3, 1.0)
        ends, serving = Ends(), []
        dispatcher.open(square, ends, **SETTINGS).put(1)
        for k in range(2):
            worker = FakeWorker(f"tcp://{k}:1")
            serving.append(asyncio.ensure_future(dispatcher.serve(worker)))
            await turns()
            assert worker.runs and not ends.done
            if k < times:
                for _ in range(2):
                    worker.quiet_s += SILENCE_S + 1.1
                    dispatcher.watch(0.0)
            else:
                worker.answer_all()
            worker.end.set_result(None)
            await turns()
        await asyncio.gather(*serving)
        return ends.done

    (once,), (twice,) = (asyncio.run(be_stopped(times)) for times in (1, 2))
    assert (once.value, once.attempts, once.error) == ("done", 2, None)
    assert isinstance(twice.error, TaskTimeout) and twice.attempts == 2


def test_a_task_survives_a_silent_worker_and_a_lost_one() -> None:
    async def lose() -> list[Done]:
        dispatcher = make_dispatcher(3)
        ends = Ends()
        dispatcher.open(square, ends, **SETTINGS).put(1)
        silent, lost, third = (FakeWorker(f"tcp://{name}:1") for name in "abc")
        serving = [asyncio.ensure_future(dispatcher.serve(silent))]
        await turns()
        serving.append(asyncio.ensure_future(dispatcher.serve(lost)))
        await turns()
        silent.quiet_s += SILENCE_S + 0.1
        dispatcher.watch(0.0)
        assert silent.runs and lost.runs
        lost.end.set_result(None)
        await turns()
        serving.append(asyncio.ensure_future(dispatcher.serve(third)))
        await turns()
        dispatcher.watch(0.0)
        third.answer_all()
        for worker in (silent, third):
            worker.end.set_result(None)
        await asyncio.gather(*serving)
        return ends.done

    (done,) = asyncio.run(lose())
    assert (done.value, done.attempts) == ("done", 2)


def begin(kind: str, dispatcher: Dispatcher, ends: Ends) -> None:
    """Put a task, or call an object."""
    if kind == "task":
        dispatcher.open(square, ends, **SETTINGS).put(1)
    else:
        actor = make_object(dispatcher)
        actor.deliver = ends
        actor.call("add", 1)


@pytest.mark.parametrize("kind", ["task", "call"])
def test_a_copy_on_a_healthy_worker_outlives_the_silent_one(kind: str) -> None:
    async def lose() -> list[Done]:
        dispatcher = make_dispatcher()
        ends = Ends()
        silent, healthy = FakeWorker("tcp://a:1"), FakeWorker("tcp://b:1")
        serving = [asyncio.ensure_future(dispatcher.serve(silent))]
        await turns()
        begin(kind, dispatcher, ends)
        await turns()
        assert silent.items
        serving.append(asyncio.ensure_future(dispatcher.serve(healthy)))
        await turns()
        silent.quiet_s += SILENCE_S + 0.1
        dispatcher.watch(0.0)
        await turns()
        assert healthy.items
        silent.end.set_result(None)
        await turns()
        assert not ends.done
        healthy.answer_all()
        healthy.end.set_result(None)
        await asyncio.gather(*serving)
        return ends.done

    (done,) = asyncio.run(lose())
    assert (done.value, done.error) == ("done", None)


def test_repeated_silence_requeues_a_task_once() -> None:
    async def lose() -> tuple[Done, list[int]]:
        dispatcher = make_dispatcher(3)
        ends, waiting = Ends(), []
        batch = dispatcher.open(square, ends, **SETTINGS)
        batch.mean_s = 0.001  # so that more is given to a worker that has some
        batch.put(1)
        worker, other = FakeWorker("tcp://a:1"), FakeWorker("tcp://b:1")
        serving = [asyncio.ensure_future(dispatcher.serve(worker))]
        await turns()
        for _ in range(3):
            worker.quiet_s += SILENCE_S + 0.1
            dispatcher.watch(0.0)
            waiting.append(len(batch.waiting))
            worker.quiet_s = 0.0
            worker.handle(worker, [("alive",)])
            waiting.append(len(batch.waiting))
        assert len(worker.runs) == 1
        worker.quiet_s += SILENCE_S + 0.1
        dispatcher.watch(0.0)
        worker.end.set_result(None)
        await turns()
        waiting.append(len(batch.waiting))
        serving.append(asyncio.ensure_future(dispatcher.serve(other)))
        await turns()
        other.answer_all()
        other.end.set_result(None)
        await asyncio.gather(*serving)
        return ends.done[0], waiting

    done, waiting = asyncio.run(lose())
    assert (done.value, done.attempts) == ("done", 2)
    assert waiting == [1, 0, 1, 0, 1, 0, 1]


def test_a_call_waits_while_all_workers_are_silent() -> None:
    async def fall_silent() -> Any:
        dispatcher = make_dispatcher()
        worker = FakeWorker("tcp://a:1")
        serving = asyncio.ensure_future(dispatcher.serve(worker))
        actor = make_object(dispatcher)
        dispatcher.open(square, Ends(), **SETTINGS).put(1)
        await turns()
        worker.quiet_s += SILENCE_S + 0.1
        dispatcher.watch(0.0)
        value = actor.call("add", 1)
        await turns()
        worker.handle(worker, [("alive",)])
        worker.answer_all()
        await turns()
        worker.end.set_result(None)
        await serving
        dispatcher.fail(PoolError("the call was never sent"))
        return value()

    assert asyncio.run(fall_silent()) == "done"


@pytest.mark.parametrize("answers", [0, 1])
def test_a_scheduler_that_does_not_answer_twice_is_lost(answers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once is forgiven: this process may have been stopped meanwhile."""
    monkeypatch.setattr(membership, "ANSWER_S", 0.05)

    async def main() -> tuple[PoolError | None, int]:
        asked = 0

        async def ncores() -> dict[str, int]:
            nonlocal asked
            asked += 1
            if asked != 2 * answers:
                await asyncio.sleep(60)
            return {}

        client: Any = SimpleNamespace(scheduler=SimpleNamespace(ncores=ncores), status="running")
        dispatcher = make_dispatcher()
        members = Membership(client, dispatcher, None, (), "the scheduler at tcp://a")
        with pytest.raises(PoolError):
            await members.open(1, timeout_s=10)
        return dispatcher.failure, asked

    failure, asked = asyncio.run(main())
    assert "lost the scheduler at tcp://a" in str(failure) and asked == 2 + 2 * answers


def test_the_start_limit_counts_from_the_last_worker_that_joined() -> None:
    async def start(count: int) -> int:
        async def ncores() -> dict[str, int]:
            return {}

        client: Any = SimpleNamespace(scheduler=SimpleNamespace(ncores=ncores), status="running")
        dispatcher = make_dispatcher(0, 1.0)
        members = Membership(client, dispatcher, None, (), "nowhere")
        opening = asyncio.ensure_future(members.open(3, timeout_s=0.4))
        for k in range(count):  # 0.9 s in all
            await asyncio.sleep(0.3)
            dispatcher.workers[f"tcp://{k}:1"] = FakeWorker(f"tcp://{k}:1")
        try:
            await opening
            return len(dispatcher.workers)
        finally:
            await members.close()

    assert asyncio.run(start(3)) == 3
    with pytest.raises(TimeoutError):
        asyncio.run(start(2))
