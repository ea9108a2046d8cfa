"""What runs tasks in a worker process: whatever it takes ends there or is given back."""

import asyncio
import faulthandler
import gc
import os
import pickle
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT, wait_until
from distributed.comm import CommClosedError

from paddock.algos.pool import driver as driver_module
from paddock.algos.pool import executor as executor_module
from paddock.algos.pool import worker as worker_module
from paddock.algos.pool.broadcast import Broadcast, collecting
from paddock.algos.pool.driver import TIMEOUT_EXIT_CODE, DriverConnection
from paddock.algos.pool.executor import UNFIT, Executor, Job, perform
from paddock.algos.pool.protocol import RemoteError
from paddock.algos.pool.serial import SerialPool
from paddock.algos.pool.worker import Counter


class Told:
    """A client that keeps what it is told."""

    waits = True

    def __init__(self) -> None:
        self.ended_tasks: list[int] = []

    def ended(self, task: int, seconds: float, good: bool, data: bytes, last: bool) -> None:
        self.ended_tasks.append(task)


def test_each_thread_lets_go_of_what_it_keeps_once_nobody_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    rested: list[int] = []
    monkeypatch.setattr(executor_module, "_at_rest", [lambda: rested.append(threading.get_ident())])
    executor, ended, may_end = Executor(2, 1.0, 0, lambda: None), Told(), threading.Event()
    executor.add(Job(ended, lambda _: may_end.wait(10), deque([(0, b"")]), 1, 0.0, 0))
    executor.rest()
    wait_until(lambda: rested, 10)
    assert len(rested) == 1 and not ended.ended_tasks  # the other has something to do
    may_end.set()
    wait_until(lambda: len(rested) == 2, 10)
    assert len(set(rested)) == 2 and ended.ended_tasks == [0]
    executor.add(Job(ended, lambda _: None, deque([(1, b"")]), 1, 0.0, 0))
    wait_until(lambda: ended.ended_tasks == [0, 1], 10)


def test_a_pool_that_is_this_process_lets_go_of_what_its_tasks_kept_once_it_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rested: list[int] = []
    monkeypatch.setattr(executor_module, "_at_rest", [lambda: 1 / 0, lambda: rested.append(threading.get_ident())])
    SerialPool().close()
    assert rested == [threading.get_ident()]


@pytest.mark.parametrize("how", ["hangs", "fails"])
def test_a_thread_that_cannot_let_go_of_what_it_keeps_holds_up_no_task(
    how: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    go_on, ended = threading.Event(), Told()

    def let_go() -> None:
        if how == "fails":
            raise OSError("its process has gone")
        go_on.wait(30)

    monkeypatch.setattr(executor_module, "_at_rest", [let_go])
    monkeypatch.setattr(executor_module, "REST_S", 0.05)
    executor = Executor(1, 1.0, 0, lambda: None)
    executor.rest()
    wait_until(lambda: "let go of what it kept" in caplog.text, 10)
    executor.add(Job(ended, lambda _: None, deque([(0, b"")]), 1, 0.0, 0))
    wait_until(lambda: ended.ended_tasks == [0], 10)
    go_on.set()


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


def _refuse() -> None:
    raise ValueError("not here")


def _lose_streams() -> None:
    sys.stdout = None
    sys.stderr.close()
    raise ValueError


FORKED = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
ENDINGS = pytest.mark.parametrize(
    ("ending", "code", "said"),
    [
        (list, 0, ""),
        (partial(sys.exit, 3), 3, ""),
        (partial(sys.exit, "the reason"), 1, "the reason\n"),
        (_refuse, 1, "ValueError: not here\n"),
        (_lose_streams, 1, ""),
    ],
    ids=["returns", "exits", "says why", "raises", "without streams"],
)


@FORKED
@ENDINGS
def test_a_fork_that_leaves_its_task_ends_as_a_program_would_and_runs_no_other(
    ending: Callable[[], Any], code: int, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    executor, here, codes = Executor(1, 1.0, 0, lambda: None), os.getpid(), list[int]()

    def run(data: bytes) -> None:
        if os.getpid() != here:
            os._exit(9)
        if data == b"forks":
            fork = os.fork()
            if not fork:
                ending()
            else:
                codes.append(os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]))

    client = Told()
    executor.add(Job(client, run, deque([(0, b"forks"), (1, b"")]), 1, 0.0, 0))
    _wait_for_idle(executor, lambda: client.ended_tasks == [0, 1])
    assert codes == [code] and capfd.readouterr().err.endswith(said)


@FORKED
@ENDINGS
def test_a_fork_that_leaves_a_task_of_the_driver_is_no_second_driver(
    ending: Callable[[], Any], code: int, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    here = os.getpid()

    def run(_: Any) -> Any:
        fork = os.fork()
        return os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]) if fork else ending()

    (done,) = SerialPool().imap_unordered(run, [None])
    if os.getpid() != here:
        os._exit(9)
    assert done.value == code and capfd.readouterr().err.endswith(said)


def test_a_task_that_needs_all_of_the_memory_runs_after_others_that_needed_a_part() -> None:
    client, begun, may_end = Told(), threading.Barrier(4), [threading.Event() for _ in range(3)]
    executor = Executor(3, 2.0, 0, lambda: None)

    def run(data: bytes) -> None:
        begun.wait(10)
        may_end[data[0]].wait(10)

    # 2 less 0.1, 0.3 and 0.7, and these added again, is 2 - 2e-16.
    for number, memory_gb in enumerate((0.1, 0.3, 0.7)):
        executor.add(Job(client, run, deque([(number, bytes([number]))]), 1, memory_gb, 0))
    begun.wait(10)
    for left in (2, 1, 0):
        may_end[2 - left].set()
        with executor._changed:
            assert executor._changed.wait_for(lambda: len(executor._running) <= left, 10)  # noqa: B023
    executor.add(Job(client, lambda _: None, deque([(3, b"")]), 1, 2.0, 0))
    _wait_for_idle(executor, lambda: 3 in client.ended_tasks)


def test_a_task_runs_once_the_larger_one_before_it_was_taken_back() -> None:
    small, large, queued, may_end = Told(), Told(), threading.Event(), threading.Event()
    executor = Executor(2, 1.0, 0, lambda: None)
    executor.add(Job(small, lambda _: may_end.wait(30), deque([(0, b"")]), 1, 0.0, 0))
    executor.add(Job(small, lambda _: queued.wait(30), deque([(1, b"")]), 1, 0.0, 0))
    executor.add(Job(large, lambda _: None, deque([(2, b"")]), 2, 0.0, 0))
    executor.add(Job(small, lambda _: may_end.set(), deque([(3, b"")]), 1, 0.0, 0))
    queued.set()
    with executor._changed:
        assert executor._changed.wait_for(lambda: len(executor._running) == 1 and small.ended_tasks, 10)
    assert executor.take_back(large) == [2]
    _wait_for_idle(executor, lambda: sorted(small.ended_tasks) == [0, 1, 3])


@pytest.mark.parametrize("dropped", [False, True])
def test_an_object_is_closed_though_its_driver_went_while_a_call_waited_for_a_thread(dropped: bool) -> None:
    Closes.closed.clear()
    executor, loop, may_end = Executor(1, 1.0, 0, lambda: None), asyncio.new_event_loop(), threading.Event()
    driver = DriverConnection(None, executor, loop, None)
    driver._make("object", pickle.dumps(Closes))
    driver._call("object", 0, pickle.dumps(("work", (), {})), (1, 0.0, 0), None)
    _wait_for_idle(executor, lambda: bool(driver._ends))
    executor.add(Job(Told(), lambda _: may_end.wait(10), deque([(0, b"")]), 1, 0.0, 0))
    for number in (1, 2):
        driver._call("object", number, pickle.dumps(("work", (), {})), (1, 0.0, 0), None)
    if dropped:
        driver._drop("object")
    driver.abandon()
    may_end.set()
    assert Closes.closed.wait(10) and len(driver._ends) == 1
    loop.close()


def test_a_call_whose_turn_comes_as_its_worker_leaves_is_given_back() -> None:
    class Lock:
        """Has the worker leave once whoever ran a call has let go of it."""

        def __init__(self) -> None:
            self.lock = threading.Lock()

        def __enter__(self) -> None:
            self.lock.acquire()

        def __exit__(self, *_: object) -> None:
            self.lock.release()
            if threading.current_thread() is not threading.main_thread() and not left.is_set():
                left.set()
                executor.close()
                driver.leave()

    executor, loop, left = Executor(1, 1.0, 0, lambda: None), asyncio.new_event_loop(), threading.Event()
    driver, may_begin = DriverConnection(None, executor, loop, None), threading.Event()
    executor.add(Job(Told(), lambda _: may_begin.wait(10), deque([(0, b"")]), 1, 0.0, 0))
    driver._make("object", pickle.dumps(Closes))
    driver._residents["object"]._lock = Lock()  # type: ignore[assignment]
    for number in (1, 2):
        driver._call("object", number, pickle.dumps(("work", (), {})), (1, 0.0, 0), None)
    may_begin.set()
    _wait_for_idle(executor, left.is_set)
    loop.close()
    assert [rest for operation, *rest in driver._out if operation == "returned"] == [[[2]]]


def test_calls_that_a_dropped_object_has_not_begun_are_given_back() -> None:
    executor, loop = Executor(1, 1.0, 0, lambda: None), asyncio.new_event_loop()
    driver, kept = DriverConnection(None, executor, loop, None), Kept()
    driver._make("object", pickle.dumps(Kept))
    for number in (1, 2, 3):
        driver._call("object", number, pickle.dumps(("work", (), {})), (1, 0.0, 0), None)
    assert kept.begun.wait(10)
    driver._drop("object")
    executor.close()
    driver.leave()  # who retires waits for all that it has taken, and for a series that ends its process without end
    kept.may_end.set()
    _wait_for_idle(executor, lambda: bool(driver._ends))
    driver._flush()
    assert [rest for operation, *rest in driver._out if operation == "returned"] == [[[2, 3]], [[]]]
    assert driver._open == 0
    loop.close()


def test_the_next_call_of_an_object_begins_when_what_came_of_the_last_is_pickled() -> None:
    """Which may be a part of the object: with another thread free, half of it would be of before that call."""
    executor, loop = Executor(2, 1.0, 0, lambda: None), asyncio.new_event_loop()
    driver = DriverConnection(None, executor, loop, None)
    driver._make("object", pickle.dumps(Counts))
    for number in range(3):
        driver._call("object", number, pickle.dumps(("count", (), {})), (1, 0.0, 0), None)
    _wait_for_idle(executor, lambda: len(driver._ends) == 3)
    assert [pickle.loads(data) for _, _, _, data in driver._ends] == [[1, 1], [2, 2], [3, 3]]
    loop.close()


@pytest.mark.parametrize("called", [False, True])
def test_an_object_that_hangs_as_it_is_closed_holds_up_no_task_and_one_never_called_is_never_made(
    called: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(executor_module, "REST_S", 0.05 if called else 10.0)
    Hangs.made.clear()
    Hangs.may_close.clear()
    executor, loop, client = Executor(1, 1.0, 0, lambda: None), asyncio.new_event_loop(), Told()
    driver = DriverConnection(None, executor, loop, None)
    driver._make("object", pickle.dumps(Hangs))
    if called:
        driver._call("object", 0, pickle.dumps(("work", (), {})), (1, 0.0, 0), None)
        _wait_for_idle(executor, lambda: bool(driver._ends))
    driver._drop("object")
    executor.add(Job(client, lambda _: None, deque([(1, b"")]), 1, 0.0, 0))
    wait_until(lambda: client.ended_tasks == [1], 10)
    _wait_for_idle(executor, lambda: True)
    assert Hangs.made.is_set() == called == ("another one takes its place" in caplog.text)
    Hangs.may_close.set()
    loop.close()


class Counts:
    """An object that gives itself away, in two parts that are pickled one after the other."""

    def __init__(self) -> None:
        self.parts = [Part(self), Part(self)]
        self.value = 0

    def count(self) -> "list[Part]":
        self.value += 1
        return self.parts


class Part:
    """Is slowly pickled, as what its owner has counted."""

    def __init__(self, owner: Counts) -> None:
        self.owner = owner

    def __reduce__(self) -> tuple[type, tuple[int]]:
        value = self.owner.value
        time.sleep(0.05)
        return int, (value,)


class Hangs:
    """An object that does not come to an end where it is closed."""

    made, may_close = threading.Event(), threading.Event()

    def __init__(self) -> None:
        self.made.set()

    def work(self) -> None: ...

    def close(self) -> None:
        self.may_close.wait(30)


class Kept:
    """An object whose calls last until they may end."""

    begun, may_end = threading.Event(), threading.Event()

    def work(self) -> None:
        self.begun.set()
        self.may_end.wait(10)


class Closes:
    """An object that has to be closed."""

    closed = threading.Event()

    def work(self) -> None: ...

    def close(self) -> None:
        self.closed.set()


def test_no_task_is_to_blame_for_time_in_which_its_process_was_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a cluster suspends jobs, and takes them up an hour later: the clock goes on all the while.

    However many drivers a worker has, that time is taken off once, or a task would have an hour more for each.
    """
    executor, may_end, clock = Executor(1, 1.0, 0, lambda: None), threading.Event(), time.monotonic

    async def live() -> list[tuple[object, ...]]:
        driver, *others = (DriverConnection(None, executor, asyncio.get_running_loop(), None) for _ in range(3))
        for each in (driver, *others):
            each._limited = True
        executor.add(Job(driver, lambda _: may_end.wait(10), deque([(0, b"")]), 1, 0.0, 0, limit_s=60.0))
        living = [asyncio.ensure_future(each._live()) for each in (driver, *others)]
        await asyncio.sleep(0.05)
        stopped = clock()
        monkeypatch.setattr(time, "monotonic", lambda: clock() + 3600 * (clock() > stopped))
        await asyncio.sleep(0.25)
        for task in living:
            task.cancel()
        assert executor.overdue(driver) == [] and executor.stopped_s == pytest.approx(3600, abs=5)
        return driver._out

    monkeypatch.setattr(os, "_exit", lambda code: None)
    said = asyncio.run(live())
    may_end.set()
    assert [operation for operation, *_ in said] == ["alive"]


def test_a_tasks_limit_holds_though_its_driver_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or whoever comes next, such as the same run taken up again, would wait for its thread for ever."""
    executor, begun, may_end = Executor(1, 1.0, 0, lambda: None), threading.Event(), threading.Event()

    class Gone:
        """A connection that ends as soon as a task has begun."""

        async def read(self) -> None:
            await asyncio.to_thread(begun.wait, 10)
            raise CommClosedError

        def abort(self) -> None: ...

    def hang(_: bytes) -> None:
        begun.set()
        may_end.wait(10)

    async def go() -> int:
        codes: asyncio.Queue[int] = asyncio.Queue()
        monkeypatch.setattr(os, "_exit", codes.put_nowait)
        monkeypatch.setattr(driver_module, "ALIVE_S", 0.1)
        driver = DriverConnection(Gone(), executor, asyncio.get_running_loop(), None)
        driver._limited = True
        executor.add(Job(driver, hang, deque([(0, b"")]), 1, 0.0, 0, limit_s=0.2))
        with pytest.raises(CommClosedError):
            await driver.serve()
        driver.abandon()
        return await asyncio.wait_for(codes.get(), 10)

    assert asyncio.run(go()) == TIMEOUT_EXIT_CODE
    may_end.set()


class Shared:
    """A value that a driver broadcasts."""

    refs: list["weakref.ref[Any]"] = []  # noqa: RUF012
    may_end = threading.Event()


def look_at(shared: Broadcast[Shared]) -> None:
    Shared.refs.append(weakref.ref(shared.value))
    Shared.may_end.wait(10)


def test_what_a_driver_sent_is_kept_until_its_last_task_ends_and_then_by_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver_module, "ALIVE_S", 0.0)
    executor = Executor(1, 1.0, 0, lambda: None)

    async def go() -> "weakref.ref[DriverConnection]":
        driver = DriverConnection(None, executor, asyncio.get_running_loop(), None)
        function, shared = Broadcast(look_at), Broadcast(Shared())
        with collecting():
            task = pickle.dumps(shared)
        for broadcast in (function, shared):
            driver._value(broadcast.id, broadcast.data)
        driver._run(function.id, [(0, task)], (1, 0.0, 0), None, None)
        wait_until(lambda: Shared.refs, 10)
        driver.abandon()
        living = asyncio.ensure_future(driver._live())
        await asyncio.sleep(0)
        assert driver._values and not living.done()
        Shared.may_end.set()
        await asyncio.wait_for(living, 10)
        assert [ref() for ref in Shared.refs] == [None]  # though the garbage collector may not run for long
        return weakref.ref(driver)

    driver = asyncio.run(go())
    wait_until(lambda: gc.collect() >= 0 and driver() is None, 10)  # which the thread has let go of, too


def test_no_other_drivers_task_is_to_blame_for_one_that_is_overdue(monkeypatch: pytest.MonkeyPatch) -> None:
    executor, may_end = Executor(1, 1.0, 0, lambda: None), threading.Event()

    async def live() -> list[tuple[object, ...]]:
        codes: asyncio.Queue[int] = asyncio.Queue()
        monkeypatch.setattr(os, "_exit", codes.put_nowait)
        loop, drivers = asyncio.get_running_loop(), set[DriverConnection]()
        driver, other = (DriverConnection(None, executor, loop, None, drivers) for _ in range(2))
        drivers |= {driver, other}
        driver._limited = True
        executor.add(Job(driver, lambda _: may_end.wait(10), deque([(7, b"")]), 1, 0.0, 0, limit_s=0.0))
        living = asyncio.ensure_future(driver._live())
        await asyncio.wait_for(codes.get(), 10)
        living.cancel()
        return [*driver._out, *other._out]

    assert asyncio.run(live()) == [("overdue", [7]), ("overdue", [])]
    may_end.set()


def test_a_process_is_renewed_though_its_nanny_is_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: str) -> None:
        raise CommClosedError

    async def renew() -> int:
        codes: asyncio.Queue[int] = asyncio.Queue()
        monkeypatch.setattr(os, "_exit", codes.put_nowait)
        monkeypatch.setattr(faulthandler, "enable", lambda **_: None)
        monkeypatch.setattr(worker_module, "RENEWAL_S", 0.0)
        state, memory = SimpleNamespace(total_resources={}, nthreads=1), SimpleNamespace(memory_limit=None)
        await Counter(SimpleNamespace(state=state, memory_manager=memory, nanny="tcp://a:1", rpc=refuse))._renew()
        return await asyncio.wait_for(codes.get(), 10)

    assert asyncio.run(renew()) == 0


@pytest.mark.parametrize("kind", ["Unspeakable", "Unaskable"])
def test_an_exception_that_cannot_even_be_told_is_an_end(kind: str) -> None:
    good, data = perform(_raise_the_untold, kind.encode())
    error, told = pickle.loads(data)
    assert not good and "_raise_the_untold" in told
    # Python 3.12 asks an exception for its notes more carefully, so that it can be told whole.
    assert (isinstance(error, RemoteError) and kind in str(error)) or isinstance(error, Unaskable)


class Unspeakable(Exception):
    """Can be neither pickled nor printed."""

    def __str__(self) -> str:
        raise RuntimeError("cannot be printed")

    def __reduce__(self) -> str:
        raise RuntimeError("cannot be pickled")


class Unaskable(Exception):
    """Takes a question after any attribute for one after a key."""

    def __getattr__(self, name: str) -> str:
        return {"code": "3"}[name]


def _raise_the_untold(kind: bytes) -> None:
    raise {b"Unspeakable": Unspeakable, b"Unaskable": Unaskable}[kind]


def _wait_for_idle(executor: Executor, begun: Callable[[], bool]) -> None:
    with executor._changed:
        assert executor._changed.wait_for(lambda: begun() and not executor._running, 10)


class Untold(Exception):
    """Leaves its process where anybody asks for its words, or its pickle."""

    def __str__(self) -> str:
        raise SystemExit("of its words")

    def __reduce__(self) -> str:
        raise SystemExit("of its pickle")


def test_an_error_that_leaves_where_it_is_told_is_told_all_the_same() -> None:
    def run(_: bytes) -> None:
        raise Untold

    good, data = perform(run, b"")
    error, _ = pickle.loads(data)
    assert not good and isinstance(error, RemoteError) and "Untold" in str(error)


def test_an_error_that_nothing_can_tell_is_one_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(executor_module, "_in_words", fail)
    good, data = perform(fail, b"")
    error, _ = pickle.loads(data)
    assert not good and isinstance(error, RemoteError) and "no memory left" in str(error)


OUT_OF_MEMORY = """
import os, resource, sys, threading
from collections import deque
from paddock.algos.pool.executor import Executor, Job
from paddock.algos.pool.serial import SerialPool

def run(_):
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 20_000_000, resource.RLIM_INFINITY))
    kept = []
    while sys.argv[1] == "bytes":
        kept.append(bytes(1000))
    for size in (10**7, 10**6, 10**5, 10**4, 1000, 100):
        try:
            while True:
                kept.append(bytearray(size))
        except MemoryError:
            pass
    return kept

class Client:
    waits = True
    def ended(self, task, seconds, good, data, last):
        os._exit(1 if good else 0)

Executor(1, 1.0, 0, lambda: None).add(Job(Client(), run, deque([(0, b"")]), 1, 0.0, 0))
threading.Event().wait()
"""


@pytest.mark.parametrize("kind", ["bytes", "value"])
def test_a_task_for_which_there_is_no_memory_is_told_or_its_worker_ends(kind: str) -> None:
    """Its thread may not end alone: the task would run for ever, in a process that says it lives."""
    done = subprocess.run([sys.executable, "-c", OUT_OF_MEMORY, kind], cwd=ROOT, capture_output=True, timeout=60)
    ended = done.returncode == UNFIT and done.stderr.endswith(b"so the worker ends\n")
    assert done.returncode == 0 or ended, done
