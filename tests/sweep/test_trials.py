"""Trials of a sweep: what is drawn, reported and told of each, and what ends a sweep and costs no trial."""

import errno
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
from conftest import TINY, call_main
from optuna.trial import TrialState
from run_folders import write_sweep
from sweep_commands import QUICK

from paddock.algos.pool.lazy import LazyPool
from paddock.algos.pool.protocol import Done, Needs, PoolError
from paddock.algos.pool.serial import SerialPool
from paddock.envs.errors import DISK_FULL, NO_WORKERS
from paddock.runs.loop import RunFailed
from paddock.sweep.placement import DaskTarget, End, Plan
from paddock.sweep.study import open_study
from paddock.sweep.sweeper import OptunaSweeper
from paddock.sweep.trial import Note, Reporter
from paddock.sweep.trials import SweepSession


def make_session(
    sweep: Path,
    target: Any,
    draw: Callable[[optuna.Trial], list[str]],
    n_trials: int = 1,
    retries: int = 0,
    parallel: int | None = 1,
    metric: str = "eval/return_mean",
) -> SweepSession:
    """A process's part in a sweep, by random values of a seed that is the trial's number."""
    keys: dict[str, Any] = {"parallel": parallel, "n_trials": n_trials, "retries": retries}
    keys |= {"make_sampler": lambda number: optuna.samplers.RandomSampler(seed=number)}
    keys |= {"objectives": [f"maximize {metric}"]}
    settings: Any = SimpleNamespace(**keys)
    return SweepSession(
        open_study(sweep),
        sweep,
        settings,
        target,
        lambda trial, run: (drawn := draw(trial), Plan(drawn, run, [])),
    )


EVALUATED = {"eval/return_mean": 7.0, "eval/falls": None}


class Ending:
    """A launch target whose runs end with these codes, one after the other; with 0 as a run that has been played."""

    stays, slots = False, 1

    def __init__(self, *codes: int, metrics: Mapping[str, float | None] = EVALUATED) -> None:
        self.codes, self.metrics = list(codes), metrics

    def start(self, plan: Plan) -> Any:
        code = self.codes.pop(0)
        if code == 0:
            done = {"reason": "budget.iterations=2", "metrics": self.metrics}
            (plan.run / "done.json").write_text(json.dumps(done))
        return SimpleNamespace(ended=lambda: End(code, []))

    def close(self) -> None:
        pass


def test_resumed_trials_have_all_their_retries(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "sweep", trials=1)
    trial = open_study(sweep).ask()
    Note(trial.number, "gone", ["k=1"], starts=9).write(sweep / "1")  # eight times it was stopped and gone on with
    assert make_session(sweep, Ending(-9, 0), lambda trial: ["k=1"], n_trials=2, retries=1).run() is None
    assert open_study(sweep).get_trials()[1].state == TrialState.COMPLETE
    trial = open_study(sweep).ask()
    assert make_session(sweep, Ending(-9, -9), lambda trial: ["k=1"], n_trials=3, retries=1).run() is None
    lost = open_study(sweep).get_trials()[2]
    assert lost.state == TrialState.FAIL and lost.user_attrs["failure"] == "its process was lost (-9) 2 times"


def test_metric_that_no_trial_has_ends_the_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = write_sweep(tmp_path / "sweep", trials=0)
    session = make_session(sweep, Ending(0), lambda trial: [], n_trials=9, metric="eval/retrun_mean")
    assert session.run() is None
    why = f"its run in {sweep / '0'} ended without eval/retrun_mean"
    remedy = "hydra.sweeper.objectives: did you mean 'eval/return_mean'?"
    assert session.ended_by == f"trial 0 failed, as all trials would: {why}; {remedy}"
    assert [trial.state for trial in open_study(sweep).get_trials()] == [TrialState.FAIL]
    assert (sweep / "0/done.json").exists() and capsys.readouterr().err == ""


def test_metric_that_one_trial_lacks_ends_no_sweep(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "sweep", trials=1)
    session = make_session(sweep, Ending(0, 0), lambda trial: [], n_trials=3, metric="eval/length_mean")
    assert session.run() is None and session.ended_by is None
    states = [trial.state for trial in open_study(sweep).get_trials()]
    assert states == [TrialState.PRUNED, TrialState.FAIL, TrialState.FAIL]


def test_trial_that_outlives_its_sweep_keeps_its_values(tmp_path: Path) -> None:
    class Killed(Ending):
        def start(self, plan: Plan) -> Any:
            super().start(plan)
            raise KeyboardInterrupt  # the process is gone where the run has begun

    sweep = write_sweep(tmp_path / "sweep", trials=1)
    with pytest.raises(KeyboardInterrupt):
        make_session(sweep, Killed(0), lambda trial: ["k=1"], n_trials=2).run()
    assert make_session(sweep, Ending(), lambda trial: ["k=1"], n_trials=2).run() is None
    note = Note.read(sweep / "1")
    assert note is not None and note.overrides == ["k=1"]
    assert open_study(sweep).get_trials()[1].value == 7.0


def test_trial_of_a_killed_sweep_is_drawn_by_its_sampler(tmp_path: Path) -> None:
    def draw(trial: optuna.Trial) -> list[str]:
        return [f"k={trial.suggest_float('k', 0, 1)}"]

    drawn = []
    for killed in (False, True):
        sweep = write_sweep(tmp_path / f"{killed}", trials=1)
        if killed:
            trial = open_study(sweep).ask()
            Note(trial.number, "gone").write(sweep / "1")
        assert make_session(sweep, Ending(0), draw, n_trials=2).run() is None
        drawn.append(open_study(sweep).get_trials()[1].params)
    assert drawn[0] == drawn[1] != {}


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (DISK_FULL, "the disk of trial 1 is full or gone; fix this, then run the same command to resume the trial"),
        (
            NO_WORKERS,
            "the workers of trial 1 cannot be reached; fix this, then run the same command to resume the trial",
        ),
    ],
)
def test_full_disk_or_lost_workers_end_a_sweep_and_keep_the_trial(code: int, says: str, tmp_path: Path) -> None:
    class Refused:
        stays, slots = False, 1

        def __init__(self) -> None:
            self.started: list[str] = []

        def start(self, plan: Plan) -> Any:
            self.started.append(plan.run.name)
            return SimpleNamespace(ended=lambda: End(code, ["paddock: no room"]))

        def close(self) -> None:
            pass

    sweep = write_sweep(tmp_path / "sweep", trials=1)
    for _ in range(2):  # the same command again, while it is still so
        session = make_session(sweep, target := Refused(), lambda trial: [], n_trials=9)
        assert session.run() is None and session.ended_by == says
        assert target.started == ["1"] and open_study(sweep).get_trials()[1].state == TrialState.RUNNING


@pytest.mark.parametrize(("part", "alone"), [(LazyPool, 2), (SerialPool, 1)], ids=["at its start", "on its way"])
def test_exit_code_of_a_trial_says_that_workers_are_lost(
    part: Any, alone: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise PoolError("no scheduler")

    monkeypatch.setattr(part, "open" if part is LazyPool else "imap_unordered", refuse)
    for run, code in ((write_sweep(tmp_path / "sweep", trials=1) / "1", NO_WORKERS), (tmp_path / "alone", alone)):
        if code == NO_WORKERS:
            Note(1, "me").write(run)
        assert call_main(*TINY, *QUICK, "budget.iterations=1", f"run.dir={run}") == code


def test_failed_pool_costs_no_trial_a_retry(tmp_path: Path) -> None:
    class Gone:
        """A pool that fails as a whole once a task is on its way."""

        size = 1

        def open_batch(self, fn: Any, deliver: Any, **_: Any) -> Any:
            self.deliver = deliver
            return self

        def put(self, task: Any) -> int:
            self.deliver([lambda: Done(0, error=PoolError("lost the scheduler"))])
            return 0

        def cancel(self) -> None: ...
        def close(self) -> None: ...

    sweep = write_sweep(tmp_path / "sweep", trials=1)
    target = DaskTarget(Gone(), Needs())  # type: ignore[arg-type]
    with pytest.raises(PoolError, match="lost the scheduler"):
        make_session(sweep, target, lambda trial: [], n_trials=2, retries=0).run()
    note = Note.read(sweep / "1")
    assert note is not None and note.losses == 0
    assert open_study(sweep).get_trials()[1].state == TrialState.RUNNING


def test_full_disk_ends_a_sweep_in_a_line(tmp_path: Path) -> None:
    def refuse() -> int | None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    sweeper = OptunaSweeper()
    sweeper._folder = tmp_path
    with pytest.raises(RunFailed, match=r"stopped \(No space left on device\); fix this, then run the same"):
        sweeper._run(refuse)


def test_unreachable_study_disables_pruning_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sweep = write_sweep(tmp_path / "sweep", trials=1)
    trial = open_study(sweep).ask()
    run = sweep / str(trial.number)
    Note(trial.number, "me").write(run)
    reporter = Reporter(run, Note(trial.number, "me"))
    (sweep / "study.journal").rename(tmp_path / "gone")
    (sweep / "study.journal").mkdir()
    for percent in (10, 20):
        assert reporter.report({"iteration": 1, "step": 1, "eval/return_mean": 1.0}, percent / 100) is None
    assert caplog.text.count("cannot reach") == 1


def test_evaluation_is_reported_at_the_share_of_its_policy(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "sweep", trials=1)
    study = open_study(sweep)
    trial = study.ask()
    note = Note(trial.number, "me")
    note.write(sweep / str(trial.number))
    reporter = Reporter(sweep / str(trial.number), note)
    for iteration, late, value in ((10, 10, 1.0), (20, 10, 2.0), (30, 20, 3.0), (30, 30, 4.0)):
        row = {"iteration": iteration, "step": 1, "eval/return_mean": value, "eval/of_iteration": late}
        assert reporter.report(row, iteration / 100) is None
    reported = study.get_trials()[trial.number].intermediate_values
    assert reported == {p: 1.0 if p <= 10 else 3.0 if p <= 20 else 4.0 for p in range(1, 31)}
