"""Signals from the first iteration to the last of what a run waits for: none is lost, and none is taken for another."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, TINY, assert_same_run, call_main, final_state, rows
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

import paddock
from paddock.algos.learning import async_evaluation
from paddock.runs.state import read_run_states
from paddock.tracking.tracker import Tracker

HERE = [*TINY, "compute=serial", "budget.iterations=3"]
MIRROR = "+track={slow:{_target_:test_signals.Slow,queue_rows:10,close_timeout_s:20}}"


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


def test_second_signal_is_no_error_of_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_signal_in_an_evaluation_of_this_process_loses_no_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = ["vec.num_envs=2", "algo.num_steps=8", "algo.minibatch_size=16", "algo.hidden_sizes=[4]", "seed=1"]
    line = ["algo=ppo", "env=cartpole", "compute=serial", "budget.iterations=4", "algo.eval_every_iterations=2", *small]
    straight = paddock.run(*line, f"run.dir={tmp_path / 'straight'}", progress=False)
    play, reset, playing = async_evaluation.evaluate_policy, CartPoleEnv.reset, False

    def evaluate(*arguments: Any) -> Any:
        nonlocal playing
        playing = True
        return play(*arguments)

    def interrupting(self: Any, **settings: Any) -> Any:
        if playing:
            signal.raise_signal(signal.SIGTERM)
        return reset(self, **settings)

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(async_evaluation, "evaluate_policy", evaluate)
        patch.setattr(CartPoleEnv, "reset", interrupting)
        paddock.run(*line, f"run.dir={tmp_path / 'run'}", progress=False)
    assert playing and len(rows(tmp_path / "run")) < 5
    run = paddock.run(*line, f"run.dir={tmp_path / 'run'}", progress=False)
    assert_same_run(run.path, straight.path)


def test_interrupt_in_the_last_iteration_is_raised_at_the_end(
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
    assert f"done: reached budget.iterations=2 (2 iterations): {tmp_path / 'run'}" in capsys.readouterr().out
    assert read_run_states([tmp_path / "run"])[0].why == "budget.iterations=2"


def test_run_is_done_before_its_mirrors_close(tmp_path: Path, slow: None, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.real_start
@pytest.mark.parametrize("command", ["-m paddock", "-m platform", "-m paddock.status"])
def test_an_interrupt_while_a_command_is_imported_prints_nothing(command: str, tmp_path: Path) -> None:
    (tmp_path / "yaml.py").write_text("raise KeyboardInterrupt")
    ended = subprocess.run(
        [sys.executable, *command.split()],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_a_grid_is_not_kept_in_the_folder_of_a_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert call_main(*HERE, "budget.iterations=1", f"run.dir={tmp_path}/run") == 0
    assert call_main("-m", *HERE, "seed=1,2", f"hydra.sweep.dir={tmp_path}/run/grid") == 2
    assert "is inside a run folder" in capfd.readouterr().err
