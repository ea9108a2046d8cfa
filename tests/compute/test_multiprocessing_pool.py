"""The standard library's `multiprocessing.Pool` on every backend: its beginning, its end and its workers."""

import atexit
import gc
import itertools
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from multiprocessing.pool import MaybeEncodingError  # type: ignore[attr-defined]
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from conftest import ROOT, alive, command_line, wait_until
from pool_tasks import fail_on, note, power, square, touch
from pools import local_fixture, pool_fixture, workers_fixture  # noqa: F401

from paddock.algos.pool.protocol import PoolError, WorkerLost
from paddock.algos.pool.script import UNGUARDED_EXIT_CODE
from paddock.algos.pool.serial import SerialPool
from paddock.compute import Pool
from paddock.compute.processes.results import ResultThread
from paddock.envs.errors import ConfigError

initialized: list[int] = []  # in a worker: what its initializer was given
left_open: list[Any] = []  # in a worker: a file that its end closes


def nap(x: int) -> int:
    time.sleep(0.001)
    return x


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


def die_on_two(x: int) -> int:
    if x == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def fail_sometimes(folder: str, x: int) -> int:
    """One time in twenty it raises, and then perhaps again, decided by the task's own seed."""
    file = Path(folder, str(x))
    attempt = len(file.read_text()) if file.exists() else 0
    touch(str(file))
    chance = random.Random(x)
    if [chance.random() for _ in range(attempt + 1)][attempt] < 0.05:
        raise OSError("out of luck")
    return x * x


class Unpicklable:
    def __reduce__(self) -> Any:
        raise RuntimeError("cannot be pickled")


class Unreadable(Exception):
    """Cannot be made again from what is pickled of it."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__("unreadable")


def raise_unreadable(_: Any) -> None:
    raise Unreadable(1, 2)


class Token:
    pass


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


def test_an_exception_that_cannot_be_read_again_is_still_an_error(local: Pool) -> None:
    with pytest.raises(Exception, match="unreadable"):
        local.apply(raise_unreadable, (0,))


def test_functions_that_cannot_be_imported_travel(local: Pool) -> None:
    offset = 3
    assert local.map(lambda x: x + offset, range(3)) == [3, 4, 5]
    assert local.apply(local.apply(lambda: lambda x: x + 1), (1,)) == 2


def test_a_broadcast_may_be_an_argument(pool: Pool, workers: Any) -> None:
    handle = workers.broadcast(10)
    assert pool.apply(add, (handle, 1)) == 11
    assert pool.map(partial(add, handle), range(3)) == [10, 11, 12]


def test_arguments_and_values_are_let_go(local: Pool) -> None:
    tokens = [Token() for _ in range(10)]
    watched = [weakref.ref(token) for token in tokens]
    values = [weakref.ref(value) for value in local.map(same, tokens)]
    del tokens
    wait_until(lambda: gc.collect() >= 0 and not any(ref() for ref in (*watched, *values)), 10)


# The end


def test_a_closed_pool_takes_no_more(pool: Pool) -> None:
    with pytest.raises(ValueError, match="still running"):
        pool.join()
    pool.close()
    pool.close()
    pool.join()
    maps: list[Callable[..., Any]] = [pool.map, pool.map_async, pool.imap, pool.imap_unordered]
    maps += [pool.starmap, pool.starmap_async]
    calls: list[Callable[..., Any]] = [pool.apply, pool.apply_async, *(partial(call, iterable=[1]) for call in maps)]
    for call in calls:
        with pytest.raises(ValueError, match="Pool not running"):
            call(square)
    with pytest.raises(ValueError, match="Pool not running"), pool:
        pass


def test_join_waits_for_all_that_was_asked_for(pool: Pool, tmp_path: Path) -> None:
    trace = str(tmp_path / "trace")
    results = [pool.apply_async(note, (trace, x)) for x in range(10)]
    unread = pool.imap(partial(note, trace), (x for x in range(100)), 3)
    pool.close()
    pool.join()
    assert [result.get(0) for result in results] == list(range(10))
    assert Path(trace).stat().st_size == 110
    assert list(unread) == list(range(100))


def test_leaving_the_block_terminates(workers: Any) -> None:
    with Pool(compute=workers) as pool:
        assert pool.map(square, range(3)) == [0, 1, 4]
    pool.join()
    pool.terminate()
    with pytest.raises(ValueError, match="Pool not running"):
        pool.map(square, [1])


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
    waits: list[Callable[[float], Any]] = [result.get, results.next]
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


def test_a_pool_that_is_forgotten_warns_and_lets_go(workers: Any) -> None:
    pool = Pool(compute=workers)
    thread = pool._thread
    with pytest.warns(ResourceWarning, match="unclosed running multiprocessing pool"):
        del pool
        gc.collect()
    thread.join(60)
    assert not thread.is_alive()


def test_a_pool_whose_results_are_awaited_is_not_forgotten(workers: Any) -> None:
    result = Pool(compute=workers).map_async(nap, range(100), chunksize=1)
    gc.collect()
    assert result.get(60) == list(range(100))


def test_a_pool_does_not_travel(pool: Pool) -> None:
    with pytest.raises(NotImplementedError, match="cannot be passed between processes"):
        pickle.dumps(pool)


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


def test_a_program_that_ends_meanwhile_waits_for_the_workers_of_a_closed_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    at_exit: dict[Any, None] = {}
    waits: list[Any] = []
    # Of which the thread of a pool that was forgotten before may be taken out, too.
    registry = SimpleNamespace(register=at_exit.setdefault, unregister=lambda call: at_exit.pop(call, None))
    monkeypatch.setattr("paddock.compute.processes.results.atexit", registry)
    thread = ResultThread(partial(SerialPool().open_batch, square), {}, lambda: waits.extend(at_exit))
    thread.start()
    thread.close()
    thread.join(20)
    assert waits == [thread.let_go] and not at_exit


def test_workers_are_waited_for_though_ctrl_c_has_interrupted_that_once() -> None:
    """Or Dask would end them, too, as the program ends, and say that it could not."""
    released, gone = threading.Event(), list[bool]()
    thread = ResultThread(partial(SerialPool().open_batch, square), {}, lambda: gone.append(released.wait(20)))
    thread.start()
    thread.terminate()
    with pytest.raises(KeyboardInterrupt):
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        thread.join(20)
    threading.Timer(0.1, released.set).start()
    thread.join(20)
    assert gone == [True]


# Opening


@pytest.mark.parametrize("processes", [0, -1])
def test_there_is_one_process_at_least(processes: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Pool(processes)


def test_processes_is_the_number_of_workers() -> None:
    with Pool(2, compute="local") as pool:
        assert len(set(pool.map(pid, range(40), 1))) == 2
        assert "state=RUN pool_size=2" in repr(pool)


@pytest.mark.parametrize("tasks", [0, -1, 0.5, "12"])
def test_maxtasksperchild_is_a_positive_whole_number(tasks: Any) -> None:
    with pytest.raises(ValueError, match="maxtasksperchild must be a positive int or None"):
        Pool(3, maxtasksperchild=tasks)


def test_what_is_asked_for_is_checked_before_anything_starts(workers: Any) -> None:
    with pytest.raises(TypeError, match="initializer must be a callable"):
        Pool(initializer=3)  # type: ignore[arg-type]
    for settings in ({"retry_errors": None}, {"retry_errors": -1}, {"needs": 2}, {"compute": 3}, {"compute": Pool}):
        with pytest.raises(ConfigError, match=f"^{min(settings)}=.*"):
            Pool(1, **settings)
    with pytest.raises(ConfigError, match="did you mean 'local'"):
        Pool(compute="lcal")
    with pytest.raises(ConfigError, match=r"compute.adress is not a key of compute; did you mean 'address'"):
        Pool(compute="dask", adress="tcp://127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"compute.retries='3' has the wrong type"):
        Pool(retries="3")
    with pytest.raises(ConfigError, match="an open pool, which takes no retries="):
        Pool(compute=workers, retries=3)
    with pytest.raises(RuntimeError, match="cannot be pickled"):
        Pool(initializer=initialize, initargs=(Unpicklable(),), compute=workers)
    with pytest.raises(PoolError, match="does not answer"):
        Pool(compute="dask", address="tcp://127.0.0.1:1")


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


def test_a_replaced_process_is_initialized_too_and_ends_in_order(tmp_path: Path) -> None:
    with Pool(1, open_file, (str(tmp_path),), maxtasksperchild=2, compute="local") as pool:
        answers = pool.map(write, range(6), 1)
        pool.close()
        pool.join()
    assert len({process for process, _ in answers}) == 3
    assert all(given == [8] for _, given in answers)
    assert sorted(file.read_text() for file in tmp_path.iterdir()) == ["0\n1\n", "2\n3\n", "4\n5\n"]


def test_an_initializer_that_raises_is_the_error_of_the_tasks(workers: Any) -> None:
    with Pool(initializer=refuse, compute=workers) as pool:
        for call in (lambda: pool.apply(square, (1,)), lambda: pool.map(square, range(9))):
            with pytest.raises(LookupError, match="this host lacks the data") as caught:
                call()
            assert "in refuse" in str(caught.value.__cause__)


def test_a_worker_is_replaced_after_its_tasks() -> None:
    with Pool(2, maxtasksperchild=3, compute="local") as pool:
        processes = [result.get(120) for result in [pool.apply_async(pid, (x,)) for x in range(18)]]
    assert all(processes.count(process) <= 3 for process in processes)
    assert len(set(processes)) >= 6


def test_a_lost_workers_task_runs_again_and_the_worker_is_replaced(local: Pool, workers: Any, tmp_path: Path) -> None:
    ends = (signal.raise_signal, signal.SIGKILL), (os._exit, UNGUARDED_EXIT_CODE)  # which a task may have, too
    calls: dict[str, Any] = {"map": local.map, "imap": local.imap}
    for name, (end, number) in zip(calls, ends, strict=True):
        task = partial(end_on_two, partial(end, number), str(tmp_path / name))
        assert list(calls[name](task, range(8), 1)) == list(range(8))
        assert (tmp_path / name).exists()
        wait_until(lambda: workers.size == 3)


def test_a_task_that_kills_every_worker_is_lost_and_the_others_are_not(local: Pool) -> None:
    results = [local.apply_async(die_on_two, (x,)) for x in range(6)]
    with pytest.raises(WorkerLost, match="lost its worker"):
        results[2].get(120)
    assert [result.get(120) for k, result in enumerate(results) if k != 2] == [0, 1, 3, 4, 5]


# Fiber's own facts


def test_five_thousand_calls_of_a_millisecond_on_five_workers(capsys: pytest.CaptureFixture[str]) -> None:
    with Pool(5, compute="local") as pool:
        pool.map(nap, range(5))
        started = time.monotonic()
        results = [pool.apply_async(nap, (x,)) for x in range(5000)]
        assert [result.get(120) for result in results] == list(range(5000))
        seconds = time.monotonic() - started
    with capsys.disabled():
        print(f" {seconds:.2f} s, of which 1 s is the tasks' own")
    assert seconds < 20


@pytest.mark.parametrize("method", ["map", "imap_unordered", "apply_async"])
def test_three_hundred_tasks_that_fail_at_random_give_the_exact_result(
    method: str, workers: Any, tmp_path: Path
) -> None:
    task = partial(fail_sometimes, str(tmp_path))
    with Pool(compute=workers, retry_errors=3) as pool:
        if method == "apply_async":
            values = [result.get(120) for result in [pool.apply_async(task, (x,)) for x in range(300)]]
        else:
            values = sorted(getattr(pool, method)(task, range(300)))
    assert values == [x * x for x in range(300)]
    attempts = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert attempts == sum(_attempts(x) for x in range(300)) > 300


def test_an_error_that_always_happens_reaches_the_caller(workers: Any) -> None:
    with Pool(compute=workers, retry_errors=2) as pool, pytest.raises(ValueError, match="1"):
        pool.map(partial(fail_on, (1,)), range(3))


def test_two_threads_may_use_one_pool(local: Pool) -> None:
    found: dict[int, list[int]] = {}

    def work(k: int) -> None:
        found[k] = [result.get(60) for result in [local.apply_async(power, (x, k)) for x in range(200)]]

    threads = [threading.Thread(target=work, args=(k,)) for k in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {k: [x**k for x in range(200)] for k in (1, 2, 3)}


def _attempts(x: int) -> int:
    chance = random.Random(x)
    return next(count for count in itertools.count(1) if chance.random() >= 0.05)


if __name__ == "__main__":
    sys.modules[Path(__file__).stem] = sys.modules["__main__"]  # which pytest then takes for the module
    sys.exit(pytest.main([__file__, *sys.argv[1:]]))
