"""The POET benchmark measures what it says; how long workers wait is for its own runs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import scripts.bench_poet
from algos.serial import SerialPool
from scripts.bench_poet import STEPS, play_in_turns, play_ours

ROOT = Path(__file__).resolve().parent.parent


def test_both_sides_do_the_same_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.naps.STEP_S", 0.0001)
    played: list[tuple[int, int]] = []  # (lane, iteration) of every task
    play = scripts.bench_poet.play_round

    def count(task: Any) -> Any:
        played.append((task[0].value.centre.lane, task[0].value.centre.iteration))
        return play(task)

    for module in ("algos.poet", "scripts.bench_poet"):
        monkeypatch.setattr(f"{module}.play_round", count)
    play_ours(SerialPool(), 2)
    ours, played[:] = sorted(played), []
    play_in_turns(SerialPool(), 2)
    assert ours == sorted(played)
    assert {lane for lane, _ in ours} == set(range(1, len(STEPS) + 1))


def test_the_report_has_both_sides_and_the_exit_code_tells(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    command = [sys.executable, "scripts/bench_poet.py", "--quick", "--json", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode in (0, 1), done.stderr
    report = json.loads(path.read_text())
    assert done.returncode == (0 if report["idle"]["ours"] <= report["target"] else 1)
    for side in ("ours", "in turns"):
        assert 0 <= report["idle"][side] < 1
    assert report["ratio"] == pytest.approx(report["seconds"]["in turns"] / report["seconds"]["ours"])
    assert "idle share at most 10%" in done.stdout
