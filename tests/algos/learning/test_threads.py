"""Threads of arithmetic: what plays elsewhere in a process changes nothing of them for the others."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from paddock.algos.common.interrupts import Interrupted, Interrupts
from paddock.algos.common.threads import one_thread
from paddock.algos.learning import async_evaluation
from paddock.algos.learning.async_evaluation import AsyncEvaluation
from paddock.algos.learning.episodes import Episodes
from paddock.algos.pool.protocol import Done
from paddock.algos.pool.serial import SerialPool

ARCHITECTURE = SimpleNamespace(is_dense=False, head=None, inputs=None)
CONFIG: Any = SimpleNamespace(
    env=SimpleNamespace(metrics=(), made=SimpleNamespace(limit=None)),
    vec=None,
    architecture=ARCHITECTURE,
    policy_group=SimpleNamespace(single=True, specs=()),
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


def test_an_abandoned_evaluation_does_not_affect_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(async_evaluation, "CANCEL_TIMEOUT_S", 0.01)
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
    before = signal.signal(signal.SIGUSR1, lambda *_: evaluation.interrupts.request())
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
