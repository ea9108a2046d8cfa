"""The benchmark of vector environments measures what it says; how fast they are is for its own runs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from gymnasium.spaces import Box, Discrete
from gymnasium.utils.env_checker import check_env

from scripts.bench.contenders.players import players, summary
from scripts.bench.contenders.vectors import BARE, CONTENDERS, OURS, PEERS, ROWS, Contender, draw, play
from scripts.bench.loads.uneven import Uneven
from scripts.bench.vec import NUM_ENVS, WORKERS, read_options, render, render_row, verdict

PYTHON_ONLY = [BARE, "Gymnasium sync", "ours serial"]


def test_the_rows_are_those_of_the_comparison() -> None:
    assert [*ROWS] == [
        "CartPole-v1",
        "Pendulum-v1",
        "MiniGrid-Empty-8x8-v0",
        "BipedalWalker-v3",
        "paddock/BipedalWalker-v3",
        "ALE/Breakout-v5",
        "Uneven-v0",
        "Uneven-v0, sleeping",
    ]


def test_every_contender_is_one_of_three_kinds() -> None:
    other_code = [name for name, contender in CONTENDERS.items() if not contender.python]
    assert sorted([BARE, *OURS, *PEERS, *other_code]) == sorted(CONTENDERS)
    assert all(name.startswith("ours") for name in OURS) and len(OURS) == 3
    assert all(name.startswith("EnvPool") for name in other_code)


@pytest.mark.parametrize(
    ("contender", "settings"),
    [
        (Contender("x", play, sizes=False), [{}]),  # type: ignore[arg-type]
        (Contender("x", play), [{"num_envs": 4}, {"num_envs": 64}]),  # type: ignore[arg-type]
        (Contender("x", play, most_envs=16), [{"num_envs": 4}]),  # type: ignore[arg-type]
        (
            Contender("x", play, workers=True),  # type: ignore[arg-type]
            [{"num_envs": N, "workers": workers} for N in (4, 64) for workers in (1, 2)],
        ),
    ],
)
def test_every_contender_has_its_part_of_one_grid(contender: Contender, settings: list[dict[str, int]]) -> None:
    assert contender.settings((4, 64), (1, 2)) == settings


def test_the_quick_run_has_one_setting_and_the_full_one_the_grid() -> None:
    quick, full = read_options(["--quick"]), read_options([])
    assert all(len(contender.settings(quick.num_envs, quick.workers)) == 1 for contender in CONTENDERS.values())
    assert (full.num_envs, full.workers, full.repeats, full.rows) == (NUM_ENVS, WORKERS, 5, list(ROWS))
    assert read_options(["--quick", "--rows", "CartPole-v1", "--repeats", "7"]).repeats == 7


@pytest.mark.parametrize("name", PYTHON_ONLY)
def test_a_contender_counts_the_steps_of_all_its_environments(name: str) -> None:
    setting = {} if name == BARE else {"num_envs": 3}
    played = play(name, "CartPole-v1", setting, warm_s=0.0, seconds=0.01)
    assert played["steps"] > 0 and played["steps"] % (1 if name == BARE else 3) == 0
    assert played["seconds"] >= 0.01


@pytest.mark.parametrize("space", [Discrete(3), Box(-1, 1, (2,), np.float32)])
def test_actions_are_drawn_beforehand_and_come_again(space: Any) -> None:
    actions = draw(space, 5)
    first = [next(actions) for _ in range(64)]
    assert first[0].shape == (5, *space.shape) and first[0].dtype == space.dtype
    assert len({batch.tobytes() for batch in first}) > 32
    assert [next(actions) for _ in range(64)][7] is first[7]


def test_the_verdict_takes_the_best_of_each_side_run_by_run() -> None:
    rates = {
        BARE: [100.0, 100.0, 100.0],
        "Gymnasium sync": [90.0, 80.0, 95.0],
        "SB3 subproc": [10.0, 10.0, 10.0],
        "EnvPool sync": [900.0, 900.0, 900.0],
        "ours serial": [110.0, 100.0, 100.0],
        "ours pool": [180.0, 168.0, 152.0],
    }
    # Ratios to Gymnasium are 2, 2.1 and 1.6; to one environment 1.8, 1.68 and 1.52.
    found = verdict("BipedalWalker-v3", rates)
    assert (found["ours"], found["peer"]) == ("ours pool", "Gymnasium sync")
    assert found["ratio"] == pytest.approx(2.0) and found["ratio_to_bare"] == pytest.approx(1.68)
    assert found["reached"]
    slow = rates | {"ours pool": [150.0, 150.0, 150.0]}
    assert not verdict("BipedalWalker-v3", slow)["reached"], "1.5 times one environment is too little for a walker"
    assert verdict("CartPole-v1", slow)["reached"]
    assert not verdict("CartPole-v1", rates | {"SB3 subproc": [200.0, 200.0, 200.0]})["reached"]


def test_what_is_not_there_is_no_miss_unless_it_is_ours() -> None:
    assert verdict("CartPole-v1", {"ours serial": [1.0]}) == {
        "ours": "ours serial",
        "peer": None,
        "ratio": None,
        "ratio_to_bare": None,
        "reached": True,
    }
    assert not verdict("CartPole-v1", {BARE: [1.0]})["reached"]


def test_the_table_has_every_figure() -> None:
    sides = {"ours serial": summary([3000.0, 1000.0, 2000.0], {"num_envs": 4})}
    sides["EnvPool sync"] = summary([9000.0], {"num_envs": 4, "workers": 2})
    result = {"sides": sides, "errors": {"SB3 dummy": "KeyError: 3"}} | verdict("CartPole-v1", {"ours serial": [1.0]})
    text = render_row("CartPole-v1", result)
    assert "2,000" in text and "1,000" in text and "3,000" in text and "num_envs=4 workers=2  (other code, C++)" in text
    assert "left out: KeyError: 3" in text
    settings = {"num_envs": [4], "workers": [2], "repeats": 1, "play_s": 1.0}
    report = {
        "machine": "m",
        "versions": {"a": "1"},
        "settings": settings,
        "rows": {"CartPole-v1": result},
        "target": 1,
    }
    assert "reached" in render(report) and "MISSED" not in render(report)


def test_a_library_that_is_absent_or_fails_is_left_out() -> None:
    with players({"no_such_library", "gymnasium"}, {}) as present:
        assert "no_such_library" in str(present["no_such_library"].missing)
        player = present["gymnasium"]
        assert player.missing is None and "gymnasium" in player.versions
        request: dict[str, Any] = {"row_name": "CartPole-v1", "setting": {}, "warm_s": 0.0, "seconds": 0.01}
        assert "KeyError" in player.play(contender="no such", **request)["error"]
        assert player.play(contender=BARE, **request)["steps"] > 0
        player.close()
        assert "ended" in player.play(contender=BARE, **request)["error"]


def test_report_has_all_sides_and_an_exit_code(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    tiny = ["--quick", "--repeats", "1", "--seconds", "0.05", "--json", str(path), "--rows", "CartPole-v1"]
    command = [sys.executable, "scripts/bench/vec.py", *tiny, "--contenders", *PYTHON_ONLY]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 1), done.stderr
    report = json.loads(path.read_text())
    assert set(report) == {"machine", "versions", "settings", "rows", "target"}
    row = report["rows"]["CartPole-v1"]
    assert list(row["sides"]) == PYTHON_ONLY and not row["errors"]
    assert done.returncode == (0 if row["reached"] else 1)
    assert row["ratio"] == pytest.approx(
        row["sides"]["ours serial"]["median"] / row["sides"]["Gymnasium sync"]["median"]
    )
    assert "best Python peer" in done.stdout


# The environment of its own


def test_one_step_in_ten_is_slow_and_so_is_every_reset() -> None:
    env = Uneven(sleep_s=0.0)
    check_env(env, skip_render_check=True)
    obs, _ = env.reset(seed=1)
    assert obs.tolist() == [0, 0, 50, 0]
    for _ in range(300):
        obs, *_ = env.step(1)
    steps, slow, work, _ = obs.tolist()
    assert steps == 300 and 15 <= slow <= 45
    assert work == 50 + 10 * slow + (300 - slow)


def test_an_uneven_episode_depends_on_its_seed_alone() -> None:
    def course(env: Uneven, seed: int) -> list[Any]:
        return [env.reset(seed=seed)[0].tolist(), *(env.step(0)[0].tolist() for _ in range(60))]

    lived = Uneven(sleep_s=0.0)
    assert course(lived, 3) != course(lived, 4)
    assert course(lived, 3) == course(Uneven(sleep_s=0.0), 3)
