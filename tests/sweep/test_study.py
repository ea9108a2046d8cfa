"""Which sweep a folder and a study hold: what is refused before anything is written, and what goes on."""

from pathlib import Path
from typing import Any

import optuna
import pytest
from conftest import TINY, call_main
from optuna.trial import TrialState
from run_folders import write_sweep
from sweep_commands import QUICK, SPACE, SWEEP

from paddock.sweep.study import open_study
from paddock.sweep.trials import SweepSession


def test_wrong_sweep_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = {
        "algo.strategy.learning_rate=interval(-1, 1)": "algo.strategy.learning_rate=-1.0 must be positive",
        "algo.population=interval(16, 64)": "must be an integer",
        f"{SPACE} hydra.launcher.gpus=[-1]": "hydra.launcher.gpus=[-1] must be GPU numbers",
        f"{SPACE} hydra.sweeper.sampler=tp": "hydra.sweeper.sampler=tp is not an option; did you mean 'tpe'?",
        f"{SPACE} budget.iterations=null": "every trial needs a budget",
        f"{SPACE} run.dir=x": "run.dir=x would be shared by all trials",
        "seed=1": "no search space given",
    }
    for arguments, says in wrong.items():
        key, _, rest = arguments.partition(") ")
        words = [f"{key})", *rest.split()] if rest else [arguments]
        code = call_main(*TINY, *QUICK, *SWEEP, "budget.iterations=1", *words)
        err = capfd.readouterr().err
        assert code == 2 and says in err and len(err.splitlines()) == 1, (arguments, err)
    assert not (tmp_path / "sweep").exists()


OWN_SPACE = """
# @package _global_
defaults:
  - override /hydra/sweeper: optuna
  - override /hydra/launcher: local
budget:
  iterations: 2
algo:
  strategy:
    learning_rate: 0.05
hydra:
  sweeper:
    params: {algo.strategy.sigma: '0.1,0.2'}
"""


def test_keys_of_a_sweep_file_that_no_run_would_have_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine/sweep").mkdir(parents=True)
    (tmp_path / "mine/sweep/own.yaml").write_text(OWN_SPACE.lstrip())
    line = [*TINY, *QUICK, "--config-dir", "mine", "sweep=own", "-m", "hydra.sweep.dir=sweep", "dry_run=true"]
    assert call_main(*line) == call_main(*line, "algo.strategy.learning_rate=0.05") == 2
    remedy = "which the sweep's processes do not get; set it on the command line or in an experiment file"
    first, second = capfd.readouterr().err.splitlines()
    assert first == f"paddock: sweep=own sets algo.strategy.learning_rate, budget.iterations, {remedy}"
    assert second == f"paddock: sweep=own sets budget.iterations, {remedy}"
    assert not (tmp_path / "sweep").exists()
    assert call_main(*line, "algo.strategy.learning_rate=0.05", "budget.iterations=2") == 0


def test_folder_holds_one_sweep_whose_bounds_alone_may_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    done = optuna.trial.create_trial(value=1.0)
    monkeypatch.setattr(SweepSession, "run", lambda self: self._study.add_trial(done))
    line = [*TINY, *QUICK, *SWEEP, SPACE, "hydra.sweeper.n_trials=1", "budget.iterations=1"]
    named, choices, sigma = (
        [*line, "hydra.sweeper.study=s"],
        "algo.population=16,32",
        "algo.strategy.sigma=interval(0.1, 0.2)",
    )
    assert call_main(*named, choices, sigma) == 0
    before, _ = (tmp_path / "sweep" / "sweep.json").read_bytes(), capfd.readouterr()
    for arguments, key in {
        (*line, choices, sigma): "study s, but this command has es_CartPole",
        (*named, choices, sigma, "env=acrobot"): "arguments ",
        (*named, choices, sigma, "hydra.sweeper.objectives=[minimize step]"): "objectives ",
        (*named, "algo.population=16,64", sigma): "parameters ",
        (*named, choices): "parameters ",
    }.items():
        assert call_main(*arguments) == 2
        err = capfd.readouterr().err
        assert f"sweep holds a sweep with {key}" in err and "use the same, or" in err and err.count("\n") == 1, err
    assert (tmp_path / "sweep" / "sweep.json").read_bytes() == before
    assert call_main(*named, choices, sigma.replace("0.2", "0.3"), "vec.num_envs=3") == 0


def test_folder_with_other_runs_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sweep/0").mkdir(parents=True)
    (tmp_path / "sweep/0/config.yaml").touch()
    assert call_main(*TINY, *QUICK, *SWEEP, SPACE, "budget.iterations=1") == 2
    assert "sweep holds other runs; choose another folder by hydra.sweep.dir=" in capfd.readouterr().err


def test_sweep_of_failed_trials_resumes_with_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def play(self: SweepSession) -> None:
        for number in range(len(self._trials()), self._settings.n_trials):
            done: Any = {"state": TrialState.FAIL} if number == 0 else {"value": 1.0}
            self._study.add_trial(optuna.trial.create_trial(**done))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(SweepSession, "run", play)
    line = [*TINY, *QUICK, *SWEEP, SPACE, "budget.iterations=1"]
    for _ in range(2):  # the same line has no more trials to offer
        assert call_main(*line, "hydra.sweeper.n_trials=1") == 1
        remedy = "fix the errors above and increase hydra.sweeper.n_trials"
        assert capfd.readouterr().err.startswith(f"paddock: all trials failed; {remedy}")
    assert call_main(*line, "hydra.sweeper.n_trials=2") == 0


def test_study_name_depends_on_what_changes_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def name(*arguments: str) -> str:
        space = "algo.eval_episodes=range(1, 3)"
        line = ["env=cartpole", *QUICK, "budget.iterations=1", "-m", "hydra/sweeper=optuna", "dry_run=true", space]
        assert call_main(*line, *arguments) == 0
        return capfd.readouterr().out.split()[1]

    assert name("algo=es", "vec=native") == name("algo=es", "vec.num_envs=16")
    assert name("algo=ppo", "vec=multiprocess") == name("algo=ppo") != name("algo=ppo", "vec.num_envs=16")


def test_study_with_a_cut_off_last_line_resumes(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "sweep")
    journal = sweep / "study.journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-1]) + lines[-1][:30])  # as a full disk does, or a kill
    study = open_study(sweep)
    assert [trial.state for trial in study.get_trials()] == [TrialState.COMPLETE] * 2 + [TrialState.RUNNING]
    for _ in range(2):
        study.tell(study.ask(), 1.0)
    assert [trial.state for trial in open_study(sweep).get_trials()[3:]] == [TrialState.COMPLETE] * 2
