"""Which sweep a folder and a study hold: what is refused before anything is written, and what goes on."""

import json
import re
from pathlib import Path
from typing import Any

import optuna
import pytest
from conftest import TINY, call_main
from optuna.trial import TrialState
from run_folders import write_sweep
from sweep_commands import QUICK, SPACE, SWEEP

from paddock.envs.errors import ConfigError
from paddock.sweep.study import StudySettings, open_storage, open_study, parse_objectives
from paddock.sweep.trials import SweepSession


def test_a_sweep_refuses_what_cannot_work_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = {
        "algo.learning_rate=interval(-1, 1)": "algo.learning_rate=-1.0 must be positive",
        "algo.learning_rat=interval(0, 1)": "did you mean 'algo.learning_rate'?",
        "algo.population=interval(16, 64)": (
            "a whole number; interval(16, 64) has all numbers between, and int(interval(16, 64)) the whole ones"
        ),
        f"{SPACE} hydra.sweeper.sampler=tpe hydra.sweeper.options.tpe.n_startup_trials=0": "must be at least 1",
        f"{SPACE} hydra.sweeper.options.median.n_warmup_steps=101": "must be between 0 and 100 percent",
        f"{SPACE} hydra.sweeper.pruner=hyperband hydra.sweeper.options.hyperband.min_resource=0": "must be at least 1",
        f"{SPACE} hydra.launcher.gpus=[-1]": "hydra.launcher.gpus=[-1] must be numbers from 0 on, or names of GPUs",
        f"{SPACE} hydra.sweeper.sampler=tp": "hydra.sweeper.sampler=tp is unknown; did you mean 'tpe'?",
        f"{SPACE} hydra.sweeper.study=..": "hydra.sweeper.study=.. names no folder of its own below sweeps/; choose a",
        f"{SPACE} hydra.sweeper.study=.": "hydra.sweeper.study=. names no folder of its own below sweeps/; choose a",
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


OWN_SPACE = """
# @package _global_
defaults:
  - override /hydra/sweeper: {sweeper}
  - override /hydra/launcher: {launcher}
budget:
  iterations: 2
algo:
  learning_rate: 0.05
hydra:
  sweeper:
    params: {{algo.sigma: '0.1,0.2'}}
"""


@pytest.mark.parametrize(("sweeper", "launcher"), [("optuna", "local"), ("optuna", "basic"), ("basic", "local")])
def test_what_no_process_of_a_sweep_would_have_is_refused_by_its_keys(
    sweeper: str, launcher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine/sweep").mkdir(parents=True)
    (tmp_path / "mine/sweep/own.yaml").write_text(OWN_SPACE.format(sweeper=sweeper, launcher=launcher).lstrip())
    line = [*TINY, *QUICK, "--config-dir", "mine", "sweep=own", "-m", "hydra.sweep.dir=sweep", "dry_run=true"]
    assert call_main(*line) == call_main(*line, "algo.learning_rate=0.05") == 2
    remedy = "which no process of the sweep would have; say it on the command line or in an experiment"
    first, second = capfd.readouterr().err.splitlines()
    assert first == f"paddock: sweep=own sets algo.learning_rate, budget.iterations, {remedy}"
    assert second == f"paddock: sweep=own sets budget.iterations, {remedy}"
    assert not (tmp_path / "sweep").exists()
    assert call_main(*line, "algo.learning_rate=0.05", "budget.iterations=2") == 0


def test_a_folder_of_another_sweep_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(write_sweep(tmp_path / "sweep", trials=1).parent)
    other = "hydra.sweeper.objectives=[minimize eval/return_mean]"
    for extra, says in {
        "hydra.sweeper.seed=5": "holds the sweep s, which this line is not",
        "hydra.sweeper.study=s": "holds a sweep with other objectives (their order counts), constraints or storage",
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
        ): "other objectives (their order counts), constraints or storage",
        ("algo.population=16,64",): "algo.population was drawn from 16,32 in the study s, and is now 16,64; use",
        ("algo.population=int(interval(16, 64))",): "from 16,32 in the study s, and is now a whole number; use its own",
    }.items():
        code = call_main(*named, *arguments, more)
        err = capfd.readouterr().err
        assert code == 2 and says in err and len(err.splitlines()) == 1, err
    assert (tmp_path / "sweep" / "sweep.json").read_bytes() == before
    assert call_main(*named, "algo.population=16,32", more, "compute=local", "compute.workers=1") == 0
    assert [trial.state for trial in open_study(tmp_path / "sweep").get_trials()] == [TrialState.COMPLETE] * 2


def test_the_parameters_of_a_study_stay_and_their_bounds_may_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    done = optuna.trial.create_trial(value=1.0)
    monkeypatch.setattr(SweepSession, "run", lambda self: self._study.add_trial(done))
    named = [*TINY, *QUICK, *SWEEP, SPACE, "hydra.sweeper.study=s", "hydra.sweeper.n_trials=1", "budget.iterations=1"]
    kinds, sigma = "algo.normalize_observations=true,false", "algo.sigma=interval(0.1, 0.2)"
    only = 'algo.sigma=tag("when:algo.normalize_observations=True", interval(0.1, 0.2))'
    assert call_main(*named, kinds, sigma) == 0
    capfd.readouterr()
    remedy = "use its own, or another study="
    for arguments, says in {
        (kinds, "algo.weight_decay=interval(0.1, 0.2)"): "that vary algo.sigma, and this line says algo.weight_decay;",
        (kinds,): "that vary algo.sigma, and this line says nothing else;",
        (kinds, only): "and this line says algo.sigma when algo.normalize_observations=True;",
    }.items():
        assert call_main(*named, *arguments) == 2
        err = capfd.readouterr().err
        assert f"{says} {remedy}" in err and len(err.splitlines()) == 1, err
    assert call_main(*named, sigma.replace("0.2", "0.3"), kinds) == 0
    told = json.loads((tmp_path / "sweep/sweep.json").read_text())
    del told["parameters"]  # as a sweep had none before they were kept
    (tmp_path / "sweep/sweep.json").write_text(json.dumps(told))
    assert call_main(*named, kinds) == 0


def test_the_objectives_of_a_study_keep_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    done = optuna.trial.create_trial(values=[1.0, 2.0])
    monkeypatch.setattr(SweepSession, "run", lambda self: self._study.add_trial(done))
    named = [*TINY, *QUICK, *SWEEP, SPACE, "hydra.sweeper.study=s", "hydra.sweeper.n_trials=1", "budget.iterations=1"]
    texts = ["maximize eval/return_mean", "minimize step"]
    assert call_main(*named, f"hydra.sweeper.objectives={texts}") == 0
    capfd.readouterr()
    assert call_main(*named, f"hydra.sweeper.objectives={texts[::-1]}") == 2
    err = capfd.readouterr().err
    assert "sweep holds a sweep with other objectives (their order counts)" in err and len(err.splitlines()) == 1


def test_a_sweep_all_of_whose_trials_failed_goes_on_with_more_of_them(
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
        remedy = "mend that, and raise hydra.sweeper.n_trials, or name another hydra.sweeper.study="
        assert capfd.readouterr().err == f"paddock: all trials failed; see above; {remedy}\n"
    assert call_main(*line, "hydra.sweeper.n_trials=2") == 0


def test_no_metric_is_two_objectives() -> None:
    assert list(parse_objectives(["minimize step", "maximize a/b"]).items()) == [
        ("step", "minimize"),
        ("a/b", "maximize"),
    ]
    with pytest.raises(ConfigError, match="objectives: step is named twice; name each metric once"):
        parse_objectives(["maximize step", "minimize step"])


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


@pytest.mark.parametrize("file", ["config.yaml", "submission.json"], ids=["begun", "submitted"])
def test_runs_of_a_grid_are_no_trials_of_a_sweep(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in ("0", "1", "of old"):
        (tmp_path / "sweep" / number).mkdir(parents=True)
        (tmp_path / "sweep" / number / file).write_text("{}")
    assert call_main(*TINY, *QUICK, *SWEEP, SPACE, "budget.iterations=1") == 2
    err = capfd.readouterr().err
    assert re.search(r"sweep has runs that are no trials of the study \S+, as 0, 1; name another folder", err)
    assert len(err.splitlines()) == 1 and not (tmp_path / "sweep" / "sweep.json").exists()


def test_the_command_that_a_sweep_keeps_has_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    memory = optuna.storages.InMemoryStorage()
    monkeypatch.setattr(optuna.storages, "get_storage", lambda url: memory)
    done = optuna.trial.create_trial(value=1.0)
    monkeypatch.setattr(SweepSession, "run", lambda self: self._study.add_trial(done))
    url = "postgresql://me:sec/ret@host/db"
    assert call_main(*TINY, *QUICK, *SWEEP, SPACE, "budget.iterations=1", f"hydra.sweeper.storage='{url}'") == 0
    about = StudySettings.read(tmp_path / "sweep")
    assert about.storage == url and "postgresql://me:...@host/db" in about.command and "sec/ret" not in about.command
    assert "sec/ret" not in "".join(capfd.readouterr())


def test_a_storage_that_cannot_be_opened_is_named_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"storage=nosuch://me:\.\.\.@host/db cannot be opened \(") as caught:
        open_storage(tmp_path, "nosuch://me:secret@host/db")
    assert "secret" not in str(caught.value)


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
