"""`python -m paddock.evaluate` on runs in worlds: matches against others, and of all against all, by their laws."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Main, call_main

import paddock
from paddock.reports.data import ReportedRun
from paddock.reports.histories import read_pictures
from paddock.runs.folder import read_config
from paddock.runs.results import read_columns

SMALL = [
    "algo=ppo",
    "compute=serial",
    "vec.num_envs=2",
    "algo.num_steps=8",
    "algo.minibatch_size=16",
    "algo.hidden_sizes=[4]",
    "algo.eval_episodes=1",
    "env=gymnasium",
]


@pytest.fixture(scope="module")
def turns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in a world of two agents that take turns."""
    path = tmp_path_factory.mktemp("matches") / "turns"
    words = ["env.id=agents:Turns", "env.fresh=false", "budget.iterations=2", f"run.dir={path}"]
    assert call_main(*SMALL, *words) == 0
    return path


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that learned action values in the same world."""
    path = tmp_path_factory.mktemp("matches") / "values"
    words = ["algo=dqn", "compute=serial", "algo.hidden_sizes=[4]", "algo.eval_episodes=1", "env=gymnasium", "seed=2"]
    world = [
        "env.id=agents:Turns",
        "env.fresh=false",
        "budget.iterations=1",
        "algo.log_every_steps=8",
        f"run.dir={path}",
    ]
    assert call_main(*words, *world) == 0
    return path


@pytest.fixture(scope="module")
def league(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two policies that meet each other."""
    path = tmp_path_factory.mktemp("matches") / "league"
    who = "algo.opponents={keep: 3, every: 1, league: {main: {main@: 0.5}, exploiter: {main: 0.5}}}"
    words = ["env.id=agents:Turns", "env.fresh=false", who, "budget.iterations=2", f"run.dir={path}"]
    assert call_main(*SMALL, *words) == 0
    return path


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one agent."""
    path = tmp_path_factory.mktemp("matches") / "alone"
    assert call_main(*SMALL, "env.id=CartPole-v1", "budget.iterations=1", f"run.dir={path}") == 0
    return path


@pytest.fixture
def main(call_command: Main, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The command in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return partial(call_command, "evaluate")


class Last:
    """A player of somebody's own: takes the last action."""

    def act(self, obs: Any, state: Any = None) -> Any:
        return np.full(len(obs), 2), {}, None


def test_run_plays_against_each_reproducibly(turns: Path, main: Any) -> None:
    words = [turns, "players=random,test_evaluate_matches.Last", "episodes=10"]
    code, out, _ = main(*words, "json=1.json")
    assert code == 0 and main(*words, "json=2.json")[1] == out.replace("1.json", "2.json")
    told = json.loads(Path("1.json").read_text())
    assert told == json.loads(Path("2.json").read_text())
    assert [player["name"] for player in told["players"]] == ["@2", "random", "test_evaluate_matches.Last"]
    wins = np.array(told["wins"])
    assert (wins + wins.T)[0].tolist() == [0, 10, 10] and wins[1:, 1:].sum() == 0  # the others do not meet
    row = next(line.split() for line in out.splitlines() if line.startswith("@2 "))
    assert row == [
        "@2",
        "20",
        f"{wins[0].sum() / 20:.1%}",
        "0.0%",
        f"{wins[:, 0].sum() / 20:.1%}",
        f"{wins[0].sum() / 20:.1%}",
    ]


def test_policy_without_distribution_is_greedy_and_reported(turns: Path, values: Path, main: Any) -> None:
    each = []
    for word in ("", "stochastic=false"):
        code, out, _ = main(values, "players=random", "episodes=40", "json=v.json", *filter(None, [word]))
        told = json.loads(Path("v.json").read_text())
        assert code == 0 and "actions       deterministic" in out
        assert told["players"][0]["drawn"] is False and "drawn" not in told["players"][1]
        each.append((told["wins"], told["returns"]))
    assert each[0] == each[1]
    Path("twin").symlink_to(values)
    _, out, _ = main(turns, f"players={values},twin", "episodes=2")
    assert f"sampled, as in training; deterministic for {values}, twin" in out
    assert "games of two such players" not in out  # of those who met
    _, out, _ = main(turns, f"players={values},twin", "episodes=2", "matrix=m.json")
    assert f"deterministic: {values}, twin; in a game without chance, all" in out
    assert [player["drawn"] for player in json.loads(Path("m.json").read_text())["players"]] == [True, False, False]


def test_matrix_is_all_against_all_and_in_the_report(turns: Path, main: Any) -> None:
    code, out, _ = main(
        turns, f"matrix={turns}/matches.json", "players=random,test_evaluate_matches.Last", "episodes=4"
    )
    told = json.loads((turns / "matches.json").read_text())
    games = np.array(told["wins"]) + np.transpose(told["wins"]) + told["draws"]
    assert code == 0 and (games == 4 * (1 - np.eye(3))).all()
    best = max(told["players"], key=lambda player: player["elo"])
    assert out.split("\n\n")[1].splitlines()[1].split()[0] == best["name"]
    assert sum(player["elo"] for player in told["players"]) == pytest.approx(0, abs=1e-6)
    title, pictures = read_pictures(ReportedRun(turns, read_config(turns), read_columns(turns)))
    assert title == "Matches" and all(draw("ppo").axes for draw in pictures.values())


def test_policies_of_a_league_meet_and_have_curves(league: Path, main: Any) -> None:
    assert main(league, f"matrix={league}/matches.json", "players=random", "episodes=2")[0] == 0
    told = json.loads((league / "matches.json").read_text())
    own = [f"{name}@{number}" for name in ("main", "exploiter") for number in (0, 1, 2)]
    assert [player["name"] for player in told["players"]] == [*own, "random"]
    _, pictures = read_pictures(ReportedRun(league, read_config(league), read_columns(league)))
    curves: list[Any] = pictures["elo"]("ppo").axes[0].get_legend_handles_labels()[0]
    assert [curve.get_label() for curve in curves] == ["main", "exploiter"]
    assert [curve.get_xdata().tolist() for curve in curves] == [[0, 1, 2]] * 2
    code, out, _ = main(league, "players=random", "episodes=2")
    assert code == 0 and {line.split()[0] for line in out.splitlines() if "@2  " in line} == {"main@2", "exploiter@2"}
    run = paddock.load(league)
    members = [run.policy(of=name).policy.parameters for name in ("main", "exploiter")]
    assert (members[0] != members[1]).any()


BAD = {
    "nobody": (
        ["TURNS", "players=rando"],
        "players=rando is neither a run folder nor a known player; did you",
    ),
    "odd": (["TURNS", "players=random", "episodes=3"], "episodes=3 must be even, half of them on each side"),
    "no version": (["TURNS", "players=TURNS@1"], "players=TURNS@1: TURNS has no policy of iteration 1; available: 2"),
    "no board": (
        ["TURNS", "players=scripts.board_players.Perfect"],
        "Perfect needs boards of observation [3, 3, 2] and 9 moves",
    ),
    "another world": (["TURNS", "players=ALONE"], "players=ALONE has a different observation or action space than"),
    "one agent": (["ALONE", "players=random"], "ALONE is a single-agent run"),
    "nothing to draw": (
        ["VALUES", "players=random", "stochastic=true"],
        "stochastic=true: @1 has no action distribution",
    ),
}


@pytest.mark.parametrize("arguments, said", BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_line(
    arguments: list[str], said: str, turns: Path, values: Path, league: Path, alone: Path, main: Any
) -> None:
    names = {"TURNS": str(turns), "VALUES": str(values), "LEAGUE": str(league), "ALONE": str(alone)}
    for name, path in names.items():
        arguments = [word.replace(name, path) for word in arguments]
    code, out, err = main(*arguments)
    for name, path in names.items():
        err = err.replace(path, name)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("paddock: ") and said in err
    assert list(Path().iterdir()) == []
