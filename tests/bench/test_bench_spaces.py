"""The benchmark of rows measures every side, and tells by its exit code whether a target is missed."""

import json
from pathlib import Path
from typing import Any

import pytest

from scripts.bench import spaces as bench_spaces
from scripts.bench.spaces import SPACES, claims, main, measure, measure_learner

REACHED = {"paddock": 0.5, "pufferlib": 1.0, "gymnasium": 4.0}
LEARNER = {"rows": 20.0, "leaf by leaf": 100.0, "look": 3.0}


@pytest.mark.parametrize("name", SPACES)
def test_each_side_writes_each_space(name: str) -> None:
    times = measure(name, SPACES[name], rounds=1)
    assert {"paddock", "gymnasium"} <= times.keys() and all(us > 0 for us in times.values())


def test_a_learner_shuffles_and_looks() -> None:
    assert all(us > 0 for us in measure_learner(rounds=1).values())


@pytest.mark.parametrize(
    ("times", "learner", "missed"),
    [
        ({}, {}, []),
        ({"paddock": 0.66}, {}, ["Spaces beside PufferLib"]),
        ({"paddock": 0.7, "pufferlib": 2.0}, {}, ["Spaces beside Gymnasium"]),
        ({}, {"rows": 34.0}, ["gather"]),
        ({}, {"look": 5.1}, ["look"]),
    ],
)
def test_what_is_missed_is_named_and_the_exit_code_tells(
    times: Any, learner: Any, missed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_spaces, "SPACES", {"Spaces": SPACES["Spaces"]})
    monkeypatch.setattr(bench_spaces, "measure", lambda *_: REACHED | times)
    monkeypatch.setattr(bench_spaces, "measure_learner", lambda _: LEARNER | learner)
    assert main(["--quick", "--json", str(tmp_path / "report.json")]) == (1 if missed else 0)
    assert json.loads((tmp_path / "report.json").read_text())["missed"] == missed


def test_without_pufferlib_nothing_is_claimed_beside_it() -> None:
    report = {"spaces": {"Spaces": {"paddock": 0.5, "gymnasium": 4.0}}, "learner": LEARNER}
    assert set(claims(report)) == {"Spaces beside Gymnasium", "gather", "look"}
