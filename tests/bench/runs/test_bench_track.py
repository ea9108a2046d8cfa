"""The benchmark of tracking measures what it says; what tracking costs is for its own runs."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.bench.runs import track as bench_track
from scripts.bench.runs.track import TARGET, main, pace, play, summarize, tracker


def test_every_row_is_logged_at_the_pace_of_the_run(tmp_path: Path) -> None:
    rows, seconds = play(3)
    assert len(rows) == 3 and seconds > 0
    with tracker(tmp_path, ()) as log:
        cost = pace(rows, 0.001, log)
    assert cost["call_s"] > 0 and cost["cpu_s"] > 0
    logged = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["iteration"] for row in logged] == [row["iteration"] for row in rows]


def test_shares_are_of_an_iteration_and_the_worst_of_ours_counts() -> None:
    costs = {
        "ours: journals": [{"call_s": 1e-4, "cpu_s": 2e-4}, {"call_s": 3e-4, "cpu_s": 2e-4}],
        "ours: wandb": [{"call_s": 4e-4, "cpu_s": 9e-4}],
        "peer: wandb.log": [{"call_s": 1e-2, "cpu_s": 1e-2}],
    }
    report = summarize([0.01, 0.03], costs, {})
    # An iteration lasts 20 ms; the journals take 0.2 ms of it, W&B's mirror 0.4.
    assert report["contenders"]["ours: journals"]["call_share"] == pytest.approx(0.01)
    assert report["worst"] == pytest.approx(0.02)


@pytest.mark.parametrize(("call_s", "code"), [(TARGET / 2, 0), (2 * TARGET, 1)])
def test_the_exit_code_tells(call_s: float, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def contender(folder: Path) -> Iterator[Any]:
        yield lambda row: None

    monkeypatch.setattr(bench_track, "play", lambda count: ([{"iteration": 1}], 1.0))
    monkeypatch.setattr(bench_track, "pace", lambda rows, seconds, log: {"call_s": call_s, "cpu_s": 0.0})
    monkeypatch.setattr(bench_track, "CONTENDERS", {"ours: journals": contender})
    path = tmp_path / "bench.json"
    assert main(["--quick", "--json", str(path)]) == code
    assert json.loads(path.read_text())["worst"] == call_s
