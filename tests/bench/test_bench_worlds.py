"""The benchmark of worlds measures every side, and tells by its exit code whether a target is missed."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from scripts.bench import worlds as bench_worlds
from scripts.bench.worlds import CROWD, main, measure


def test_each_side_steps_the_crowd() -> None:
    times = measure(CROWD, {"agents": 3}, 2, 1, 600)
    assert "paddock" in times and all(us > 0 for us in times.values())


@pytest.mark.parametrize(
    ("times", "missed"),
    [
        ({"paddock": 0.3, "pufferlib": 0.6}, []),
        ({"paddock": 0.4}, ["128 seats"]),
        ({"paddock": 0.3, "pufferlib": 0.4}, ["battle"]),
    ],
)
def test_what_is_missed_is_named_and_the_exit_code_tells(
    times: Any, missed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_worlds, "measure", lambda *_: times)
    monkeypatch.setattr(importlib, "import_module", lambda name: None)  # as if battles could be fought here
    assert main(["--json", str(tmp_path / "report.json")]) == bool(missed)
    assert json.loads((tmp_path / "report.json").read_text())["missed"] == missed
