"""Calls of the standard library's `multiprocessing.Pool` on every backend: apply, maps, iterators and callbacks."""

import dis
import itertools
import multiprocessing.pool
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.pool import RemoteTraceback  # type: ignore[attr-defined]
from pathlib import Path
from typing import Any

import pytest
from conftest import wait_until
from pool_tasks import fail_on, note, power, square, touch
from pools import local_fixture, pool_fixture, workers_fixture  # noqa: F401

from paddock.algos.pool.protocol import Done
from paddock.algos.pool.serial import SerialPool
from paddock.compute import Pool


def exhaust_after(count: int) -> Iterator[int]:
    yield from range(count)
    raise KeyError("exhausted")


def await_file(path: str) -> str:
    wait_until(Path(path).exists, 60)
    return path


def leave(_: Any) -> None:
    sys.exit(3)


# Calls


def test_apply_passes_positional_and_keyword_arguments(pool: Pool) -> None:
    assert pool.apply(power, (3,)) == 9
    assert pool.apply(power, (), {"base": 2, "exponent": 5}) == 32
    assert pool.apply(power, [3, 3]) == 27


def test_a_result_is_ready_and_successful_or_not(pool: Pool) -> None:
    good, bad = pool.apply_async(square, (7,)), pool.apply_async(fail_on, ((1,), 1))
    good.wait()
    bad.wait()
    assert good.ready() and good.successful() and good.get() == 49 == good.get()
    assert bad.ready() and not bad.successful()
    with pytest.raises(ValueError, match="1"):
        bad.get()


def test_a_result_that_has_not_come_says_so(local: Pool, tmp_path: Path) -> None:
    result = local.apply_async(await_file, (str(tmp_path / "go"),))
    assert not result.ready()
    with pytest.raises(ValueError, match="not ready"):
        result.successful()
    with pytest.raises(multiprocessing.TimeoutError):
        result.get(timeout=0.01)
    touch(str(tmp_path / "go"))
    assert result.get(timeout=60) == str(tmp_path / "go")


def test_an_exception_comes_with_the_workers_traceback(local: Pool) -> None:
    with pytest.raises(ValueError) as caught:
        local.apply(fail_on, ((3,), 3))
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    assert "raise ValueError(x)" in str(caught.value.__cause__)


def test_an_exit_in_a_task_is_its_error_and_the_pool_goes_on(local: Pool) -> None:
    with pytest.raises(SystemExit, match="3"):
        local.apply(leave, (0,))
    assert local.apply(square, (2,)) == 4


# Maps


@pytest.mark.parametrize("chunksize", [None, 1, 7, 100])
def test_map_keeps_the_order(pool: Pool, chunksize: int | None) -> None:
    assert pool.map(square, range(50), chunksize) == [x * x for x in range(50)]
    assert pool.map_async(square, iter(range(50)), chunksize).get() == [x * x for x in range(50)]


@pytest.mark.parametrize("chunksize", [None, 1, 7])
def test_starmap_spreads_the_arguments(pool: Pool, chunksize: int | None) -> None:
    pairs = [(x, 3) for x in range(20)]
    assert pool.starmap(power, pairs, chunksize) == [x**3 for x in range(20)]
    assert pool.starmap_async(power, pairs, chunksize).get() == [x**3 for x in range(20)]


class Limited(SerialPool):
    task_timeout_s: Any = 0.5


@pytest.mark.parametrize(
    ("workers", "options", "chunks"),
    [(SerialPool(), {}, 22), (SerialPool(), {"retry_errors": 1}, 64), (Limited(), {}, 64)],  # else 64 // 32 + 1 items
)
def test_what_is_run_again_or_given_up_by_default_is_one_item(
    workers: SerialPool, options: Any, chunks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Pool(compute=workers, **options) as pool:
        put, calls = pool._thread.put, []

        def count(*given: Any) -> None:
            calls.append(given)
            put(*given)

        monkeypatch.setattr(pool._thread, "put", count)
        assert pool.map(square, range(64)) == [x * x for x in range(64)]
        assert len(calls) == chunks
        assert pool.map(square, range(64), 32) == [x * x for x in range(64)]
        assert len(calls) == chunks + 2


def test_no_items_no_values(pool: Pool) -> None:
    assert pool.map(square, []) == [] == pool.starmap(power, [], chunksize=3)
    assert list(pool.imap(square, [])) == [] == list(pool.imap_unordered(square, []))
    heard: list[Any] = []
    pool.map_async(square, [], callback=heard.append).wait()
    assert heard == [[]]


def test_map_raises_the_first_failure_after_everything_has_ended(pool: Pool, tmp_path: Path) -> None:
    trace = str(tmp_path / "trace")
    with pytest.raises(ValueError, match="3"):
        pool.map(partial(fail_on, (11, 3, 7)), range(12), chunksize=1)
    result = pool.map_async(partial(note, trace), range(30), chunksize=4)
    assert result.get() == list(range(30)) and Path(trace).stat().st_size == 30


def test_map_raises_the_iterables_own_exception_at_the_call(pool: Pool) -> None:
    methods: list[Callable[..., Any]] = [pool.map, pool.map_async, pool.starmap]
    for method in methods:
        with pytest.raises(KeyError, match="exhausted") as caught:
            method(square, exhaust_after(3))
        assert caught.value.__cause__ is None


@pytest.mark.parametrize("chunksize", [0, -1])
def test_chunks_hold_one_item_at_least(pool: Pool, chunksize: int) -> None:
    methods: list[Callable[..., Any]] = [pool.imap, pool.imap_unordered, pool.map]
    for method in methods:
        with pytest.raises(ValueError, match=r"Chunksize must be 1\+"):
            method(square, range(3), chunksize)


# Iterators


@pytest.mark.parametrize("chunksize", [1, 4, 100])
def test_imap_keeps_the_order_and_imap_unordered_keeps_the_items(pool: Pool, chunksize: int) -> None:
    results = pool.imap(square, iter(range(30)), chunksize)
    assert iter(results) is results
    assert [next(results) for _ in range(30)] == [x * x for x in range(30)]
    with pytest.raises(StopIteration):
        next(results)
    assert sorted(pool.imap_unordered(square, range(30), chunksize)) == [x * x for x in range(30)]


def test_imap_gives_the_items_before_its_iterable_raised(pool: Pool) -> None:
    for count, chunksize, given in ((0, 1, 0), (3, 1, 3), (7, 2, 6), (7, 4, 4)):
        results = pool.imap(square, exhaust_after(count), chunksize)
        assert [next(results) for _ in range(given)] == [x * x for x in range(given)]
        with pytest.raises(KeyError, match="exhausted"):
            next(results)
        assert list(results) == []


def test_imap_goes_on_after_an_item_that_raised(pool: Pool) -> None:
    results = pool.imap(partial(fail_on, (1,)), range(3))
    assert next(results) == 0
    with pytest.raises(ValueError, match="1"):
        next(results)
    assert list(results) == [2]


def test_imap_takes_an_endless_iterable(pool: Pool) -> None:
    assert list(itertools.islice(pool.imap(square, itertools.count()), 100)) == [x * x for x in range(100)]
    assert len(set(itertools.islice(pool.imap_unordered(square, itertools.count()), 100))) == 100


def test_an_iterator_waits_no_longer_than_it_may(local: Pool, tmp_path: Path) -> None:
    go = str(tmp_path / "go")
    results = local.imap(await_file, [go])
    with pytest.raises(multiprocessing.TimeoutError):
        results.next(timeout=0.01)
    touch(go)
    assert results.next(timeout=60) == go


def test_imap_unordered_gives_first_what_comes_first(local: Pool, tmp_path: Path) -> None:
    done, go = str(tmp_path / "done"), str(tmp_path / "go")
    touch(done)
    results = local.imap_unordered(await_file, [go, done])
    assert next(results) == done
    touch(go)
    assert next(results) == go


# Callbacks


def test_a_callback_is_called_once_before_the_result_is_ready_in_a_thread_of_the_pool(pool: Pool) -> None:
    heard: list[Any] = []
    failed: list[Any] = []

    def hear(value: Any) -> None:
        heard.append((value, threading.current_thread().name))

    pool.apply_async(square, (3,), callback=hear, error_callback=failed.append).wait()
    pool.map_async(square, range(9), callback=hear, error_callback=failed.append).wait()
    pool.starmap_async(power, [(2, 3)], callback=hear).wait()
    assert heard == [(value, "Pool results") for value in (9, [x * x for x in range(9)], [8])]
    pool.apply_async(fail_on, ((1,), 1), callback=hear, error_callback=failed.append).wait()
    pool.map_async(partial(fail_on, (1,)), range(3), callback=hear, error_callback=failed.append).wait()
    assert len(heard) == 3 and [str(error) for error in failed] == ["1", "1"]


def test_callbacks_come_in_the_order_of_completion(local: Pool, tmp_path: Path) -> None:
    heard: list[str] = []
    go, done = str(tmp_path / "go"), str(tmp_path / "done")
    touch(done)
    slow = local.apply_async(await_file, (go,), callback=heard.append)
    local.apply_async(await_file, (done,), callback=heard.append).wait(60)
    touch(go)
    slow.wait(60)
    assert heard == [done, go]


def test_a_callback_that_raises_harms_no_other(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    result = pool.apply_async(square, (3,), callback=lambda value: 1 // 0)
    assert result.get(60) == 9
    assert "ZeroDivisionError" in caplog.text
    assert pool.apply_async(square, (3,), callback=sys.exit).get(60) == 9
    heard: list[int] = []
    pool.apply_async(square, (4,), callback=heard.append).wait()
    assert heard == [16]


def test_a_result_that_was_interrupted_keeps_no_other_from_its_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As by Ctrl-C when the last call was put, and before anybody has the result."""
    told: list[Any] = []
    delivered: list[Any] = []

    class Batch:
        def put(self, task: Any) -> int:
            delivered.append(task)
            return len(delivered) - 1

        def cancel(self) -> None: ...

    class Workers(SerialPool):
        def open_batch(self, fn: Any, deliver: Any, **_: Any) -> Any:
            told.append(deliver)
            return Batch()

    pool = Pool(compute=Workers())
    put = pool._thread.put

    def interrupt_after(*given: Any) -> None:
        put(*given)
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as interrupted, pytest.raises(KeyboardInterrupt):
        interrupted.setattr(pool._thread, "put", interrupt_after)
        pool.apply_async(square, (1,))
    result = pool.apply_async(square, (2,))
    told[0]([lambda: Done(0, 1), lambda: Done(1, 4)])
    assert result.get(10) == 4
    assert "could not be handled" not in caplog.text
    pool.terminate()


@pytest.mark.parametrize("way", ["apply_async", "map_async", "imap"])
def test_a_call_interrupted_at_any_moment_keeps_no_pool_from_its_end(way: str) -> None:
    for moment in itertools.count(1):
        pool = Pool(compute="serial")
        if not interrupted(lambda: getattr(pool, way)(square, [3]), moment):  # noqa: B023
            assert moment > 10
            break
        interrupted(pool.close, moment)
        pool.close()
        pool._thread.join(20)
        assert not pool._thread.is_alive(), f"it waits for ever for what was interrupted at moment {moment}"


def test_a_pool_ends_though_no_thread_could_be_started_for_an_iterator(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool = Pool(compute="serial")
    with monkeypatch.context() as full, pytest.raises(RuntimeError, match="new thread"):
        full.setattr(threading.Thread, "start", start)
        pool.imap(square, [3])
    pool.close()
    pool._thread.join(20)
    assert not pool._thread.is_alive()


def test_an_iterator_interrupted_at_any_moment_goes_on() -> None:
    with Pool(compute="serial") as pool:
        for moment in itertools.count(1):
            results, heard = pool.imap(square, range(6), chunksize=2), list[int]()
            wait_until(lambda: results._arrivals == 3, 20)  # noqa: B023
            if not interrupted(lambda: heard.extend(iter(results.next, None)), moment, threading):  # noqa: B023
                break
            heard += results
            assert heard == sorted(set(heard)) and len(heard) >= 3
        assert moment > 10


def interrupted(act: Callable[[], object], moment: int, *modules: Any) -> bool:
    """Raise KeyboardInterrupt at a moment in the pool's own code, and modules', at which Python looks for signals.

    Returns:
        whether there were so many of them: after calls and jumps back, and where functions begin.
    """
    files = {sys.modules[f"paddock.compute.processes.{name}"].__file__ for name in ("pool", "results")}
    files |= {module.__file__ for module in (multiprocessing.pool, *modules)}
    last: dict[Any, str] = {}
    seen = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal seen
        if frame.f_code.co_filename not in files:
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        looks = event == "call" or last.get(frame, "").startswith(("CALL", "JUMP_BACKWARD"))
        if event == "opcode":
            last[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
        if looks and event in ("call", "opcode"):
            seen += 1
            if seen == moment:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_a_callback_may_use_the_pool(pool: Pool) -> None:
    later: list[Any] = []
    pool.apply_async(square, (3,), callback=lambda value: later.append(pool.apply_async(square, (value,)))).wait()
    assert later[0].get(60) == 81


def test_a_task_in_this_process_may_use_its_pool() -> None:
    with Pool(compute="serial") as pool:
        assert pool.apply_async(lambda: pool.apply(square, (3,))).get(60) == 9
