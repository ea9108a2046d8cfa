"""Signals from the first iteration to the last of what a run waits for: none is lost, and none is taken for another."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import TINY, final_state, rows
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

import paddock
from paddock.algos.pool.serial import SerialPool
from paddock.envs.errors import PaddockError
from paddock.runs.loop import Signals
from paddock.runs.state import read_run_states
from paddock.tracking.tracker import Tracker

HERE = [*TINY, "compute=serial", "budget.iterations=3"]
MIRROR = "+track.mirrors={slow:{_target_:test_signals.Slow,queue_rows:10,close_timeout_s:20}}"


class Slow:
    """A mirror that takes until `let` to close, and calls `closing` as it begins to."""

    name = "Slow"
    closing: Callable[[], object] = staticmethod(lambda: None)
    let = threading.Event()

    def __init__(self, queue_rows: int, close_timeout_s: float, run_dir: Path, run_name: str, config: Any) -> None:
        self.queue_rows, self.close_timeout_s = queue_rows, close_timeout_s

    def open(self, first_step: int, say: Any) -> None: ...
    def log(self, metrics: Any) -> None: ...
    def abandon(self) -> None: ...

    def close(self) -> None:
        Slow.closing()
        Slow.let.wait(20)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Slow, "let", threading.Event())


def test_no_task_takes_a_second_signal_for_an_error_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = [*HERE, "algo.pairs_per_task=1"]
    straight = paddock.run(*line, f"run.dir={tmp_path / 'straight'}", progress=False)
    step, steps = CartPoleEnv.step, 0

    def interrupting(self: Any, action: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps == 500:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)
        return step(self, action)

    with monkeypatch.context() as patch, pytest.raises(SystemExit) as left:
        patch.setattr(CartPoleEnv, "step", interrupting)
        paddock.run(*line, f"run.dir={tmp_path / 'run'}", progress=False)
    assert left.value.code == 128 + signal.SIGTERM and 0 < len(rows(tmp_path / "run")) < 3
    run = paddock.run(*line, f"run.dir={tmp_path / 'run'}", progress=False)
    assert final_state(run.path) == final_state(straight.path)
    assert (run.path / "metrics.jsonl").read_bytes() == (straight.path / "metrics.jsonl").read_bytes()


def test_an_interrupt_in_the_last_iteration_is_raised_when_the_run_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = Tracker.log

    def interrupting(self: Tracker, metrics: Any, *rest: Any) -> None:
        log(self, metrics, *rest)
        if metrics["iteration"] == 2:  # which is evaluated, so that there is nothing to wait for
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Tracker, "log", interrupting)
    with pytest.raises(KeyboardInterrupt):
        paddock.run(*HERE, "budget.iterations=2", f"run.dir={tmp_path / 'run'}")
    assert f"ended by budget.iterations=2 after 2 iterations: {tmp_path / 'run'}" in capsys.readouterr().out
    assert read_run_states([tmp_path / "run"])[0].why == "budget.iterations=2"


def test_a_run_has_ended_before_its_mirrors_have(tmp_path: Path, slow: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that whoever is tired of waiting for them takes nothing away."""

    def interrupt() -> None:
        ended.append((tmp_path / "run" / "done.json").exists())
        os.kill(os.getpid(), signal.SIGINT)

    ended: list[bool] = []
    monkeypatch.setattr(Slow, "closing", staticmethod(interrupt))
    with pytest.raises(KeyboardInterrupt):
        paddock.run(*HERE, MIRROR, f"run.dir={tmp_path / 'run'}", progress=False)
    Slow.let.set()
    assert ended == [True]
    assert read_run_states([tmp_path / "run"])[0].why == "budget.iterations=3"


def test_a_request_to_end_that_comes_again_as_mirrors_close_is_the_same_one(
    tmp_path: Path, slow: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Tracker.log

    def told(self: Tracker, metrics: Any, *rest: Any) -> None:
        log(self, metrics, *rest)
        if metrics["iteration"] == 1:
            signal.raise_signal(signal.SIGTERM)

    def tell_again() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Timer(0.5, Slow.let.set).start()

    monkeypatch.setattr(Tracker, "log", told)
    monkeypatch.setattr(Slow, "closing", staticmethod(tell_again))
    before = signal.signal(signal.SIGTERM, lambda number, frame: pytest.fail("it came to nobody"))
    try:
        with pytest.raises(SystemExit) as left:
            paddock.run(*HERE, MIRROR, f"run.dir={tmp_path / 'run'}", progress=False)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert left.value.code == 128 + signal.SIGTERM
    assert read_run_states([tmp_path / "run"])[0].why == "SIGTERM"


def test_signals_are_heard_where_no_further_thread_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    before, count = signal.getsignal(signal.SIGINT), len(os.listdir("/proc/self/fd"))
    told: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with Signals(told.append) as signals:
            signal.raise_signal(signal.SIGINT)
            assert signals.caught == signal.SIGINT and told == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) is before and len(os.listdir("/proc/self/fd")) == count
    assert signal.set_wakeup_fd(-1) == -1


def test_a_signal_as_the_pool_closes_hides_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        time.sleep(0.01)

    def full(self: Any, *_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SerialPool, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        paddock.run(*HERE, f"run.dir={tmp_path / 'whole'}", progress=False)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PaddockError, match="No space left"):
        paddock.run(*HERE, f"run.dir={tmp_path / 'full'}", progress=False)
