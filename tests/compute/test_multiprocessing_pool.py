"""The standard library's `multiprocessing.Pool` on every backend: its beginning, its end and its workers."""

import atexit
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.pool import MaybeEncodingError  # type: ignore[attr-defined]
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import ROOT, alive, command_line, wait_until
from distributed import LocalCluster
from pool_tasks import fail_on, note, square, touch
from pools import local_fixture, pool_fixture, workers_fixture  # noqa: F401

from paddock.algos.pool.main_guard import UNGUARDED_EXIT_CODE
from paddock.algos.pool.protocol import PoolError
from paddock.compute import Pool
from paddock.envs.errors import ConfigError

initialized: list[int] = []  # in a worker: what its initializer was given
locks: list[Any] = []  # in a worker: what it shares with others
left_open: list[Any] = []  # in a worker: a file that its end closes


def pid(_: Any) -> int:
    time.sleep(0.01)
    return os.getpid()


def initialize(value: int) -> None:
    initialized.append(value)


def told(_: Any) -> tuple[int, list[int]]:
    time.sleep(0.01)
    return os.getpid(), list(initialized)


def open_file(folder: str) -> None:
    initialize(8)
    left_open.append(open(f"{folder}/{os.getpid()}", "w"))  # noqa: SIM115
    atexit.register(left_open[0].close)


def write(x: int) -> tuple[int, list[int]]:
    left_open[0].write(f"{x}\n")
    return told(x)


def told_slowly(task: Any) -> Any:
    time.sleep(0.05)  # so that every worker gets some
    return told(task)


def refuse() -> None:
    raise LookupError("this host lacks the data")


def add(handle: Any, x: int) -> int:
    return int(handle.value + x)


def end_on_two(end: Callable[[], object], marker: str, x: int) -> int:
    """End the worker that meets 2 first."""
    if x == 2 and not Path(marker).exists():
        touch(marker)
        end()
    return x


class Unpicklable:
    def __reduce__(self) -> Any:
        raise RuntimeError("cannot be pickled")


def same(x: Any) -> Any:
    return x


# What cannot travel


def test_a_task_that_cannot_be_pickled_is_its_own_error(local: Pool) -> None:
    for call in (
        lambda: local.apply(same, (Unpicklable(),)),
        lambda: local.map(same, [Unpicklable()] * 10),
        lambda: local.starmap(same, [(Unpicklable(),)]),
        lambda: next(local.imap(same, [Unpicklable()])),
        lambda: local.map(partial(fail_on, (Unpicklable(),)), [1]),
        lambda: next(local.imap(partial(fail_on, (Unpicklable(),)), [1])),
    ):
        with pytest.raises(RuntimeError, match="cannot be pickled"):
            call()
    results = local.imap(same, [1, Unpicklable(), 3])
    assert next(results) == 1
    with pytest.raises(RuntimeError, match="cannot be pickled"):
        next(results)
    assert next(results) == 3


def test_a_result_that_cannot_be_pickled_is_an_error_that_names_it(local: Pool) -> None:
    failed: list[BaseException] = []
    result = local.apply_async(threading.Lock, error_callback=failed.append)
    with pytest.raises(MaybeEncodingError, match="lock"):
        result.get(60)
    assert [type(error) for error in failed] == [MaybeEncodingError]


def test_functions_that_cannot_be_imported_travel(local: Pool) -> None:
    offset = 3
    assert local.map(lambda x: x + offset, range(3)) == [3, 4, 5]
    assert local.apply(local.apply(lambda: lambda x: x + 1), (1,)) == 2


def test_a_broadcast_may_be_an_argument(pool: Pool, workers: Any) -> None:
    handle = workers.broadcast(10)
    assert pool.apply(add, (handle, 1)) == 11
    assert pool.map(partial(add, handle), range(3)) == [10, 11, 12]


# Results


def test_imap_takes_an_endless_iterable_a_few_items_ahead(pool: Pool) -> None:
    taken = itertools.count()
    assert list(itertools.islice(pool.imap(square, taken), 100)) == [x * x for x in range(100)]
    assert next(taken) < 1000


def test_a_callback_that_raises_affects_no_other(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    result = pool.apply_async(square, (3,), callback=lambda value: 1 // 0)
    assert result.get(60) == 9 and "ZeroDivisionError" in caplog.text
    assert pool.apply_async(square, (3,), callback=sys.exit).get(60) == 9
    later: list[Any] = []
    pool.apply_async(square, (3,), callback=lambda value: later.append(pool.apply_async(square, (value,)))).wait()
    assert later[0].get(60) == 81


# The end


def test_join_waits_for_all_that_was_asked_for(pool: Pool, tmp_path: Path) -> None:
    trace = str(tmp_path / "trace")
    results = [pool.apply_async(note, (trace, x)) for x in range(10)]
    unread = pool.imap(partial(note, trace), (x for x in range(100)), 3)
    pool.close()
    pool.join()
    assert [result.get(0) for result in results] == list(range(10))
    assert Path(trace).stat().st_size == 110
    assert list(unread) == list(range(100))


def test_terminate_ends_running_tasks_and_drops_the_rest() -> None:
    before = set(psutil.Process().children(recursive=True))
    pool = Pool(2, compute="local")
    ours = set(psutil.Process().children(recursive=True)) - before
    result = pool.map_async(time.sleep, [300.0] * 1000, chunksize=1)
    results = pool.imap(time.sleep, [300.0] * 1000)
    started = time.monotonic()
    pool.terminate()
    pool.join()
    assert time.monotonic() - started < 30
    waits: list[Callable[[float], Any]] = [result.get, results.next]  # type: ignore[attr-defined]
    for wait in waits:
        with pytest.raises(PoolError, match="terminated"):
            wait(60)
    assert len(ours) >= 2
    wait_until(lambda: not any(alive(process) for process in ours if "spawn_main" in command_line(process)))


def test_a_shared_pool_stays_open(workers: Any) -> None:
    for end in (Pool.close, Pool.terminate):
        pool = Pool(compute=workers)
        assert pool.apply(square, (2,)) == 4
        end(pool)
        pool.join()
    assert [done.value for done in workers.imap_unordered(square, [3])] == [9]


SCRIPT = """
from paddock.compute import Pool

simulator = None

class Result:
    def __init__(self, value):
        self.value = value

def start(size):
    global simulator
    simulator = {"size": size, "steps": 0}

def step(x):
    simulator["steps"] += 1
    return Result((simulator["size"] + x, simulator["steps"]))

if __name__ == "__main__":
    with Pool(1, start, (10,), **SETTINGS) as pool:
        results = [*pool.map(step, range(2)), pool.apply(step, (2,))]
        assert all(type(result) is Result for result in results)
        print([result.value for result in results])
"""


def test_functions_of_a_script_share_globals_on_workers(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        settings = {"compute": "dask", "address": cluster.scheduler_address}
        script.write_text(SCRIPT.replace("SETTINGS", repr(settings)))
        done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    said = [line for line in done.stderr.splitlines() if "is not encrypted" not in line]
    assert (done.stdout, said) == ("[(10, 1), (11, 2), (12, 3)]\n", [])


def test_a_script_that_opens_a_pool_without_a_main_guard_is_one_line(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("from paddock.compute import Pool\nPool(2)\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("paddock: the script opens its Pool when") and done.stderr.count("\n") == 1


def test_a_program_ends_though_its_pool_is_open(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("""
from paddock.compute import Pool

class Holder:
    def __init__(self):
        self.pool = Pool(processes=1)

if __name__ == "__main__":
    holder = Holder()
    print(holder.pool.map(float, range(3)))
""")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[0.0, 1.0, 2.0]\n", "")


# Opening


def test_wrong_arguments_are_refused_before_anything_starts(workers: Any) -> None:
    for processes, tasks, initializer, error in [
        (0, 1, None, ValueError),
        (1, 0, None, ValueError),
        (1, 1, 3, TypeError),
    ]:
        with pytest.raises(error):
            Pool(processes, initializer, (), tasks)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"compute.adress is not a key of compute; did you mean 'address'"):
        Pool(compute="dask", adress="tcp://127.0.0.1:1")
    with pytest.raises(ConfigError, match="retries= cannot be changed in an open pool"):
        Pool(compute=workers, retries=3)
    with pytest.raises(RuntimeError, match="cannot be pickled"):
        Pool(initializer=initialize, initargs=(Unpicklable(),), compute=workers)


def test_processes_is_the_number_of_workers() -> None:
    with Pool(2, compute="local") as pool:
        assert len(set(pool.map(pid, range(40), 1))) == 2
        assert "state=RUN pool_size=2" in repr(pool)


def test_importing_the_class_brings_neither_dask_nor_hydra() -> None:
    heavy = "{'dask', 'distributed', 'hydra', 'torch'}"
    code = f"import sys; from paddock.compute import Pool; print({heavy} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# Worker processes


def test_an_initializer_runs_once_in_each_process_before_its_tasks(workers: Any) -> None:
    with Pool(initializer=initialize, initargs=(7,), compute=workers) as pool:
        answers = [*pool.map(told_slowly, range(30), 1), *pool.imap_unordered(told, range(30)), pool.apply(told, (0,))]
        assert len({process for process, _ in answers}) == 3
        assert all(given.count(7) == 1 for _, given in answers)


def test_an_initializer_runs_as_workers_start(workers: Any, tmp_path: Path) -> None:
    with Pool(initializer=open_file, initargs=(str(tmp_path),), compute=workers):
        wait_until(lambda: len(list(tmp_path.iterdir())) == 3)


def use(lock: Any) -> None:
    locks.append(lock)


def increment(path: Path) -> None:
    with locks[-1]:
        path.write_text(str(int(path.read_text()) + 1))


def test_a_lock_of_a_manager_is_shared_by_workers(workers: Any, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"Manager\(\)\.Lock\(\)"):
        Pool(initializer=use, initargs=(multiprocessing.Lock(),), compute=workers)
    (tmp_path / "count").write_text("0")
    with (
        multiprocessing.Manager() as manager,
        Pool(initializer=use, initargs=(manager.Lock(),), compute=workers) as pool,
    ):
        pool.map(increment, [tmp_path / "count"] * 60, 1)
    assert (tmp_path / "count").read_text() == "60"


def nested(depth: int) -> None:
    if depth == 0:
        raise KeyError("deep down")
    nested(depth - 1)


def test_an_exception_raised_deep_down_keeps_its_type(local: Pool) -> None:
    with pytest.raises(KeyError, match="deep down") as caught:
        local.apply(nested, (600,))
    assert "in nested" in str(caught.value.__cause__)


def interrupt_itself() -> bool:
    rung = threading.Event()
    signal.signal(signal.SIGALRM, lambda *_: rung.set())
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    return rung.wait(60)


def test_a_task_may_handle_signals(local: Pool) -> None:
    assert local.apply(interrupt_itself)


def test_a_replaced_process_is_initialized_too_and_ends_in_order(tmp_path: Path) -> None:
    with Pool(1, open_file, (str(tmp_path),), maxtasksperchild=2, compute="local") as pool:
        answers = pool.map(write, range(6), 1)
        pool.close()
        pool.join()
    assert len({process for process, _ in answers}) == 3
    assert all(given == [8] for _, given in answers)
    written = [file.read_text().split() for file in tmp_path.iterdir()]
    assert list(map(len, written)) == [2, 2, 2] and sorted(task for tasks in written for task in tasks) == list(
        "012345"
    )


def test_an_initializer_that_raises_is_the_error_of_the_tasks(workers: Any) -> None:
    with Pool(initializer=refuse, compute=workers) as pool:
        for call in (lambda: pool.apply(square, (1,)), lambda: pool.map(square, range(9))):
            with pytest.raises(LookupError, match="this host lacks the data") as caught:
                call()
            assert "in refuse" in str(caught.value.__cause__)


def test_a_lost_workers_task_runs_again_and_the_worker_is_replaced(local: Pool, workers: Any, tmp_path: Path) -> None:
    ends = (signal.raise_signal, signal.SIGKILL), (os._exit, UNGUARDED_EXIT_CODE)  # which a task may have, too
    calls: dict[str, Any] = {"map": local.map, "imap": local.imap}
    for name, (end, number) in zip(calls, ends, strict=True):
        task = partial(end_on_two, partial(end, number), str(tmp_path / name))
        assert list(calls[name](task, range(8), 1)) == list(range(8))
        assert (tmp_path / name).exists()
        wait_until(lambda: workers.size == 3)


# Fiber's own facts


def test_an_error_that_always_happens_reaches_the_caller(workers: Any) -> None:
    with Pool(compute=workers, retry_errors=2) as pool, pytest.raises(ValueError, match="1"):
        pool.map(partial(fail_on, (1,)), range(3))
