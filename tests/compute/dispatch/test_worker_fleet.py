"""Workers that retire, are idle or are let go by a smaller pool, and what they wrote before they ended."""

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from fake_workers import SETTINGS, Ends, FakeWorker, make_dispatcher, make_object, nobody, turns
from pool_tasks import square

from paddock.algos.pool.protocol import Done, WorkerLost
from paddock.compute.dask import autoscale
from paddock.compute.dask.autoscale import IDLE_S, Bounds, NoWorkersError, WorkerFleet


async def _retire_three_times(was_there_s: float) -> list[Done]:
    """Let three workers retire in the midst of a task that they had for 100 s; a fourth ends it, if it is to."""
    dispatcher = make_dispatcher(2)
    ends = Ends()
    dispatcher.open(square, ends, **SETTINGS).put(1)
    for number in range(4):
        worker = FakeWorker(f"tcp://{number}:1")
        serving = asyncio.ensure_future(dispatcher.serve(worker))
        await turns()
        if number == 3:
            worker.answer_all()
        for item in worker.items.values():
            item.since = time.monotonic() - 100
            worker.joined = item.since - was_there_s
            worker.handle(worker, [("leaving",)])
        worker.end.set_result(None)
        await serving
        await turns()
    return ends.done


def test_a_task_that_has_all_of_its_workers_time_and_more_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    (done,) = asyncio.run(_retire_three_times(was_there_s=1))
    assert isinstance(done.error, WorkerLost)
    assert str(done.error).endswith(
        "lost its worker 3 times, last tcp://2:1: it retired before the task ended; increase the lifetime of workers "
        "(compute.time_min, or --lifetime of `dask worker`), or use shorter tasks"
    )
    assert caplog.text.count("rerunning its 1 task") == 2


def test_a_task_that_came_late_to_workers_that_retire_is_not_lost(caplog: pytest.LogCaptureFixture) -> None:
    (done,) = asyncio.run(_retire_three_times(was_there_s=100))
    assert (done.value, done.attempts) == ("done", 1)
    assert caplog.text.count("lost worker tcp://0:1: it retired before the task ended") == 1


def test_a_worker_with_an_object_is_not_idle() -> None:
    async def main() -> None:
        dispatcher = make_dispatcher()
        workers: list[Any] = [FakeWorker(f"tcp://{name}") for name in ("a", "b")]
        for worker in workers:
            worker.answer["name"], worker.idle_since = worker.address, -IDLE_S
        served = [asyncio.ensure_future(dispatcher.serve(worker)) for worker in workers]
        actor = make_object(dispatcher)
        await turns()
        cluster = SimpleNamespace(worker_spec={worker.address: {} for worker in workers})
        fleet, now = WorkerFleet(cluster, Bounds(1, 2), ended=nobody), time.monotonic()
        assert fleet._idle(workers, now) == ["tcp://b"]
        workers[0].end.set_result(None)
        await turns()
        assert [worker.objects for worker in workers] == [0, 1]
        assert fleet._idle(workers[1:], now) == []
        actor.close()
        await turns()
        assert fleet._idle(workers[1:], now) == ["tcp://b"]
        workers[1].end.set_result(None)
        await asyncio.gather(*served)

    asyncio.run(main())


def test_a_worker_that_a_smaller_pool_lets_go_gets_no_task_on_its_way_out() -> None:
    """It would be ended in the midst of it, some seconds later."""

    async def main() -> tuple[list[int], list[int]]:
        dispatcher, ends = make_dispatcher(), Ends()
        batch = dispatcher.open(square, ends, **SETTINGS)
        workers: list[Any] = [FakeWorker(f"tcp://{name}") for name in ("a", "b")]
        for worker in workers:
            worker.answer["name"], worker.idle_since = worker.address, -IDLE_S
        served = [asyncio.ensure_future(dispatcher.serve(worker)) for worker in workers]
        await turns()
        names: dict[str, dict[str, Any]] = {worker.address: {} for worker in workers}

        async def scale_down(leaving: Sequence[str]) -> None:
            assert list(leaving) == ["tcp://a"]
            batch.put(1)
            await turns()

        cluster = SimpleNamespace(worker_spec=dict(names), workers=dict(names), scale_down=scale_down)
        fleet = WorkerFleet(cluster, Bounds(1, 2), ended=nobody)
        fleet._target, fleet._next_start = 2, time.monotonic() + 600
        await fleet.follow(0, workers)
        for worker in workers:
            worker.end.set_result(None)
        await asyncio.gather(*served)
        return workers[0].runs, workers[1].runs

    leaving, staying = asyncio.run(main())
    assert not leaving and len(staying) == 1


def test_replacements_are_started_eight_times(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    jobs = ["0", "1", "2", "3"]
    monkeypatch.setattr(autoscale, "time", SimpleNamespace(monotonic=lambda: now))
    starts: Counter[str] = Counter()
    ends: dict[str, float] = {}

    def scale(_: int) -> None:
        for job in set(jobs) - cluster.workers.keys():
            cluster.workers[job] = None
            starts[job], ends[job] = starts[job] + 1, now

    async def ended(names: Collection[str]) -> list[str]:
        return [name for name in names if ends.get(name, now + 1) <= now]

    async def main() -> str:
        nonlocal now
        fleet = WorkerFleet(cluster, Bounds(4, 4), ended=ended)
        workers: list[Any] = [FakeWorker(f"tcp://{job}") for job in jobs]
        for job, worker in zip(jobs, workers, strict=True):
            worker.answer["name"] = job
            fleet.note(worker)
        for k in range(100_000):
            now += 1.0
            if k == 3600:  # until then the first worked, and the others failed
                workers.clear()
                ends.update(dict.fromkeys(jobs, now))
                starts.clear()
            elif k == 0:
                ends.update(dict.fromkeys(jobs[1:], now))
            try:
                await fleet.follow(1, workers[:1])
            except NoWorkersError as error:
                return str(error)
        raise AssertionError("it goes on for ever")

    cluster = SimpleNamespace(worker_spec={job: {} for job in jobs}, workers=dict.fromkeys(jobs), scale=scale)
    assert "8 attempts" in asyncio.run(main())
    assert min(starts.values()) >= 7
