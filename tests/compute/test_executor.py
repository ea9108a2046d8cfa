"""What runs tasks in a worker process: whatever it takes ends there or is given back."""

import asyncio
import pickle
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import wait_until

from paddock.algos.pool import executor as executor_module
from paddock.algos.pool.driver import DriverConnection
from paddock.algos.pool.executor import Executor, Job, perform
from paddock.algos.pool.protocol import ONE_CPU, Needs
from paddock.algos.pool.serial import SerialPool
from paddock.compute.dask.tasks import Ended, Item


class Ends:
    """Collects the numbers of tasks that ended."""

    def __init__(self) -> None:
        self.tasks: list[int] = []

    def __call__(self, task: int, seconds: float, good: bool, data: bytes, last: bool) -> None:
        self.tasks.append(task)


def start(cpu: int, memory_gb: float = 1.0, retire: Callable[[], None] = lambda: None) -> tuple[Executor, Ends]:
    ends = Ends()
    return Executor(Needs(cpu=cpu, memory_gb=memory_gb), ends, retire), ends


def job(run: Callable[[bytes], Any], *numbers: int, needs: Needs = ONE_CPU, **options: Any) -> Job:
    return Job(run, deque((number, bytes([number])) for number in numbers), needs, **options)


def test_each_thread_closes_what_it_kept_once_its_driver_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[int] = []
    monkeypatch.setattr(executor_module, "_at_rest", [lambda: closed.append(threading.get_ident())])
    (executor, ends), may_end = start(2), threading.Event()
    executor.add(job(lambda _: may_end.wait(10), 0))
    wait_until(lambda: executor.busy, 10)
    executor.abandon()
    wait_until(lambda: closed, 10)
    assert len(closed) == 1 and not ends.tasks  # the other thread has a task
    may_end.set()
    wait_until(lambda: len(set(closed)) == 2, 10)
    assert ends.tasks == [0]


def test_a_serial_pool_closes_what_its_tasks_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[int] = []
    monkeypatch.setattr(executor_module, "_at_rest", [lambda: closed.append(threading.get_ident())])
    SerialPool().close()
    assert closed == [threading.get_ident()]


@pytest.mark.parametrize("renews", [False, True])
def test_an_executor_that_closes_gives_back_what_it_has_not_begun(renews: bool) -> None:
    retired = threading.Event()
    executor, ends = start(1, retire=retired.set)

    def run(_: bytes) -> None:
        if not renews:
            executor.close()

    executor.add(job(run, 0, 1, 2, 3, 4, renew_after=1 if renews else None))
    wait_until(lambda: ends.tasks and not executor.busy, 10)
    assert ends.tasks == [0] and sorted(executor.take_back()) == [1, 2, 3, 4]
    assert retired.wait(10) is renews or not renews


def test_a_large_task_is_not_overtaken_until_it_is_taken_back() -> None:
    (executor, ends), may_end = start(2), threading.Event()
    executor.add(job(lambda _: may_end.wait(30), 0))
    wait_until(lambda: executor.busy, 10)
    executor.add(job(lambda _: None, 1, needs=Needs(cpu=2)))
    executor.add(job(lambda _: may_end.set(), 2))
    assert not ends.tasks
    assert executor.take_back([1]) == [1]
    wait_until(lambda: sorted(ends.tasks) == [0, 2], 10)


def test_a_task_may_need_all_of_the_memory() -> None:
    executor, ends = start(3, 2.0)
    for number, memory_gb in enumerate((0.1, 0.3, 0.7)):  # 2 less these, and these added again, is 2 - 2e-16
        executor.add(job(lambda _: None, number, needs=Needs(memory_gb=memory_gb)))
    executor.add(job(lambda _: None, 3, needs=Needs(memory_gb=2.0)))
    wait_until(lambda: sorted(ends.tasks) == [0, 1, 2, 3], 10)


def test_a_limit_counts_the_time_in_which_the_process_ran() -> None:
    (executor, _), may_end = start(1), threading.Event()
    executor.add(job(lambda _: may_end.wait(10), 7, limit_s=3.0))
    wait_until(lambda: executor.busy, 10)
    executor.clock += 3.2
    assert executor.overdue(0.25) == []
    executor.clock += 0.1
    assert executor.overdue(0.25) == [7]
    may_end.set()


# A driver's connection


class Channel:
    """A connection to a driver that sends nothing more."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.sent: list[Any] = []

    async def write(self, message: Any) -> None:
        self.sent += pickle.loads(message) if isinstance(message, bytes) else [message]

    async def read(self) -> Any:
        await self.gone.wait()
        raise OSError("the driver has gone")

    def abort(self) -> None: ...


class Holds:
    """An object whose calls and end take as long as the test wants."""

    began, may_end, closed, may_close = (threading.Event() for _ in range(4))

    def work(self) -> str:
        self.began.set()
        self.may_end.wait(10)
        return "worked"

    def close(self) -> None:
        self.closed.set()
        self.may_close.wait(10)


@pytest.fixture(autouse=True)
def events() -> Iterator[None]:
    yield
    for event in (Holds.began, Holds.may_end, Holds.closed, Holds.may_close):
        event.clear()


def call(driver: DriverConnection, number: int) -> None:
    driver._call("object", number, pickle.dumps(("work", (), {})), ONE_CPU, None)


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def test_an_object_that_hangs_as_it_is_closed_holds_up_no_task() -> None:
    async def main() -> None:
        driver = DriverConnection(Channel(), ONE_CPU, asyncio.get_running_loop(), lambda: None)
        driver._make("object", pickle.dumps(Holds))
        Holds.may_end.set()
        call(driver, 0)
        await until(lambda: len(driver._out) == 1)
        driver._drop("object")
        await until(Holds.closed.is_set)
        driver._make("object", pickle.dumps(Holds))
        call(driver, 1)
        await until(lambda: [message[0] for message in driver._out].count("ends") == 2)
        driver._executor.abandon()

    asyncio.run(asyncio.wait_for(main(), 10))


@pytest.mark.parametrize("how", ["its object is dropped", "its worker leaves"])
def test_a_call_that_has_not_begun_is_given_back(how: str) -> None:
    async def main() -> list[Any]:
        driver = DriverConnection(Channel(), ONE_CPU, asyncio.get_running_loop(), lambda: None)
        driver._executor.add(job(lambda _: Holds.may_end.wait(10), 0))
        await until(lambda: driver._executor.busy)
        driver._make("object", pickle.dumps(Holds))
        call(driver, 1)
        if how == "its worker leaves":
            driver.leave()
        else:
            driver._drop("object")
        Holds.may_end.set()
        return driver._out

    assert ("returned", [1]) in asyncio.run(main())


# Errors


class Unreadable(Exception):
    """Cannot be made again from its arguments."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__("unreadable")


def test_an_exception_that_cannot_travel_becomes_text() -> None:
    def fail(_: bytes) -> None:
        raise Unreadable(1, 2)

    good, data = perform(fail, b"")
    end = Ended(Item(None, 0, b"", ()), good, data)()
    assert end.value is None and end.error is not None
    assert "Unreadable: unreadable" in str(end.error) and "in fail" in str(end.error.__cause__)
