"""Sweeps, on real processes that get killed: what stands, what goes on, what is shared, what fails."""

import html
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
from conftest import ROOT, rows, wait_until
from optuna.trial import TrialState
from sweep_commands import FINISHED, PACED, PRUNED, SPACE, SWEEP, Desk, desk_fixture  # noqa: F401

from paddock.report import report


def test_killed_sweep_resumes_and_loses_nothing(desk: Desk) -> None:
    # None is pruned before its sixth row: one that was slowed down before is still running when it is killed.
    pruned = [PRUNED[0], "hydra.sweeper.options.median.n_warmup_steps=50"]
    line = [*PACED, SPACE, "budget.iterations=10", "hydra.sweeper.n_trials=6", "hydra.sweeper.parallel=2", *pruned]

    def under_way() -> list[int]:
        runs = {n: desk.sweep / str(n) for n in range(6)}
        return [n for n, run in runs.items() if 0 < len(rows(run)) < 6 and not (run / "done.json").exists()]

    halted: list[int] = []
    for _ in range(3):  # on a slow disk it may end before the kill all the same: then there is another
        process = desk.begin(*line)
        wait_until((desk.sweep / "3").exists, 200)  # of four that began, two run
        desk.slow.touch()
        wait_until(lambda: under_way() and desk.count(*FINISHED) >= 2, 200)
        desk.kill(process)
        halted = [n for n in range(6) if rows(desk.sweep / str(n)) and not (desk.sweep / str(n) / "done.json").exists()]
        if halted:
            break
    desk.slow.unlink()
    stood = {trial.number: (trial.state, trial.values, trial.params) for trial in desk.trials()}
    cut = {n: (desk.sweep / str(n) / "metrics.jsonl").read_bytes() for n in halted}
    kept = {
        path: path.read_bytes()
        for n, (state, *_) in stood.items()
        if state in FINISHED
        for path in (desk.sweep / str(n)).glob("*.jsonl")
    }

    code, out, err = desk.call(*line)
    assert (code, err) == (0, ""), err
    trials = desk.trials()
    assert [trial.number for trial in trials] == [*range(6)]
    assert all(trial.state in (TrialState.COMPLETE, TrialState.PRUNED) for trial in trials)
    assert [(trial.number, trial.params) for trial in trials][: len(stood)] == [
        (n, params or trials[n].params)
        for n, (_, _, params) in stood.items()  # a kill may come before they are drawn
    ]
    assert len({trial.params["algo.strategy.learning_rate"] for trial in trials}) == 6  # none was drawn twice
    assert all(path.read_bytes() == content for path, content in kept.items())
    assert cut and all(f"trial {n} resumed: " in out for n in cut)
    for number, content in cut.items():
        after = (desk.sweep / str(number) / "metrics.jsonl").read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        assert after.startswith(whole) or whole.startswith(after)  # the rows that were repeated are the same bytes
    best = max((t for t in trials if t.state == TrialState.COMPLETE), key=lambda t: t.value or 0)
    assert f"best: trial {best.number}, eval/return_mean" in out
    assert f"algo.strategy.learning_rate={best.params['algo.strategy.learning_rate']!r}" in out

    code, again, err = desk.call(*line)
    assert (code, err) == (0, "") and again.splitlines()[1].startswith("6 trials: ")
    study = re.search(r"^  optuna (.*)", again, re.M)
    assert study is not None
    asked = [sys.executable, str(Path(sys.executable).with_name("optuna")), *shlex.split(study[1]), "--format", "json"]
    shown = subprocess.run(asked, cwd=desk.here, check=True, capture_output=True, text=True).stdout
    assert [trial["number"] for trial in json.loads(shown)] == [*range(6)]


def test_two_processes_share_a_study(desk: Desk) -> None:
    line = [*PACED, SPACE, "budget.iterations=20", "hydra.sweeper.n_trials=3", "hydra.sweeper.pruner=none"]
    desk.slow.touch()
    sweeps = [desk.begin(*line, "hydra.sweeper.parallel=1") for _ in range(2)]
    wait_until((desk.sweep / "1").exists)  # of the later one: the other has not come to the end of its first
    desk.slow.unlink()
    outs = [sweep.communicate(timeout=240) for sweep in sweeps]
    assert [sweep.returncode for sweep in sweeps] == [0, 0], outs
    assert [trial.state for trial in desk.trials()] == [TrialState.COMPLETE] * 3
    starts = [re.findall(r"^trial (\d+) started", out, re.M) for out, _ in outs]
    assert all(starts) and sorted(starts[0] + starts[1]) == ["0", "1", "2"]


def test_ctrl_c_saves_the_trials_and_the_command_resumes_them(desk: Desk) -> None:
    line = [*PACED, SPACE, "budget.iterations=6", "hydra.sweeper.n_trials=2", "hydra.sweeper.pruner=none"]
    desk.slow.touch()
    process = desk.begin(*line)
    wait_until(lambda: all(rows(desk.sweep / n) for n in "01"), 120)
    family = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    assert "2 trials: 2 unfinished" in out and "run the same command to resume" in out
    assert not any(member.is_running() for member in family)
    before = {n: (desk.sweep / n / "metrics.jsonl").read_bytes() for n in "01"}
    assert all(content.count(b"\n") < 6 for content in before.values())
    desk.slow.unlink()
    code, out, err = desk.call(*line)
    assert (code, err) == (0, "") and out.count(" resumed: ") == 2
    assert all((desk.sweep / n / "metrics.jsonl").read_bytes().startswith(before[n]) for n in "01")
    assert desk.count(TrialState.COMPLETE) == 2


def test_failed_trial_is_shown_and_counts(desk: Desk) -> None:
    line = ["env=gymnasium", "env.id=mine:Broken-v0", "+env.kwargs.broken=true,false", "budget.iterations=2"]
    line += ["hydra.sweeper.n_trials=4", "hydra.sweeper.seed=1", "hydra.sweeper.parallel=1"]
    code, _, err = desk.call(*line)
    states = [trial.state for trial in desk.trials()]
    assert set(states) == {TrialState.COMPLETE, TrialState.FAIL} and len(states) == 4
    assert code == 0
    assert err.count("failed: exit code 1") == states.count(TrialState.FAIL)
    assert "the gearbox jammed" in err


def test_best_command_finds_the_users_options(desk: Desk) -> None:
    (desk.here / "mine/env").mkdir(parents=True)
    shutil.copy(ROOT / "conf/env/cartpole.yaml", desk.here / "mine/env/pole.yaml")
    where = f"hydra.searchpath=[file://{desk.here}/mine]"
    code, out, err = desk.call(where, "env=pole", SPACE, "budget.iterations=2", "hydra.sweeper.n_trials=1")
    assert (code, err) == (0, "")
    [command] = [line.strip() for line in out.splitlines() if line.startswith("  python -m paddock ")]
    words = shlex.split(command)[3:]
    assert words[0].replace("'", "") == where and "env=pole" in words
    assert command in html.unescape(report([desk.sweep]).decode())


def test_several_objectives_give_a_pareto_front(desk: Desk) -> None:
    objectives = "hydra.sweeper.objectives=[maximize eval/return_mean, minimize step]"
    line = ["algo.population=4,32", "budget.iterations=2", objectives, "hydra.sweeper.n_trials=5"]
    code, out, err = desk.call(*line, "hydra.sweeper.sampler=nsga2")
    assert (code, err) == (0, "")
    front = [int(number) for number in re.findall(r"^best: trial (\d+)", out, re.M)]
    values = {trial.number: trial.values for trial in desk.trials()}
    assert front
    for number in front:
        mean, steps = values[number]
        assert not any(other[0] > mean and other[1] < steps for other in values.values())
