"""The POET benchmark measures what it says; how long workers wait is for its own runs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.compute.serial import SerialPool
from scripts.bench_poet import STEPS, build_poet, play_in_turns, play_ours

ROOT = Path(__file__).resolve().parent.parent


def test_both_sides_do_the_same_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.naps.STEP_S", 0.0001)
    # A population of 64 and 5 evaluations in each niche, 2 iterations; ours may be ahead by up to 2 more.
    episodes = 2 * (64 + 5)
    ours, theirs = play_ours(SerialPool(), 2), play_in_turns(SerialPool(), 2)
    asleep_s = episodes * sum(STEPS) * 0.0001
    assert theirs["worker_s"] >= asleep_s
    assert ours["worker_s"] >= asleep_s
    assert list(build_poet(SerialPool()).niches) == list(range(1, len(STEPS) + 1))


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
