"""Finals of a sweep: who wins, on which seeds, and what a killed sweep loses (nothing)."""

import json
import math
import random
import shlex
import subprocess
import sys

import optuna
import pytest
from conftest import wait_until
from optuna.trial import FrozenTrial, TrialState, create_trial
from sweep_commands import SPACE, Desk, desk_fixture  # noqa: F401

from paddock.report import report
from paddock.runs.state import find_runs, read_run_states
from paddock.sweep.finals import HELD_OUT, compute_standing, pick_finalists, read_finals
from paddock.sweep.summary import describe_progress

FINALS = [SPACE, "hydra.sweeper.n_trials=4", "hydra.sweeper.finals=4", "hydra.sweeper.held_out=2"]


def trials(*values: float, state: TrialState = TrialState.COMPLETE) -> list[FrozenTrial]:
    space: dict[str, optuna.distributions.BaseDistribution] = {"rate": optuna.distributions.FloatDistribution(0, 100)}
    made = [
        create_trial(state=state, value=value, params={"rate": float(k)}, distributions=space)
        for k, value in enumerate(values)
    ]
    for number, trial in enumerate(made):
        trial.number = number
    return made


def race(finalists: list[int], score: dict[tuple[int, int], float], order: random.Random) -> int | None:
    """Play finals whose runs end in random order; return the winner."""
    ended: dict[tuple[int, int], float] = {}
    while (standing := compute_standing(finalists, ended, 0, 2)).missing:
        run = order.choice(standing.missing)
        ended[run] = score[run]
    return standing.winner


def test_winner_does_not_depend_on_the_order_in_which_runs_end() -> None:
    generator = random.Random(0)
    seeds = [*range(1, 8), HELD_OUT, HELD_OUT + 1]
    score = {(trial, seed): generator.random() for trial in range(8) for seed in seeds}
    assert len({race(list(range(8)), score, random.Random(order)) for order in range(20)}) == 1


def test_minimizing_chooses_what_maximizing_the_negative_does() -> None:
    values = [3.0, 1.0, 2.0, 5.0, 4.0]
    assert pick_finalists(trials(*values), False, 4) == pick_finalists(trials(*(-v for v in values)), True, 4)
    assert pick_finalists(trials(*values), False, 4) == [1, 2, 0, 4]


def test_lucky_seed_does_not_win() -> None:
    # Trial 0 has 500 in the search and 100 on any other seed; trial 1 has 450 everywhere.
    finalists = pick_finalists(trials(500, 450), True, 2)
    assert finalists == [0, 1]
    assert race(finalists, {(k, seed): (100, 450)[k] for k in range(2) for seed in range(2000)}, random.Random(0)) == 1


def test_held_out_seeds_choose_nothing() -> None:
    score = {(trial, seed): float(trial) for trial in range(4) for seed in range(64)}
    winners = set()
    for value in (-1e9, 1e9, math.nan):
        held_out = {(trial, HELD_OUT + k): value for trial in range(4) for k in range(2)}
        winners.add(race([0, 1, 2, 3], score | held_out, random.Random(0)))
        standing = compute_standing([0, 1, 2, 3], score, 0, 2)
        assert {seed for _, seed in standing.missing} == {HELD_OUT, HELD_OUT + 1}  # beyond every seed of 64 finalists
    assert winners == {3}


def test_rounds_double_the_seeds_and_halve_the_finalists() -> None:
    runs: dict[tuple[int, int], float] = {}
    while missing := compute_standing([0, 1, 2, 3, 4, 5, 6, 7], runs, 10, 0).missing:
        runs |= {run: float(-run[0]) for run in missing}
    rounds = compute_standing([0, 1, 2, 3, 4, 5, 6, 7], runs, 10, 0).rounds
    assert [one.seeds for one in rounds] == [[11], [12, 13], [14, 15, 16, 17]]
    assert [one.stay for one in rounds] == [[0, 1, 2, 3], [0, 1], [0]]
    assert len(runs) == 8 * 3


def test_failed_finalist_ranks_last() -> None:
    score = {(trial, seed): float(trial) for trial in range(4) for seed in range(2000)}
    assert race([3, 2, 1, 0], score | {(3, 1): -math.inf}, random.Random(0)) == 2


def test_finalists_are_complete_and_different() -> None:
    made = trials(5, 4, 3, 2)
    made[1].params = dict(made[0].params)
    made[2].state = TrialState.PRUNED
    assert pick_finalists(made, True, 4) == [0, 3]
    assert pick_finalists(made[2:3], True, 4) == []


def test_killed_finals_resume_with_the_same_result(desk: Desk) -> None:
    command = [*FINALS, "budget.iterations=3", "hydra.launcher.jobs=2"]
    code, out, err = desk.call(*command)
    assert code == 0, err
    expected = (desk.sweep / "finals.json").read_text()
    runs = {path.parent.name: path.read_bytes() for path in desk.sweep.glob("finals/*/metrics.jsonl")}
    assert len(runs) == 8 + 2 and f"best: trial {json.loads(expected)['winner']}," in out
    [again] = [row for row in read_finals(desk.sweep).iter_rows(named=True) if row["seed"] == HELD_OUT]
    assert again["held_out"] and again["trial"] == json.loads(expected)["winner"]
    assert "4 of 4 trials, 10 of 10 runs" in describe_progress(desk.sweep, read_run_states(find_runs(desk.sweep)))
    assert b"held-out seeds of the winner" in report([desk.sweep])
    desk.sweep.rename(desk.here / "first")

    def ended() -> int:
        return len(list(desk.sweep.glob("finals/*/done.json")))

    for count in (0, 1, 5, 8):  # in the search, in each round, and in the held-out runs
        process = desk.begin(*command)
        wait_until(lambda count=count: ended() >= count and bool(desk.trials()), 200)
        desk.kill(process)
        assert ended() < 10
    assert desk.call(*command)[0] == 0
    assert (desk.sweep / "finals.json").read_text() == expected
    assert {path.parent.name: path.read_bytes() for path in desk.sweep.glob("finals/*/metrics.jsonl")} == runs
    (desk.sweep / "finals.json").unlink()  # missing until the finals end
    assert read_finals(desk.sweep)["held_out"].sum() == 2


def test_two_commands_share_finals_that_the_printed_command_repeats(desk: Desk) -> None:
    command = [*FINALS, "budget.iterations=3", "hydra.launcher.jobs=1"]
    first, second = desk.begin(*command), desk.begin(*command)
    out, err = first.communicate(timeout=240)
    assert (first.returncode, second.wait(240)) == (0, 0), err
    runs = sorted((desk.sweep / "finals").iterdir())
    logs = [(run / "log.txt").read_text() if (run / "log.txt").exists() else "" for run in runs]
    assert len(runs) == 8 + 2 and not any("resum" in log for log in logs)  # each was started once

    winner = json.loads((desk.sweep / "finals.json").read_text())["winner"]
    line = next(line for line in out.splitlines() if line.startswith("  python -m paddock "))
    again = [sys.executable, *shlex.split(line)[1:], "seed=1", "run.dir=again"]
    subprocess.run(again, cwd=desk.here, env=desk.environment, check=True, capture_output=True, timeout=240)
    expected = (desk.sweep / "finals" / f"{winner}_seed1" / "metrics.jsonl").read_bytes()
    assert (desk.here / "again" / "metrics.jsonl").read_bytes() == expected


def test_more_trials_reuse_the_ended_runs_of_the_finals(desk: Desk) -> None:
    command = [SPACE, "hydra.sweeper.finals=2", "hydra.sweeper.held_out=1", "budget.iterations=1"]
    assert desk.call(*command, "hydra.sweeper.n_trials=2")[0] == 0
    ended = {path: path.stat().st_mtime_ns for path in desk.sweep.glob("finals/*/done.json")}
    assert len(ended) == 2 + 1
    assert desk.call(*command, "hydra.sweeper.n_trials=3")[0] == 0
    assert {path: path.stat().st_mtime_ns for path in ended} == ended


@pytest.mark.parametrize(
    "wrong",
    [
        ["hydra.sweeper.finals=6"],
        ["hydra.sweeper.held_out=-1"],
        ["hydra.sweeper.finals=4", "hydra.sweeper.objectives=[maximize eval/return_mean,minimize step]"],
        ["hydra.sweeper.finals=4", "seed=choice(1,2)"],
    ],
)
def test_settings_that_contradict_are_refused(wrong: list[str], desk: Desk) -> None:
    code, _, err = desk.call(SPACE, "hydra.sweeper.n_trials=4", *wrong)
    assert code == 2 and err.count("\n") == 1 and not desk.sweep.exists()
