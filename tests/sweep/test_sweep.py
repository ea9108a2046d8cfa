"""Sweeps, on real processes that get killed: what stands, what goes on, what is shared, what fails."""

import errno
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import psutil
import pytest
from conftest import ROOT, TINY, call_main, command_line, rows, wait_until
from optuna.trial import TrialState
from own_package import write_package
from run_folders import write, write_sweep
from slurm_cluster import Slurm, slurm  # noqa: F401, a fixture

from algos.pool.late import LatePool
from algos.pool.protocol import Done, Needs, PoolError
from algos.pool.serial import SerialPool
from envs.errors import NO_ROOM, NO_WORKERS, PaddockError
from paddock.runs.loop import RunFailed
from paddock.sweep.launchers import LocalKeys, LocalLauncher, _run_all, estimate_left_s
from paddock.sweep.placement import End, OnWorkers, Plan
from paddock.sweep.study import open_study
from paddock.sweep.sweeper import OptunaSweeper
from paddock.sweep.trial import Note, Reporter
from paddock.sweep.trials import SweepSession

QUICK = ["compute=serial"]
SWEEP = ["--multirun", "hydra/sweeper=optuna", "hydra.sweep.dir=sweep", "hydra.sweeper.sampler=random"]
SPACE = "algo.learning_rate=tag(log, interval(1e-3, 0.3))"
PACED = ["env=gymnasium", "env.id=mine:Paced-v0"]  # an iteration takes most of a second while `Desk.slow` is there
PRUNED = ["hydra.sweeper.options.median.n_startup_trials=2", "hydra.sweeper.options.median.n_warmup_steps=10"]
FINISHED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)


class Desk:
    """A working directory in which sweeps are run."""

    def __init__(self, here: Path) -> None:
        self.here = here
        self.sweep, self.slow = here / "sweep", here / "slow"
        write_package(here)
        self.environment = os.environ | {"PYTHONPATH": str(ROOT)}
        self.started: list[psutil.Process] = []

    def begin(self, *arguments: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "paddock", *TINY, *QUICK, *SWEEP, *arguments]
        process = subprocess.Popen(
            command,
            cwd=self.here,
            env=self.environment,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(psutil.Process(process.pid))
        return process

    def call(self, *arguments: str) -> tuple[int, str, str]:
        process = self.begin(*arguments)
        out, err = process.communicate(timeout=240)
        return process.returncode, out, err

    def trials(self) -> list[optuna.trial.FrozenTrial]:
        try:
            return open_study(self.sweep).get_trials(deepcopy=False)
        except PaddockError:  # it is just being made
            return []

    def count(self, *states: TrialState) -> int:
        return sum(trial.state in states for trial in self.trials())

    def kill(self, process: subprocess.Popen) -> list[psutil.Process]:
        """`kill -9` of the sweep and of all its trials, at once."""
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        for member in family:
            member.kill()
        process.wait()
        psutil.wait_procs(family, 10)
        return family


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    for process in desk.started:
        if process.is_running():
            for member in [*process.children(recursive=True), process]:
                member.kill()


def test_killed_at_five_of_twelve_and_run_again_twelve_finish_and_nothing_is_lost(desk: Desk) -> None:
    # None is pruned before its sixth row: one that was slowed down before is still running when it is killed.
    pruned = [PRUNED[0], "hydra.sweeper.options.median.n_warmup_steps=50"]
    line = [*PACED, SPACE, "budget.iterations=10", "hydra.sweeper.n_trials=12", "hydra.sweeper.parallel=2", *pruned]

    def under_way() -> list[int]:
        runs = {n: desk.sweep / str(n) for n in range(12)}
        return [n for n, run in runs.items() if 0 < len(rows(run)) < 6 and not (run / "done.json").exists()]

    halted: list[int] = []
    for _ in range(3):  # on a slow disk it may end before the kill all the same: then there is another
        process = desk.begin(*line)
        wait_until((desk.sweep / "6").exists, 200)  # of seven that began, two go on
        desk.slow.touch()
        wait_until(lambda: under_way() and desk.count(*FINISHED) >= 5, 200)
        desk.kill(process)
        halted = [
            n for n in range(12) if rows(desk.sweep / str(n)) and not (desk.sweep / str(n) / "done.json").exists()
        ]
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
    assert [trial.number for trial in trials] == [*range(12)]
    assert all(trial.state in (TrialState.COMPLETE, TrialState.PRUNED) for trial in trials)
    assert TrialState.PRUNED in {trial.state for trial in trials}
    assert [(trial.number, trial.params) for trial in trials][: len(stood)] == [
        (n, params or trials[n].params)
        for n, (_, _, params) in stood.items()  # a kill may come before they are drawn
    ]
    assert len({trial.params["algo.learning_rate"] for trial in trials}) == 12  # none was drawn twice
    assert all(path.read_bytes() == content for path, content in kept.items())
    assert cut and all(f"trial {n} goes on: " in out for n in cut)
    for number, content in cut.items():
        after = (desk.sweep / str(number) / "metrics.jsonl").read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        assert after.startswith(whole) or whole.startswith(after)  # the rows that were repeated are the same bytes
    best = max((t for t in trials if t.state == TrialState.COMPLETE), key=lambda t: t.value or 0)
    assert f"best: trial {best.number}, eval/return_mean" in out
    assert f"algo.learning_rate={best.params['algo.learning_rate']!r}" in out

    code, again, err = desk.call(*line)
    assert (code, err) == (0, "") and again.splitlines()[1].startswith("12 trials: ")
    study = re.search(r"^study: optuna (.*)", again, re.M)
    assert study is not None
    asked = [sys.executable, str(Path(sys.executable).with_name("optuna")), *shlex.split(study[1]), "--format", "json"]
    shown = subprocess.run(asked, cwd=desk.here, check=True, capture_output=True, text=True).stdout
    assert [trial["number"] for trial in json.loads(shown)] == [*range(12)]


@pytest.mark.parametrize("storage", ["null", "sqlite:///study.db"])
def test_two_processes_share_a_study(storage: str, desk: Desk) -> None:
    line = [SPACE, "budget.iterations=2", "hydra.sweeper.n_trials=3", "hydra.sweeper.pruner=none"]
    line += [f"hydra.sweeper.storage={storage.replace('study', f'{desk.here}/study')}"]
    sweeps = [desk.begin(*line, "hydra.sweeper.parallel=1") for _ in range(2)]
    outs = [sweep.communicate(timeout=240) for sweep in sweeps]
    assert [sweep.returncode for sweep in sweeps] == [0, 0], outs
    assert [trial.state for trial in desk.trials()] == [TrialState.COMPLETE] * 3
    starts = [re.findall(r"^trial (\d+) starts", out, re.M) for out, _ in outs]
    assert all(starts) and sorted(starts[0] + starts[1]) == ["0", "1", "2"]


def test_ctrl_c_saves_the_trials_and_the_same_command_goes_on(desk: Desk) -> None:
    line = [*PACED, SPACE, "budget.iterations=6", "hydra.sweeper.n_trials=2", "hydra.sweeper.pruner=none"]
    desk.slow.touch()
    process = desk.begin(*line)
    wait_until(lambda: all(rows(desk.sweep / n) for n in "01"), 120)
    family = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    assert "the same command goes on" in out
    assert not any(member.is_running() for member in family)
    before = {n: (desk.sweep / n / "metrics.jsonl").read_bytes() for n in "01"}
    assert all(content.count(b"\n") < 6 for content in before.values())
    desk.slow.unlink()
    code, out, err = desk.call(*line)
    assert (code, err) == (0, "") and out.count("goes on: ") == 2
    assert all((desk.sweep / n / "metrics.jsonl").read_bytes().startswith(before[n]) for n in "01")
    assert desk.count(TrialState.COMPLETE) == 2


def test_a_failed_trial_is_shown_at_once_and_counts(desk: Desk) -> None:
    line = ["env=gymnasium", "env.id=mine:Broken-v0", "+env.kwargs.broken=true,false", "budget.iterations=2"]
    line += ["hydra.sweeper.n_trials=4", "hydra.sweeper.seed=1", "hydra.sweeper.parallel=1"]
    code, _, err = desk.call(*line)
    states = [trial.state for trial in desk.trials()]
    assert set(states) == {TrialState.COMPLETE, TrialState.FAIL} and len(states) == 4
    assert code == 0
    assert err.count("failed: exit code 1") == states.count(TrialState.FAIL)
    assert "the gearbox jammed" in err
    first = states.index(TrialState.FAIL)
    code, _, err = desk.call(*line, "hydra.sweeper.on_failure=stop", "hydra.sweep.dir=other")
    assert code == 1 and f"trial {first} failed: exit code 1" in err
    assert len(open_study(desk.here / "other").get_trials()) == first + 1


def test_a_trial_without_its_metric_fails_and_says_so(desk: Desk) -> None:
    objective = "hydra.sweeper.objectives=[maximize eval/nothing]"
    code, _, err = desk.call(SPACE, "budget.iterations=1", objective, "hydra.sweeper.n_trials=1")
    assert code == 1 and "it has no eval/nothing" in err and "all trials failed" in err


def test_a_trial_shorter_than_the_time_between_evaluations_has_its_last_one(desk: Desk) -> None:
    line = [SPACE, "budget.iterations=2", "algo.eval_every=10", "hydra.sweeper.n_trials=1"]
    code, _, err = desk.call(*line)
    assert (code, err) == (0, "")
    [trial] = desk.trials()
    last = rows(desk.sweep / "0")[-1]
    assert (last["eval/of_iteration"], last["eval/return_mean"]) == (2, trial.value)


def test_several_objectives_under_a_constraint(desk: Desk) -> None:
    objectives = "hydra.sweeper.objectives=[maximize eval/return_mean, minimize step]"
    line = ["algo.population=4,32", "budget.iterations=2", objectives, "hydra.sweeper.n_trials=5"]
    code, out, err = desk.call(*line, "hydra.sweeper.sampler=nsga2", "hydra.sweeper.constraints=['step <= 500']")
    assert (code, err) == (0, "")
    front = [int(number) for number in re.findall(r"^best: trial (\d+)", out, re.M)]
    steps = {trial.number: trial.values[1] for trial in desk.trials()}
    assert front and all(steps[number] <= 500 for number in front)
    assert any(value > 500 for value in steps.values())


def test_a_sweep_refuses_what_cannot_work_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = {
        "algo.learning_rate=interval(-1, 1)": "algo.learning_rate=-1.0 must be positive",
        "algo.learning_rat=interval(0, 1)": "did you mean 'algo.learning_rate'?",
        "algo.population=interval(16, 64)": "has the wrong type; allowed: a whole number",
        f"{SPACE} hydra.sweeper.sampler=tp": "hydra.sweeper.sampler=tp is unknown; did you mean 'tpe'?",
        f"{SPACE} budget.iterations=null": "a trial without a budget never ends",
        f"{SPACE} run.dir=x": "run.dir=x would be shared by all trials",
        "seed=1": "the sweep has nothing to choose",
    }
    for arguments, says in wrong.items():
        key, _, rest = arguments.partition(") ")
        words = [f"{key})", *rest.split()] if rest else [arguments]
        code = call_main(*TINY, *QUICK, *SWEEP, "budget.iterations=1", *words)
        err = capfd.readouterr().err
        assert code == 2 and says in err and len(err.splitlines()) == 1, (arguments, err)
    assert not (tmp_path / "sweep").exists()


def test_a_folder_of_another_sweep_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(write_sweep(tmp_path / "sweep", trials=1).parent)
    other = "hydra.sweeper.objectives=[minimize eval/return_mean]"
    for extra, says in {
        "hydra.sweeper.seed=5": "holds the sweep s, which this line is not",
        "hydra.sweeper.study=s": "holds a sweep with other objectives, constraints or storage",
    }.items():
        code = call_main(*TINY, *QUICK, *SWEEP, SPACE, "budget.iterations=1", other, extra)
        err = capfd.readouterr().err
        assert code == 2 and says in err and len(err.splitlines()) == 1


def test_a_named_study_is_of_one_experiment_and_its_choices_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    named = [*TINY, *QUICK, *SWEEP, "hydra.sweeper.study=s", "hydra.sweeper.n_trials=1", "budget.iterations=1"]
    assert call_main(*named, "algo.population=16,32") == 0
    capfd.readouterr()
    before = (tmp_path / "sweep" / "sweep.json").read_bytes()
    more = "hydra.sweeper.n_trials=2"
    for arguments, says in {
        ("algo.population=16,32", "env=acrobot"): "of env=cartpole, and this line says env=acrobot; use its own, or",
        (
            "algo.population=16,32",
            "hydra.sweeper.constraints=['step <= 9']",
        ): "other objectives, constraints or storage",
        ("algo.population=16,64",): "algo.population was drawn from 16,32 in the study s, and is now 16,64; use",
        ("algo.population=int(interval(16, 64))",): "from 16,32 in the study s, and is now a whole number; use its own",
    }.items():
        code = call_main(*named, *arguments, more)
        err = capfd.readouterr().err
        assert code == 2 and says in err and len(err.splitlines()) == 1, err
    assert (tmp_path / "sweep" / "sweep.json").read_bytes() == before
    assert call_main(*named, "algo.population=16,32", more, "compute=local", "compute.workers=1") == 0
    assert [trial.state for trial in open_study(tmp_path / "sweep").get_trials()] == [TrialState.COMPLETE] * 2


def test_the_name_of_a_study_knows_how_many_environments_where_that_changes_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def name(*arguments: str) -> str:
        line = ["env=cartpole", *QUICK, "budget.iterations=1", "-m", "hydra/sweeper=optuna", "dry_run=true", SPACE]
        assert call_main(*line, *arguments) == 0
        return capfd.readouterr().out.split()[1]

    assert name("algo=es", "vec=native") == name("algo=es") == name("algo=es", "vec.num_envs=16")
    assert name("algo=ppo", "vec=multiprocess") == name("algo=ppo") != name("algo=ppo", "vec.num_envs=16")
    assert name("algo=ppo", "vec.num_envs=64") == name("algo=ppo", "vec=native")


def test_a_named_study_is_of_one_number_of_environments_however_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ppo = ["algo=ppo", "env=cartpole", "algo.hidden=[8]", "algo.num_steps=8", "algo.minibatch_size=32"]
    ppo += ["algo.eval_every=1", "algo.eval_episodes=1", "budget.iterations=1", "algo.gamma=interval(0.9, 0.99)"]
    named = [*ppo, *QUICK, *SWEEP, "hydra.sweeper.study=s"]
    monkeypatch.setattr(SweepSession, "run", lambda self: self._study.add_trial(optuna.trial.create_trial(value=1.0)))
    assert call_main(*named, "hydra.sweeper.n_trials=1", "vec=serial") == 0
    capfd.readouterr()
    assert call_main(*named, "hydra.sweeper.n_trials=2", "vec=native") == 2
    err = capfd.readouterr().err
    assert "trials of vec.num_envs=8, and this line says vec.num_envs=64; use its own" in err
    assert len(err.splitlines()) == 1
    assert call_main(*named, "hydra.sweeper.n_trials=1", "vec.num_envs=8") == 0


def test_a_study_in_a_database_has_one_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    line = [*TINY, *QUICK, *SWEEP, SPACE, "budget.iterations=1", "hydra.sweeper.n_trials=1"]
    line += [f"hydra.sweeper.storage=sqlite:///{tmp_path}/study.db"]
    assert call_main(*line) == 0
    capfd.readouterr()
    assert call_main(*line, "hydra.sweep.dir=other", "hydra.sweeper.n_trials=2") == 2
    err = capfd.readouterr().err
    assert "has trials already, whose runs are not in other; name their folder by hydra.sweep.dir=" in err
    assert len(err.splitlines()) == 1 and not (tmp_path / "other" / "sweep.json").exists()
    assert call_main(*line, "hydra.sweeper.n_trials=2") == 0
    capfd.readouterr()
    (tmp_path / "study.db").unlink()
    assert call_main(*line, "hydra.sweeper.n_trials=2") == 2  # or it would tell values of what was drawn before
    err = capfd.readouterr().err
    assert re.search(r"sweep has runs that are no trials of the study \S+, as 0, 1; name another folder", err)
    assert len(err.splitlines()) == 1


def test_without_a_folder_of_its_own_the_same_line_finds_its_sweep_again(desk: Desk) -> None:
    line = [SPACE, "budget.iterations=2", "~hydra.sweep.dir"]
    named = [item for item in [*SWEEP, *line] if "hydra.sweep.dir" not in item]
    for trials in (1, 2):
        command = [sys.executable, "-m", "paddock", *TINY, *named, f"hydra.sweeper.n_trials={trials}", "compute=serial"]
        subprocess.run(command, cwd=desk.here, env=desk.environment, check=True, capture_output=True)
    [folder] = (desk.here / "sweeps").iterdir()
    assert re.fullmatch(r"es_CartPole-v1_[0-9a-f]{6}", folder.name)
    assert len(open_study(folder).get_trials()) == 2


def test_reports_stand_at_equal_shares_of_the_budget_whatever_the_rollouts(desk: Desk) -> None:
    code, _, err = desk.call(SPACE, "budget.iterations=5", "hydra.sweeper.n_trials=1", "algo.eval_every=2")
    assert (code, err) == (0, "")
    [trial] = desk.trials()
    evaluated = {
        row["iteration"]: row["eval/return_mean"] for row in rows(desk.sweep / "0") if "eval/return_mean" in row
    }
    # After iteration 2 of 5, 40 % are spent, and after iteration 4 80 %.
    expected = {step: evaluated[2 if step <= 40 else 4] for step in range(1, 81)}
    assert trial.intermediate_values == expected


def test_a_study_goes_on_whose_last_line_was_cut_off(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "sweep")
    journal = sweep / "study.journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-1]) + lines[-1][:30])  # as a full disk does, or a kill
    study = open_study(sweep)
    assert [trial.state for trial in study.get_trials()] == [TrialState.COMPLETE] * 2 + [TrialState.RUNNING]
    for _ in range(2):
        study.tell(study.ask(), 1.0)
    assert [trial.state for trial in open_study(sweep).get_trials()[3:]] == [TrialState.COMPLETE] * 2


def make_session(
    sweep: Path,
    target: Any,
    draw: Callable[[optuna.Trial], list[str]],
    n_trials: int = 1,
    retries: int = 0,
    constraints: Sequence[str] = (),
    parallel: int | None = 1,
) -> SweepSession:
    """A process's part in a sweep, by random values of a seed that is the trial's number."""
    keys: dict[str, Any] = {"parallel": parallel, "n_trials": n_trials, "retries": retries, "on_failure": "continue"}
    keys |= {"constraints": constraints}
    keys |= {"make_sampler": lambda number: optuna.samplers.RandomSampler(seed=number)}
    keys |= {"objectives": ["maximize eval/return_mean"]}
    settings: Any = SimpleNamespace(**keys)
    return SweepSession(
        open_study(sweep),
        sweep,
        settings,
        target,
        lambda trial, run: (drawn := draw(trial), Plan(drawn, run, [])),
    )


class Ending:
    """A launch target whose runs end with these codes, one after the other; with 0 as a run that has been played."""

    stays, slots = False, 1

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)

    def start(self, plan: Plan) -> Any:
        code = self.codes.pop(0)
        if code == 0:
            (plan.run / "done.json").write_text(
                json.dumps({"reason": "budget.iterations=2", "metrics": {"eval/return_mean": 7.0, "eval/falls": None}})
            )
        return SimpleNamespace(ended=lambda: End(code, []))

    def close(self) -> None:
        pass


def test_trials_that_commands_went_on_with_have_all_their_retries(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "sweep", trials=1)
    trial = open_study(sweep).ask()
    Note(trial.number, "gone", ["k=1"], starts=9).write(sweep / "1")  # eight times it was stopped and gone on with
    assert make_session(sweep, Ending(-9, 0), lambda trial: ["k=1"], n_trials=2, retries=1).run() is None
    assert open_study(sweep).get_trials()[1].state == TrialState.COMPLETE
    trial = open_study(sweep).ask()
    assert make_session(sweep, Ending(-9, -9), lambda trial: ["k=1"], n_trials=3, retries=1).run() is None
    lost = open_study(sweep).get_trials()[2]
    assert lost.state == TrialState.FAIL and lost.user_attrs["failure"] == "its process was lost (-9), 2 times in all"


def test_what_is_no_number_keeps_within_no_bound(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "sweep", trials=1)
    bounds = ["eval/falls <= 9", "eval/falls >= 0", "eval/unknown <= 9", "eval/return_mean <= 9"]
    assert make_session(sweep, Ending(0), lambda trial: [], n_trials=2, constraints=bounds).run() is None
    trial = open_study(sweep).get_trials()[1]
    assert (trial.state, trial.value) == (TrialState.COMPLETE, 7.0)
    assert [trial.constraints[bound] > 0 for bound in bounds] == [True, True, True, False]


def test_a_trial_that_ends_after_its_sweep_was_killed_keeps_what_was_drawn(tmp_path: Path) -> None:
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


def test_a_trial_is_drawn_by_the_sweeps_sampler_though_its_sweep_was_killed_before(tmp_path: Path) -> None:
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
        (NO_ROOM, "the disk of trial 1 is full or gone; the trial is kept"),
        (NO_WORKERS, "the workers of trial 1 are out of reach; the trial is kept"),
    ],
)
def test_what_no_trial_would_have_ends_a_sweep_and_costs_no_trial(code: int, says: str, tmp_path: Path) -> None:
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
        assert session.run() is None and session.failed is None
        assert session.unable == says
        assert target.started == ["1"] and open_study(sweep).get_trials()[1].state == TrialState.RUNNING


@pytest.mark.parametrize(("part", "alone"), [(LatePool, 2), (SerialPool, 1)], ids=["at its start", "on its way"])
def test_a_trial_says_by_its_exit_code_that_workers_are_out_of_reach(
    part: Any, alone: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise PoolError("no scheduler")

    monkeypatch.setattr(part, "open" if part is LatePool else "imap_unordered", refuse)
    for run, code in ((write_sweep(tmp_path / "sweep", trials=1) / "1", NO_WORKERS), (tmp_path / "alone", alone)):
        if code == NO_WORKERS:
            Note(1, "me").write(run)
        assert call_main(*TINY, *QUICK, "budget.iterations=1", f"run.dir={run}") == code


def test_workers_out_of_reach_cost_no_trial_a_try(tmp_path: Path) -> None:
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
    target = OnWorkers(Gone(), Needs())  # type: ignore[arg-type]
    with pytest.raises(PoolError, match="lost the scheduler"):
        make_session(sweep, target, lambda trial: [], n_trials=2, retries=0).run()
    note = Note.read(sweep / "1")
    assert note is not None and note.losses == 0
    assert open_study(sweep).get_trials()[1].state == TrialState.RUNNING


def test_a_sweep_waits_for_workers_and_not_for_a_pool_that_has_failed(tmp_path: Path) -> None:
    class Empty:
        """A pool without workers, whose scheduler goes after a second look."""

        size, looks = 0, 0

        def open_batch(self, fn: Any, deliver: Any, **_: Any) -> Any:
            self.looks += 1
            if self.looks > 2:
                raise PoolError("lost the scheduler")
            return self

        def cancel(self) -> None: ...
        def close(self) -> None: ...

    sweep = write_sweep(tmp_path / "sweep", trials=1)
    target = OnWorkers(Empty(), Needs())  # type: ignore[arg-type]
    with pytest.raises(PoolError, match="lost the scheduler"):
        make_session(sweep, target, lambda trial: [], n_trials=2, parallel=None).run()
    assert len(open_study(sweep).get_trials()) == 1


def test_a_sweep_whose_own_folder_takes_nothing_more_ends_in_a_line(tmp_path: Path) -> None:
    def refuse() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    sweeper = OptunaSweeper()
    sweeper._folder = tmp_path
    with pytest.raises(
        RunFailed, match=r"is stopped \(No space left on device\); mend that, and the same command goes"
    ):
        sweeper._run(SimpleNamespace(run=refuse))  # type: ignore[arg-type]


def test_a_study_out_of_reach_costs_the_pruning_and_not_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sweep = write_sweep(tmp_path / "sweep", trials=1)
    trial = open_study(sweep).ask()
    run = sweep / str(trial.number)
    Note(trial.number, "me").write(run)
    reporter = Reporter(run, Note(trial.number, "me"))
    (sweep / "study.journal").rename(tmp_path / "gone")
    (sweep / "study.journal").mkdir()
    for percent in (10, 20):
        assert reporter.judge({"iteration": 1, "step": 1, "eval/return_mean": 1.0}, percent / 100) is None
    assert caplog.text.count("out of reach") == 1


def test_an_evaluation_is_reported_at_the_share_of_the_policy_evaluated(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "sweep", trials=1)
    study = open_study(sweep)
    trial = study.ask()
    note = Note(trial.number, "me")
    note.write(sweep / str(trial.number))
    reporter = Reporter(sweep / str(trial.number), note)
    for iteration, late, value in ((10, 10, 1.0), (20, 10, 2.0), (30, 20, 3.0), (30, 30, 4.0)):
        row = {"iteration": iteration, "step": 1, "eval/return_mean": value, "eval/of_iteration": late}
        assert reporter.judge(row, iteration / 100) is None
    reported = study.get_trials()[trial.number].intermediate_values
    assert reported == {p: 1.0 if p <= 10 else 3.0 if p <= 20 else 4.0 for p in range(1, 31)}


def test_runs_of_a_grid_side_by_side_are_those_of_one_after_the_other(desk: Desk) -> None:
    base = [sys.executable, "-m", "paddock", *TINY, "compute=serial", "budget.iterations=2", "--multirun", "seed=1,2,3"]
    outs = {}
    here = desk.here / "schön"  # of which each run is told the path
    here.mkdir()
    for folder, launcher in {"beside": "local", "after": "basic"}.items():
        command = [*base, f"hydra/launcher={launcher}", f"hydra.sweep.dir={folder}"]
        done = subprocess.run(command, cwd=here, env=desk.environment, check=True, capture_output=True, text=True)
        outs[folder] = done.stdout
    assert all(out.endswith("3 done\n") for out in outs.values())
    for number in "012":
        one, other = (here / folder / number / "metrics.jsonl" for folder in outs)
        assert one.read_bytes() == other.read_bytes()


def test_time_left_is_that_of_runs_like_those_that_have_ended() -> None:
    # Two took 15 s on average: one that has run for 5 s needs 10 s more, and three have not begun.
    assert estimate_left_s([10.0, 20.0], [5.0], waiting=3, slots=2) == (10 + 3 * 15) / 2
    assert estimate_left_s([10.0], [], waiting=1, slots=4) == 10
    assert estimate_left_s([10.0], [2.0, 40.0], waiting=0, slots=4) == 8
    assert estimate_left_s([10.0], [], waiting=0, slots=4) == 0


def test_each_run_of_a_grid_tells_its_end_and_the_time_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Ended:
        def __init__(self, run: Path) -> None:
            self.run = run

        def ended(self) -> End:
            if self.run.name == "wrong":
                return End(1, ["it burned"])
            write(self.run, [{"eval/return_mean": 7.0}])
            return End(0, [])

        def stop(self) -> None:
            raise AssertionError

    class OneByOne:
        stays, slots = False, 1

        def start(self, plan: Plan) -> Ended:
            return Ended(plan.run)

        def close(self) -> None:
            pass

    plans = [Plan([f"seed={name}"], tmp_path / name, []) for name in ("a", "b", "wrong")]
    with pytest.raises(RunFailed):
        _run_all(OneByOne(), plans, tmp_path)
    out, err = capsys.readouterr()
    lines = [re.sub(r"about \S+ left", "about T left", line) for line in out.splitlines()]
    assert f"ended {tmp_path / 'a'}: budget.iterations=2, return 7  (1 of 3, about T left)" in lines
    assert f"ended {tmp_path / 'b'}: budget.iterations=2, return 7  (2 of 3, about T left)" in lines
    assert err.splitlines() == [f"{tmp_path / 'wrong'} ended with exit code 1  (3 of 3)", "    | it burned"]


def test_a_grid_whose_folder_takes_nothing_more_ends_in_a_line(tmp_path: Path) -> None:
    class Full:
        stays, slots = False, 1

        def start(self, plan: Plan) -> Any:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def close(self) -> None:
            pass

    launcher = LocalLauncher()
    launcher._config = SimpleNamespace(hydra=SimpleNamespace(sweep=SimpleNamespace(dir=tmp_path)))  # type: ignore[assignment]
    launcher._keys = SimpleNamespace(open=Full)
    with pytest.raises(RunFailed, match=r"is stopped \(No space left on device\); .*hydra.sweep.dir=\S+ goes on"):
        launcher._run([Plan([], tmp_path / "0", [])])


def test_runs_side_by_side_have_their_share_of_cores_and_a_gpu_each(tmp_path: Path) -> None:
    target = LocalKeys(jobs=None, cpus=3, gpus=(4, 7)).open()
    code = "import os; print(*(os.environ[k] for k in ('CUDA_VISIBLE_DEVICES', 'OMP_NUM_THREADS', 'PYTHON_CPU_COUNT')))"
    plans = [Plan([], tmp_path / name, ["python", "-c", code]) for name in "abc"]
    assert target.slots == 2
    running = [target.start(plan) for plan in plans[:2]]
    ends = [wait_until(run.ended) for run in running if run is not None]
    running = [target.start(plans[2])]
    ends += [wait_until(run.ended) for run in running if run is not None]
    assert [(end.code, end.said) for end in ends] == [(0, ["4 3 3"]), (0, ["7 3 3"]), (0, ["4 3 3"])]


def test_trials_on_dask_workers_outlive_their_workers(desk: Desk, scheduler: str, worker: Callable[..., str]) -> None:
    for _ in range(2):
        worker()
    line = [*PACED, SPACE, "budget.iterations=6", "hydra.sweeper.n_trials=3", "hydra.sweeper.pruner=none"]
    desk.slow.touch()
    process = desk.begin(*line, "hydra/launcher=dask", f"hydra.launcher.address={scheduler}")
    wait_until(lambda: rows(desk.sweep / "0"), 120)
    [victim] = [p for p in psutil.process_iter() if f"run.dir={desk.sweep}/0" in command_line(p)]
    parent = victim.parent()
    assert parent is not None
    parent.kill()
    assert len(rows(desk.sweep / "0")) < 6
    desk.slow.unlink()
    _, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert desk.count(TrialState.COMPLETE) == 3
    assert [row["iteration"] for row in rows(desk.sweep / "0")] == [*range(1, 7)]


def test_runs_on_dask_workers_end_with_their_sweep_and_the_same_line_goes_on(
    desk: Desk, scheduler: str, worker: Callable[..., str]
) -> None:
    worker()
    line = [*PACED, "budget.iterations=20", "hydra/launcher=dask", f"hydra.launcher.address={scheduler}"]
    desk.slow.touch()
    process = desk.begin(*line, SPACE, "hydra.sweeper.n_trials=1", "hydra.sweeper.pruner=none")
    run = desk.sweep / "0"
    wait_until(lambda: rows(run), 120)
    process.kill()
    process.wait()
    wait_until(lambda: not [p for p in psutil.process_iter() if f"run.dir={run}" in command_line(p)], 60)
    assert 0 < len(rows(run)) < 20
    desk.slow.unlink()
    code, _, err = desk.call(*line, SPACE, "hydra.sweeper.n_trials=1", "hydra.sweeper.pruner=none")
    assert (code, err) == (0, "")
    assert [row["iteration"] for row in rows(run)] == [*range(1, 21)]


@pytest.mark.slurm
def test_trials_in_slurms_queue_go_on_without_the_sweep(desk: Desk, slurm: Slurm) -> None:  # noqa: F811
    desk.environment |= slurm.environment
    line = [*PACED, SPACE, "budget.iterations=6", "hydra.sweeper.n_trials=3", "hydra/launcher=slurm", *PRUNED]
    line += ["hydra.launcher.max_parallel=2"]
    desk.slow.touch()
    process = desk.begin(*line)
    wait_until(lambda: rows(desk.sweep / "0"))
    desk.kill(process)
    assert len(rows(desk.sweep / "0")) < 6
    desk.slow.unlink()
    submitted = json.loads((desk.sweep / "0" / "submission.json").read_text())["job"]
    code, _, err = desk.call(*line)
    assert (code, err) == (0, "")
    assert desk.count(*FINISHED) == 3
    assert json.loads((desk.sweep / "0" / "submission.json").read_text())["job"] == submitted  # not a second one
