"""What runs tasks in a worker process: whatever it takes ends there or is given back."""

import pickle
import threading
from collections import deque
from collections.abc import Callable

import pytest

from algos.pool.executor import Executor, Job, perform
from algos.pool.protocol import RemoteError


class Told:
    """A client that keeps what it is told."""

    def __init__(self) -> None:
        self.ended_tasks: list[int] = []

    def ended(self, task: int, seconds: float, good: bool, data: bytes, last: bool) -> None:
        self.ended_tasks.append(task)


@pytest.mark.parametrize("closing", ["closes", "retires"])
def test_an_executor_that_closes_gives_back_what_its_job_has_not_begun(closing: str) -> None:
    retired, client = threading.Event(), Told()
    executor = Executor(1, 1.0, 0, retired.set)

    def run(_: bytes) -> None:
        if closing == "closes":
            executor.close()

    tasks = deque((number, pickle.dumps(None)) for number in range(5))
    executor.add(Job(client, run, tasks, 1, 0.0, 0, renew_after=1 if closing == "retires" else None))
    _wait_for_idle(executor, lambda: bool(client.ended_tasks))
    assert client.ended_tasks == [0]
    assert sorted(executor.take_back(client)) == [1, 2, 3, 4]
    assert closing == "closes" or retired.wait(10)


def test_an_exception_that_cannot_even_be_told_is_an_end() -> None:
    good, data = perform(_raise_the_unspeakable, b"")
    error, told = pickle.loads(data)
    assert not good and isinstance(error, RemoteError) and "Unspeakable" in str(error) and "_raise_the_un" in told


class Unspeakable(Exception):
    """Can be neither pickled nor printed."""

    def __str__(self) -> str:
        raise RuntimeError("cannot be printed")

    def __reduce__(self) -> str:
        raise RuntimeError("cannot be pickled")


def _raise_the_unspeakable(_: bytes) -> None:
    raise Unspeakable


def _wait_for_idle(executor: Executor, begun: Callable[[], bool]) -> None:
    with executor._changed:
        assert executor._changed.wait_for(lambda: begun() and not executor._running, 60)
