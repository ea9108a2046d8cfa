"""Threads of arithmetic: what plays elsewhere in a process changes nothing of them for the others."""

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from algos.common.threads import one_thread
from algos.learning import async_evaluation
from algos.learning.async_evaluation import AsyncEvaluation
from algos.learning.episodes import Episodes
from algos.pool.serial import SerialPool


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


def test_nested_one_threads_are_one() -> None:
    with threadpool_limits(2):
        with one_thread():
            with one_thread():
                pass
            assert blas_threads() == {1}
        assert blas_threads() == {2}


def test_evaluation_in_this_process_changes_no_threads_beside_the_learner(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[threading.Thread] = []

    def evaluate(config: Any, max_steps: int, task: tuple[Any, int, int]) -> Episodes:
        seen.append(threading.current_thread())
        count = task[2] - task[1]
        return Episodes(np.ones(count), np.ones(count, int), [], np.zeros((count, 0)))

    monkeypatch.setattr(async_evaluation, "evaluate_on_worker", evaluate)
    weights: Any = type("Weights", (), {"version": 3})()
    architecture = SimpleNamespace(is_dense=False, head=None, inputs=None)
    config: Any = SimpleNamespace(
        env=SimpleNamespace(metrics=()), vec=None, architecture=architecture, parts=SimpleNamespace(single=True)
    )
    evaluation = AsyncEvaluation(config, SerialPool(), 10, 100, weights)
    before = threading.active_count()
    evaluation.start(weights)
    assert threading.active_count() == before and not seen
    assert evaluation.finish()["eval/episodes"] == 10
    assert set(seen) == {threading.current_thread()} and not evaluation.finish()
