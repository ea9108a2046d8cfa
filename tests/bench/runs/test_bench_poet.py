"""The POET benchmark measures what it says; how long workers wait is for its own runs."""

import json
from pathlib import Path
from typing import Any

import pytest

import scripts.bench.runs.poet
from paddock.algos.pool.serial import SerialPool
from scripts.bench.runs.poet import TARGET, main, play_in_turns, play_ours


def test_both_sides_do_the_same_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.bench.loads.naps.STEP_S", 0.0)
    monkeypatch.setattr("scripts.bench.runs.poet.STEPS", (2, 4, 8))
    played: list[tuple[int, int]] = []  # (lane, iteration) of every task
    play = scripts.bench.runs.poet.play_members

    def count(task: Any) -> Any:
        played.append((task[0].value.lane, task[0].value.iteration))
        return play(task)

    for module in ("paddock.algos.poet", "scripts.bench.runs.poet"):
        monkeypatch.setattr(f"{module}.play_members", count)
    play_ours(SerialPool(), 2)
    ours, played[:] = sorted(played), []
    play_in_turns(SerialPool(), 2)
    assert ours == sorted(played)
    assert {lane for lane, _ in ours} == {1, 2, 3}


@pytest.mark.parametrize(("idle", "code"), [(TARGET, 0), (TARGET + 0.01, 1)])
def test_the_report_has_both_sides_and_the_exit_code_tells(
    idle: float, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def took(seconds: float, idle: float) -> Any:
        return lambda *_: {"seconds": seconds, "worker_s": 4 * seconds * (1 - idle), "idle": idle}

    monkeypatch.setattr(scripts.bench.runs.poet, "local", lambda *_, **__: SerialPool())
    monkeypatch.setattr(scripts.bench.runs.poet, "play_ours", took(2.0, idle))
    monkeypatch.setattr(scripts.bench.runs.poet, "play_in_turns", took(3.0, 0.4))
    path = tmp_path / "bench.json"
    assert main(["--quick", "--json", str(path)]) == code
    report = json.loads(path.read_text())
    assert report["idle"] == {"ours": idle, "in turns": 0.4} and report["ratio"] == 1.5
    assert "idle share at most 10%" in capsys.readouterr().out
