"""Threads of arithmetic: what plays elsewhere in a process changes nothing of them for the others."""

import ctypes
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import env_spec, wait_until
from threadpoolctl import threadpool_info, threadpool_limits

from paddock.algos.common import interrupts, threads
from paddock.algos.common.interrupts import Interrupted, Interrupts
from paddock.algos.common.threads import one_thread
from paddock.algos.learning import async_evaluation
from paddock.algos.learning.async_evaluation import AsyncEvaluation
from paddock.algos.learning.episode_metrics import spell_evaluation
from paddock.algos.learning.episodes import Episodes
from paddock.algos.networks.one_order import in_one_order
from paddock.algos.pool.protocol import Done
from paddock.algos.pool.serial import SerialPool
from paddock.envs.native import library

ARCHITECTURE = SimpleNamespace(is_dense=False, head=None, inputs=None)
CONFIG: Any = SimpleNamespace(
    env=SimpleNamespace(metrics=(), limit=None),
    vec=None,
    architecture=ARCHITECTURE,
    parts=SimpleNamespace(single=True, each=()),
)


def ones(count: int, each: float = 1.0) -> Episodes:
    return Episodes(np.full(count, each), np.ones(count, int), [], np.zeros((count, 0)))


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_one_thread_is_kept_until_the_last_that_asked_for_it_has_left() -> None:
    entered, leave, left = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        with one_thread():
            entered.set()
            leave.wait(60)
        left.set()

    with threadpool_limits(2):
        threading.Thread(target=first).start()
        assert entered.wait(60)
        with one_thread():
            leave.set()
            assert left.wait(60)
            assert blas_threads() == {1}
        assert blas_threads() == {2}


@pytest.fixture(params=["allow_tf32", "fp32_precision"])
def factors(request: pytest.FixtureRequest) -> Iterator[Callable[[], Any]]:
    """How many bits of their factors convolutions keep, by the name that torch goes by."""
    cudnn: Any = torch.backends.cudnn
    if request.param == "allow_tf32":
        yield lambda: cudnn.allow_tf32
        return
    if not hasattr(cudnn, "conv"):
        pytest.skip("this torch has no newer name for it")
    before = cudnn.conv.fp32_precision
    cudnn.conv.fp32_precision = "ieee"
    with pytest.raises(RuntimeError):  # from now on torch refuses the older name
        _ = cudnn.allow_tf32
    yield lambda: cudnn.conv.fp32_precision
    cudnn.conv.fp32_precision = before


def test_gpus_add_up_in_one_order_until_the_last_thread_that_asked_for_it_has_left(factors: Callable[[], Any]) -> None:
    before, first, second = factors(), in_one_order(), in_one_order()
    assert not torch.are_deterministic_algorithms_enabled()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)  # not the last that came
    assert torch.are_deterministic_algorithms_enabled() and factors() in (False, "ieee")
    second.__exit__(None, None, None)
    with in_one_order():
        assert torch.are_deterministic_algorithms_enabled() and factors() in (False, "ieee")
    assert not torch.are_deterministic_algorithms_enabled() and factors() == before


def test_what_is_kept_does_not_grow_with_what_comes_and_goes_while_somebody_stays() -> None:
    with one_thread():
        for _ in range(9):
            with one_thread():
                pass
        assert len(threads._limits) == 1
    assert not threads._limits


def test_nested_one_threads_are_one() -> None:
    with threadpool_limits(2):
        with one_thread():
            with one_thread():
                pass
            assert blas_threads() == {1}
        assert blas_threads() == {2}


@pytest.mark.skipif(sys.platform != "linux", reason="nobody counts the libraries that a process has loaded")
def test_libraries_are_looked_for_again_where_one_was_loaded_since_and_not_else(tmp_path: Path) -> None:
    def times() -> int:
        with one_thread():
            return threads._find.cache_info().misses

    before = times()
    assert times() == before
    ctypes.CDLL(str(shutil.copy(library.built()[0], tmp_path / "loaded_now.so")))
    assert [times(), times()] == [before + 1, before + 1]


def test_one_thread_is_torch_s_too_and_of_its_mkl() -> None:
    # A small image with its channels last and alone is convolved by MKL, whose threads torch alone can set.
    generator = torch.Generator().manual_seed(1)
    image = torch.randn(1, 4, 5, 32, generator=generator).permute(0, 3, 1, 2)
    weights = torch.randn(64, 32, 3, 3, generator=generator)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        expected = torch.conv2d(image, weights)
        torch.set_num_threads(2)
        with one_thread():
            assert torch.get_num_threads() == 1
            assert torch.equal(torch.conv2d(image, weights), expected)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_evaluation_in_this_process_changes_no_threads_beside_the_learner(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[threading.Thread] = []

    def evaluate(config: Any, max_steps: int, task: tuple[Any, int, int, int]) -> Episodes:
        seen.append(threading.current_thread())
        return ones(task[3] - task[2])

    monkeypatch.setattr(async_evaluation, "evaluate_on_worker", evaluate)
    weights: Any = SimpleNamespace(version=3)
    evaluation = AsyncEvaluation(CONFIG, SerialPool(), 10, 100, weights)
    before = {*threading.enumerate()}
    evaluation.start(weights)
    assert before >= {*threading.enumerate()} and not seen
    assert evaluation.finish()["eval/episodes"] == 10
    assert set(seen) == {threading.current_thread()} and not evaluation.finish()


class SlowPool(SerialPool):
    """Gives the first task of each batch an end once it may."""

    in_process = False

    def __init__(self) -> None:
        self.may_end: list[threading.Event] = []
        self.begun = threading.Semaphore(0)

    def imap_unordered(self, fn: Any, tasks: Any, **options: Any) -> Iterator[Done]:
        self.may_end.append(may_end := threading.Event())
        self.begun.release()
        may_end.wait(20)
        for index, (shared, _, first, last) in enumerate(tasks):
            weights, _ = shared.value
            yield Done(index, ones(last - first, weights[0].version))


def test_an_evaluation_that_is_given_up_holds_nobody_up_and_says_nothing_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(async_evaluation, "GIVE_UP_S", 0.01)
    first: Any = SimpleNamespace(version=1)
    second: Any = SimpleNamespace(version=2)
    pool: Any = SlowPool()
    evaluation = AsyncEvaluation(CONFIG, pool, 1, 100, first)
    evaluation.start(first)
    assert pool.begun.acquire(timeout=20)
    given_up = evaluation._thread
    evaluation.close()
    assert given_up is not None and given_up.is_alive()
    evaluation.start(second)
    assert pool.begun.acquire(timeout=20)
    for may_end in pool.may_end:
        may_end.set()
    assert evaluation.finish()["eval/return_mean"] == 2
    given_up.join(20)
    assert not given_up.is_alive()


def test_a_signal_ends_the_wait_for_an_evaluation_which_goes_on() -> None:
    weights: Any = SimpleNamespace(version=1)
    pool: Any = SlowPool()
    evaluation = AsyncEvaluation(CONFIG, pool, 1, 100, weights)
    evaluation.start(weights)
    assert pool.begun.acquire(timeout=20)
    before = signal.signal(signal.SIGUSR1, lambda *_: evaluation.interrupts.ask())
    try:
        threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGUSR1]).start()
        with pytest.raises(Interrupted):
            evaluation.finish()
    finally:
        signal.signal(signal.SIGUSR1, before)
    for end in (evaluation.finish, lambda: evaluation.finish_last(weights)):
        with pytest.raises(Interrupted):
            end()
    evaluation.interrupts = Interrupts()
    pool.may_end[0].set()
    assert evaluation.finish()["eval/return_mean"] == 1


def test_the_first_wait_that_takes_long_is_told_of_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="paddock.algos")
    monkeypatch.setattr(interrupts, "TELL_S", 0)
    waits, endless = Interrupts(), env_spec("toy_envs:Forever-v0")
    with waits.waiting(spell_evaluation(endless, 3, 10, 100_000)):
        wait_until(lambda: bool(caplog.records))
    with waits.waiting("another"):
        pass
    what = "waiting for the evaluation of iteration 3, 10 episodes of up to 100,000 steps; "
    remedy = "env.max_episode_steps= limits all episodes, algo.eval_max_steps= those of evaluations"
    assert [record.getMessage() for record in caplog.records] == [what + remedy]
    assert spell_evaluation(env_spec("CartPole-v1"), 3, 2, 1000).endswith("3, 2 episodes of up to 500 steps")


def test_an_evaluation_that_cannot_begin_says_so_to_who_waits_for_it() -> None:
    class Broken(SlowPool):
        def broadcast(self, value: Any) -> Any:
            raise MemoryError

    weights: Any = SimpleNamespace(version=1)
    evaluation = AsyncEvaluation(CONFIG, Broken(), 1, 100, weights)
    evaluation.start(weights)
    with pytest.raises(MemoryError):
        evaluation.finish()
