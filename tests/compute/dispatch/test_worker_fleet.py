"""Workers that retire, are idle or are let go by a smaller pool, and what they wrote before they ended."""

import asyncio
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_workers import SETTINGS, Ends, FakeWorker, nobody, turns, unreached
from pool_tasks import Counter as CountingObject
from pool_tasks import square

from paddock.algos.pool.exit_report import last_lines
from paddock.algos.pool.protocol import ONE_CPU, Done, PoolError, WorkerLost
from paddock.compute.dask import autoscale, membership, worker_stderr
from paddock.compute.dask.actors import ActorHandle
from paddock.compute.dask.autoscale import IDLE_S, Bounds, NoneCame, WorkerFleet
from paddock.compute.dask.dispatcher import Dispatcher
from paddock.compute.dask.membership import Membership
from paddock.compute.dask.worker_stderr import LONGEST_LINE, Echo


async def _retire_three_times(was_there_s: float) -> list[Done]:
    """Let three workers retire in the midst of a task that they had for 100 s; a fourth ends it, if it is to."""
    dispatcher = Dispatcher(asyncio.get_running_loop(), retries=2, timeout_s=None)
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
            worker.heed(worker, [("leaving",)])
        worker.end.set_result(None)
        await serving
        await turns()
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


def test_a_worker_is_not_idle_while_an_object_lives_there_and_waits_for_its_next_call() -> None:
    async def main() -> None:
        dispatcher = Dispatcher(asyncio.get_running_loop(), retries=0, timeout_s=None)
        workers: list[Any] = [FakeWorker(f"tcp://{name}") for name in ("a", "b")]
        for worker in workers:
            worker.answer["name"], worker.idle_since = worker.address, -IDLE_S
        served = [asyncio.ensure_future(dispatcher.serve(worker)) for worker in workers]
        actor = ActorHandle(dispatcher, dispatcher.placement, CountingObject, ONE_CPU)
        await turns()
        cluster = SimpleNamespace(worker_spec={worker.address: {} for worker in workers})
        fleet, now = WorkerFleet(cluster, Bounds(1, 2), ended=nobody, kill=unreached), workers[0].heard
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
        dispatcher, ends = Dispatcher(asyncio.get_running_loop(), retries=0, timeout_s=None), Ends()
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
        fleet = WorkerFleet(cluster, Bounds(1, 2), ended=nobody, kill=unreached)
        fleet._target, fleet._again = 2, workers[0].heard + 600
        await fleet.follow(0, 0.0, workers)
        for worker in workers:
            worker.end.set_result(None)
        await asyncio.gather(*served)
        return workers[0].runs, workers[1].runs

    leaving, staying = asyncio.run(main())
    assert not leaving and len(staying) == 1


def test_a_lost_scheduler_is_noticed_while_a_change_of_the_number_of_workers_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where Slurm's controller does not answer who cancels a job."""
    monkeypatch.setattr(membership, "TICK_S", 0.01)

    async def main() -> PoolError | None:
        dispatcher, asked, cancelled = Dispatcher(asyncio.get_running_loop(), 0, None), 0, asyncio.Event()
        worker: Any = FakeWorker("tcp://a")
        dispatcher.workers[worker.address] = worker

        async def ncores() -> dict[str, int]:
            nonlocal asked
            asked += 1
            if asked > 5:
                raise OSError("connection lost")
            return {}

        async def follow(*_: Any) -> None:
            try:
                await asyncio.sleep(600)
            finally:
                cancelled.set()

        client: Any = SimpleNamespace(scheduler=SimpleNamespace(ncores=ncores), status="running")
        fleet: Any = SimpleNamespace(follow=follow, connections={})
        members = Membership(client, dispatcher, fleet, None, {}, lambda worker: None, "the scheduler", lambda: None)
        await members.open(1, timeout_s=60)
        while dispatcher.failure is None:
            await asyncio.sleep(0.01)
        await members.close()
        assert cancelled.is_set()
        return dispatcher.failure

    assert "lost the scheduler (connection lost)" in str(asyncio.run(asyncio.wait_for(main(), 10)))


@pytest.mark.parametrize("spacing_s", [0.0, 15.0])
def test_jobs_that_replace_others_are_each_started_eight_times_before_the_pool_gives_up(
    spacing_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are, one after the other or at once, and however often one failed while others worked."""
    began = now = 1000.0
    jobs = ["0", "1", "2", "3"]
    monkeypatch.setattr(autoscale, "time", SimpleNamespace(monotonic=lambda: now))
    starts: Counter[str] = Counter()
    ends: dict[str, float] = {}

    def scale(_: int) -> None:
        nonlocal began
        for job in set(jobs) - cluster.workers.keys():
            cluster.workers[job] = None
            began = max(began + spacing_s, now)  # each waits for the one before
            starts[job], ends[job] = starts[job] + 1, began

    async def ended(names: Collection[str]) -> list[str]:
        return [name for name in names if ends.get(name, now + 1) <= now]

    async def main() -> str:
        nonlocal now
        fleet = WorkerFleet(cluster, Bounds(4, 4), ended=ended, kill=unreached)
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
                await fleet.follow(1, 1.0, workers[:1])
            except NoneCame as error:
                return str(error)
        raise AssertionError("it goes on for ever")

    cluster = SimpleNamespace(worker_spec={job: {} for job in jobs}, workers=dict.fromkeys(jobs), scale=scale)
    assert "in 8 tries" in asyncio.run(main())
    assert min(starts.values()) >= 7


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
    assert write("whole\nprogress 99%") == ["whole"]
    caplog.clear()
    echo.catch_up()
    assert caplog.messages == ["worker process 1: progress 99%"]


def test_of_a_worker_that_writes_without_end_the_disk_keeps_the_last_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(worker_stderr, "PIECE", 50_050)
    monkeypatch.setattr(worker_stderr, "MOST_BEHIND", 100_000)
    echo, errors = Echo(str(tmp_path)), tmp_path / "1"

    def write(lines: int) -> None:
        with open(errors, "a") as file:
            file.writelines(f"{number:99d}\n" for number in range(lines))

    def told() -> list[str]:
        caplog.clear()
        echo()
        return [message.partition(": ")[2].strip() for message in caplog.messages]

    for _ in range(3):
        write(1000)
        assert [told(), told(), told()] == [[*map(str, range(500))], [*map(str, range(500, 1000))], []]
    with open(errors, "a") as file:
        file.write("begun")
    assert told() == []
    write(1001)
    assert told() == ["(it writes too much; 50105 bytes are left out here)", *map(str, range(501, 1001))]
    assert errors.stat().st_size == 400_105
    (tmp_path / "other").write_bytes(b"x" * 10_000)
    punch = "fallocate --punch-hole --length 4096 other"
    if not subprocess.run(punch, shell=True, cwd=tmp_path, capture_output=True).returncode:  # where the disk can
        assert errors.stat().st_blocks * 512 < 50_000  # blocks have some thousands of bytes
    assert last_lines(str(errors)) == [f"{number:99d}" for number in range(989, 1001)]


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
