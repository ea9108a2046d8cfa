"""The benchmark of native environments measures what it says; how fast they are is for its own runs."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled import native  # noqa: F401
from conftest import ROOT

from scripts.bench.contenders.compiled import (
    BOARDS,
    CAP,
    CLASSIC,
    CONTENDERS,
    DRAWN,
    EPISODES,
    GAMES,
    ROWS,
    SANITY,
    WALKERS,
    WORLDS,
    play,
)
from scripts.bench.contenders.players import summary
from scripts.bench.limits.native_split import PARTS, count_instructions, measure
from scripts.bench.native import QUICK_ROWS, judge, read_options, render, render_row

OURS = ["native", "native, 2 threads"]


def side(*rates: float) -> dict[str, Any]:
    return summary(list(rates), {"num_envs": 4})


def test_the_rows_are_all_kinds_of_native_tasks() -> None:
    assert [*ROWS] == [*WALKERS, *CLASSIC, *WORLDS, *SANITY, *DRAWN, *GAMES, *BOARDS, "snake", "spread"] and len(
        ROWS
    ) == 25
    assert {*QUICK_ROWS} <= {*ROWS}
    for contender in CONTENDERS.values():
        assert {*contender.rows} <= {*ROWS} and contender.threads in (1, 2)


def test_the_quick_run_is_short_and_the_full_one_has_all_rows() -> None:
    quick, full = read_options(["--quick"]), read_options([])
    assert (quick.rows, quick.repeats, full.rows, full.repeats) == (QUICK_ROWS, 3, list(ROWS), 5)
    assert read_options(["--quick", "--repeats", "7"]).repeats == 7


@pytest.mark.parametrize("name", ["Gymnasium", *OURS])
def test_a_contender_counts_the_steps_of_all_its_environments(name: str) -> None:
    cores = os.sched_getaffinity(0)
    setting = {} if name == "Gymnasium" else {"num_envs": 24}
    for row in ("CartPole-v1", "BipedalWalker-v3"):
        played = play(name, row, setting, warm_s=0.0, seconds=0.01)
        assert played["steps"] > 0 and played["steps"] % setting.get("num_envs", 1) == 0
        assert played["seconds"] >= 0.01 and played["cpu_s"] > 0
    assert os.sched_getaffinity(0) == cores, "who is bound to one core is let go"


@pytest.mark.parametrize(("row", "taken"), [("connect_four_v3", 1), ("snake", 4), ("spread", 3)])
def test_steps_of_worlds_are_actions_taken(row: str, taken: int) -> None:
    if row == "connect_four_v3":
        pytest.importorskip("pettingzoo")
    played = play("native", row, {"num_envs": 6}, warm_s=0.0, seconds=0.01)
    assert played["steps"] > 0 and played["steps"] % (6 * taken) == 0
    theirs = play("PettingZoo" if row == "connect_four_v3" else "Python", row, {}, warm_s=0.0, seconds=0.01)
    assert theirs["steps"] > 0 and theirs["steps"] % taken == 0


def test_whole_episodes_are_counted_by_their_steps() -> None:
    played = play("native, whole episodes", "BipedalWalker-v3", {}, warm_s=0.0, seconds=0.01)
    rounds = 4  # between two looks at the clock
    assert 10 * rounds * EPISODES < played["steps"] <= CAP * rounds * EPISODES


def test_an_empty_room_is_held_against_both_peers_with_any_instructions() -> None:
    sides = {"native": side(16e6, 18e6, 20e6), "EnvPool": side(90e3, 100e3, 110e3), "Gymnasium": side(6e3, 6e3, 6e3)}
    targets = judge("MiniGrid-Empty-8x8-v0", sides, "baseline")
    assert [one["reached"] for one in targets] == [True, True, True]
    assert [round(one["measured"]) for one in targets] == [18_000_000, 180, 3000]


def test_a_walker_is_held_against_both_peers_and_its_rate_only_with_avx_512() -> None:
    sides = {
        "native": side(160e3, 170e3, 180e3),
        "EnvPool": side(20e3, 17e3, 15e3),
        "Gymnasium": side(10e3, 10e3, 20e3),
    }
    rate, envpool, gymnasium = judge("BipedalWalker-v3", sides, "avx512")
    assert (rate["measured"], rate["reached"]) == (170e3, True)
    assert (envpool["measured"], envpool["reached"]) == (10.0, True), "the median of 8, 10 and 12"
    assert (gymnasium["measured"], gymnasium["reached"]) == (16.0, True), "the median of 16, 17 and 9"
    slow = sides | {"native": side(140e3, 140e3, 140e3)}
    assert [target["reached"] for target in judge("BipedalWalker-v3", slow, "avx512")] == [False, True, False]
    assert [target["reached"] for target in judge("BipedalWalker-v3", slow, "avx2")] == [None, True, False]


def test_only_cartpole_has_a_target_of_the_classic_tasks() -> None:
    fast, slow = {"native": side(21e6)}, {"native": side(19e6)}
    assert [target["reached"] for target in judge("CartPole-v1", fast, "avx2")] == [True]
    assert [target["reached"] for target in judge("CartPole-v1", slow, "avx512")] == [False]
    assert judge("Pendulum-v1", slow, "avx512") == []


def test_a_game_of_our_own_has_a_target_of_its_own() -> None:
    played = {"native": side(19e6)}
    found = {id: [target["reached"] for target in judge(id, played, "avx2")] for id in (*SANITY, *DRAWN, *GAMES)}
    assert found.pop("paddock/Game2048-v0") == [] and {id for id, reached in found.items() if reached == [False]} == {
        *SANITY,
        *DRAWN,
        "paddock/Pong-v0",
    }


def test_a_peer_that_did_not_play_is_no_miss_and_ours_is() -> None:
    alone = judge("BipedalWalker-v3", {"native": side(200e3)}, "avx512")
    assert [target["reached"] for target in alone] == [True, None, None]
    assert "EnvPool did not play" in alone[1]["why_not"]
    without = judge("BipedalWalker-v3", {"EnvPool": side(1.0), "Gymnasium": side(1.0)}, "avx512")
    assert [target["reached"] for target in without] == [False, False, False]


def test_the_table_has_every_figure() -> None:
    sides = {"native": side(3000.0, 1000.0, 2000.0), "Gymnasium": side(500.0, 500.0, 500.0)}
    result = {"sides": sides, "errors": {"EnvPool": "KeyError: 3"}, "targets": judge("BipedalWalker-v3", sides, "avx2")}
    text = render_row("BipedalWalker-v3", result)
    for part in (
        "2,000",
        "1,000",
        "3,000",
        "4.0x",
        "num_envs=4",
        "left out: KeyError: 3",
        "MISSED",
        "this ran with avx2",
    ):
        assert part in text
    report = {
        "machine": "m",
        "instructions": "avx2",
        "versions": {"a": "1"},
        "settings": {"repeats": 3, "play_s": 1.0},
        "split": None,
    }
    assert "instructions: avx2" in render(report)


def test_vector_instructions_are_counted_without_those_that_only_move() -> None:
    text = """one:
.LFB0:
\tvmovaps\t(%rdi), %ymm0
\tvmulps\t32(%rdi), %ymm0, %ymm1
\tvsubps\t%ymm1, %ymm0, %ymm0
\tvbroadcastss\t(%rsi), %ymm2
\taddq\t$8, %rdi
\tvmovaps\t%ymm0, (%rdi)
\tret
\t.size\tone, .-one
other:
\taddps\t%xmm1, %xmm0
\t.size\tother, .-other
"""
    assert (count_instructions(text, "one"), count_instructions(text, "other")) == (2, 1)


@pytest.mark.nightly  # most of it is a compiler that takes all pains
@pytest.mark.skipif(not (shutil.which("cc") or shutil.which("gcc")), reason="there is no C compiler")
def test_the_parts_of_a_step_make_up_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_LANES", "baseline")
    report = measure("BipedalWalker-v3", seconds=0.2)
    assert {*report["shares"]} == {*PARTS} and sum(report["shares"].values()) == pytest.approx(1.0)
    assert all(share > 0 for share in report["shares"].values())
    assert report["shares"]["solver"] > report["shares"]["reset"]
    assert 0 < report["limited_joints"] <= 4 and 0 < report["contacts"] <= 30
    if "of_limit" in report:
        assert 0 < report["of_limit"] < 1, "no solver is faster than its arithmetic"
        counts = report["instructions"]
        assert counts["free_joint"] < counts["limited_joint"] and counts["single_contact"] < counts["double_contact"]


def test_report_has_all_sides_and_an_exit_code(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    tiny = ["--quick", "--repeats", "1", "--seconds", "0.05", "--json", str(path), "--rows", "CartPole-v1"]
    command = [sys.executable, "scripts/bench/native.py", *tiny]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 1), done.stderr
    report = json.loads(path.read_text())
    assert set(report) == {"machine", "instructions", "versions", "settings", "rows", "split"}
    row = report["rows"]["CartPole-v1"]
    assert {"Gymnasium", *OURS} <= {*row["sides"]}
    (target,) = row["targets"]
    assert done.returncode == (0 if target["reached"] else 1)
    assert target["measured"] == pytest.approx(np.median(row["sides"]["native"]["rates"]))
    assert "target 20,000,000" in done.stdout
