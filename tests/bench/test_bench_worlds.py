"""The benchmark of worlds measures every side, and tells by its exit code whether a target is missed."""

import importlib
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from scripts.bench import worlds as bench_worlds
from scripts.bench.contenders.contest import Player
from scripts.bench.worlds import (
    CROWD,
    compare_before,
    main,
    measure,
    measure_cores,
    other_tree,
    play_one_agent,
    play_turns,
)


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


def test_two_cores_are_measured_beside_one_by_the_clock() -> None:
    times = measure_cores(CROWD, {"agents": 3}, 2, 1, 60)
    assert {"paddock", "paddock_2"} <= set(times) and all(us > 0 for us in times.values())


@pytest.mark.parametrize(("two", "missed"), [(0.15, []), (0.19, ["battle, two cores"]), (0.21, ["battle, two cores"])])
def test_two_cores_are_to_beat_one_and_a_peers_by_the_same_target(
    two: float, missed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_worlds, "measure", lambda *_: {"paddock": 0.1})
    found = {"paddock": 0.2, "paddock_2": two, "pufferlib": 0.27}
    monkeypatch.setattr(bench_worlds, "measure_cores", lambda *_: found)
    monkeypatch.setattr(importlib, "import_module", lambda name: None)
    assert main(["--cores", "--json", str(tmp_path / "report.json")]) == bool(missed)
    assert json.loads((tmp_path / "report.json").read_text())["missed"] == missed


def test_one_agent_is_held_to_its_time_and_bytes_of_before(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two trees in each of three rounds; each plays in two turns, first one first and then the other.
    paces = iter([(10.0, "a"), (10.1, "a"), (10.0, "a"), (10.4, "a"), (20.0, "a"), (20.2, "b")])

    class Tree:
        def __init__(self, file: str, environment: Any) -> None:
            self.us, self.digest = next(paces)

        def ask(self, **request: Any) -> dict[str, Any]:
            return {"us": self.us} if request else {"T": self.digest}

        def close(self) -> None:
            pass

    monkeypatch.setattr(bench_worlds, "Player", Tree)
    found = compare_before(Path(), 3, 2)["T"]
    assert found == {
        "before": 10.0,
        "now": pytest.approx(10.4),
        "ratio": pytest.approx(1.01),
        "same": False,
    }


def test_a_tree_that_is_none_is_no_other_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["--quick", "--before", str(tmp_path)])
    assert refused.value.code == 2 and f"{tmp_path} is no tree of Paddock" in capsys.readouterr().err
    assert other_tree(str(bench_worlds.ROOT)) == bench_worlds.ROOT


def test_a_change_of_pace_between_turns_moves_no_ratio() -> None:
    pace = iter([1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 9.0, 9.0])
    before, ratio = play_turns(lambda: 10 * next(pace), lambda: 11 * next(pace), 4)
    assert (before, ratio) == (25.0, pytest.approx(1.1))


def test_a_trees_steps_are_played_in_a_process_of_its_own() -> None:
    sides = [Player(bench_worlds.ONE_AGENT, environment={"PYTHONPATH": str(bench_worlds.ROOT)}) for _ in range(2)]
    with closing(sides[0]) as first, closing(sides[1]) as second:
        digests = first.ask()
        assert digests == second.ask() and len(set(digests.values())) == 3
        assert play_one_agent(first, "Pendulum-v1") > 0
