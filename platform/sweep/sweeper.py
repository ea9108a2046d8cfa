"""Sweeps by Optuna under Hydra's multirun.

python -m platform -m hydra/sweeper=optuna algo=ppo env=cartpole 'algo.learning_rate=tag(log, interval(1e-5, 1e-2))'

Each trial is a run in `sweeps/<study>/<number>`, in a separate process that reports its evaluations to the study
(`trial.py`). Several commands may work on one study. Unfinished trials of a killed command are resumed from their
checkpoints by the next command, or by another one that is still running.
"""

import contextlib
import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import optuna
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict
from optuna.trial import Trial, TrialState

from paddock.envs.errors import ConfigError, require

from ..config.build import call_checked
from ..config.command import display_path
from ..config.compose import hydra_overrides, job_config, load_job
from ..config.grid import check_sweep_file
from ..config.overrides import format_source_arguments
from ..runs.identity import NUM_ENVS, algorithm_name, count_envs, short_name
from ..runs.loop import RunFailed
from ..runs.provenance import format_command
from .finals import RESULT, pick_finalists
from .finals_session import FinalsSession
from .launchers import LocalKeys, SweepLauncher
from .placement import NOT_PASSED, LaunchTarget, Plan, plan_job
from .space import corners, format_parameters, read_space, suggest
from .study import (
    SETTINGS,
    StudySettings,
    SweepSettings,
    open_storage,
    open_study,
    parse_objectives,
)
from .summary import print_summary
from .trial import Note
from .trials import SweepSession, locked

SWEEPS = "sweeps"  # default parent folder of sweeps
# Sections that do not affect the results of trials.
IGNORED = ("sweep", "compute", "vec", "track", "run", "resume", "dry_run", "checkpoint")


def select_relevant(arguments: Sequence[str]) -> list[str]:
    """Return the fixed arguments that affect the results of trials, sorted."""
    return sorted(item for item in arguments if item.lstrip("+~").split("=")[0].split(".")[0] not in IGNORED)


def check_same(before: StudySettings, about: StudySettings, where: str) -> None:
    """Raise ConfigError unless a command describes the sweep that its folder holds."""

    def identity(one: StudySettings) -> dict[str, Any]:
        return {
            "study": one.study,
            "objectives": [f"{direction} {metric}" for metric, direction in one.objectives.items()],
            "arguments": select_relevant(one.fixed),
            NUM_ENVS: one.num_envs,
            "parameters": one.parameters,
        }

    was, now = identity(before), identity(about)
    for key in was:
        what = f"{where} holds a sweep with {key} {was[key]}, but this command has {now[key]}"
        require(was[key] == now[key], f"{what}; use the same, or another hydra.sweep.dir= or hydra.sweeper.study=")


class OptunaSweeper(Sweeper):
    """Hydra sweeper that searches with Optuna: `hydra/sweeper=optuna`."""

    check: Callable[[DictConfig], Any]  # raises the errors of a job before any job starts

    def __init__(self, **_: Any) -> None:
        """Ignore the keys, which `setup` reads from the configuration."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Check the keys and determine the sweep's folder."""
        keys: Any = OmegaConf.to_container(config.hydra.sweeper, resolve=True)
        del keys["_target_"]
        self._settings = call_checked("hydra.sweeper", SweepSettings, keys)
        parser = OverridesParser.create(config_loader=hydra_context.config_loader)
        params = [f"{key}={text}" for key, text in self._settings.params.items()]
        arguments = [*params, *config.hydra.overrides.task]
        self._fixed, self._parameters = read_space(parser.parse_overrides(arguments))
        remedy = "add sweep=ppo or 'algo.learning_rate=interval(1e-5,1e-3)'"
        require(len(self._parameters) > 0, f"no search space given; {remedy}")
        finals = self._settings.count_finals() or self._settings.count_held_out()
        what = "seed is a parameter of the search, and finals choose seeds themselves"
        varies = any(parameter.name == "seed" for parameter in self._parameters)
        require(not (finals and varies), f"{what}; remove it, or set hydra.sweeper.finals=0 hydra.sweeper.held_out=0")
        self._name = self._settings.study or self._make_name(config)
        with open_dict(config):
            if not any(item.startswith("hydra.sweep.dir=") for item in hydra_overrides(config.hydra)):
                config.hydra.sweep.dir = f"{SWEEPS}/{self._name}"
        self._folder = Path(config.hydra.sweep.dir).absolute()
        self._loader, self._config = hydra_context.config_loader, config
        launcher = Plugins.instance().instantiate_launcher(
            config=config, hydra_context=hydra_context, task_function=task_function
        )
        self._open: Callable[[], LaunchTarget] = LocalKeys(jobs=None, cpus=1, gpus=()).open
        self._copy_of: Callable[[Path], Path | None] = lambda path: None
        if isinstance(launcher, SweepLauncher):  # rather than one of Hydra's
            self._open, self._copy_of = launcher.open, launcher.copy_of

    def sweep(self, arguments: list[str]) -> None:
        """Run trials until the study has `n_trials`.

        Raises:
            ConfigError: a point of the search space is invalid, or the folder holds another sweep.
            RunFailed: all trials failed.
        """
        settings, points = self._settings, corners(self._parameters)
        check_sweep_file(self._loader, self._config, [*self._fixed, *points[0]])
        for number, point in enumerate(points):
            self._check([*self._fixed, *point], number)
        if self._config.dry_run:
            self._print_space()
            return
        self._create()
        study = open_study(self._folder)
        print(f"sweep {self._name}: {settings.n_trials} trials in {display_path(self._folder)}", flush=True)
        with contextlib.closing(self._open()) as target:
            session = SweepSession(study, self._folder, settings, target, self._plan)
            caught = self._run(session.run)
            if caught is None and session.ended_by is None:
                caught = self._run_finals(study, target)
        print_summary(study, self._folder)
        if caught is not None:
            print("run the same command to resume the sweep", flush=True)
            raise SystemExit(128 + caught)
        if session.ended_by is not None:
            raise RunFailed(session.ended_by)
        if all(trial.state == TrialState.FAIL for trial in study.get_trials(deepcopy=False)):
            remedy = "fix the errors above and increase hydra.sweeper.n_trials, or set another hydra.sweeper.study="
            raise RunFailed(f"all trials failed; {remedy}")

    def _run_finals(self, study: optuna.Study, target: LaunchTarget) -> int | None:
        settings, trials = self._settings, study.get_trials(deepcopy=False)
        limit, held_out = settings.count_finals(), settings.count_held_out()
        maximize = study.directions[0] == optuna.study.StudyDirection.MAXIMIZE
        finalists = pick_finalists(trials, maximize, max(limit, 1)) if limit or held_out else []
        if not finalists:
            return None
        rounds = len(finalists).bit_length() - 1
        runs = f"{len(finalists)} trials, {len(finalists) * rounds} runs" if rounds else f"trial {finalists[0]}"
        print(f"finals: {runs}, and {held_out} runs on held-out seeds", flush=True)
        session = FinalsSession(self._folder, settings, target, self._plan_final, finalists, self._config.seed)
        return self._run(session.run)

    def _run(self, run: Callable[[], int | None]) -> int | None:
        try:
            return run()
        except BrokenPipeError:
            raise
        except OSError as error:
            what = f"the sweep in {display_path(self._folder)} stopped ({error.strerror or type(error).__name__})"
            raise RunFailed(f"{what}; fix this, then run the same command to resume") from error

    def _make_name(self, config: DictConfig) -> str:
        """Return a name that identifies the sweep, independent of its folder and number of trials."""
        settings = self._settings
        identity = [
            select_relevant(self._fixed),
            sorted(f"{parameter}" for parameter in self._parameters),
            list(settings.objectives),
            [settings.sampler, settings.seed, settings.pruner, dict(settings.options)],
            count_envs(config),
        ]
        digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:6]
        env = config.env.get("id") or str(config.env._target_).rpartition(".")[2]
        return f"{algorithm_name(config)}_{short_name(env)}_{digest}"

    def _check(self, overrides: Sequence[str], number: int) -> None:
        config = load_job(self._loader, self._config, overrides, number)
        with open_dict(config):  # not the folder of a trial
            config.hydra.runtime.output_dir = str(self._folder / "new")
        job = job_config(config)
        bounds = [job.budget.get(name) for name in ("iterations", "steps", "minutes")]
        remedy = "set budget.steps, budget.iterations or budget.minutes"
        require(any(bound is not None for bound in bounds), f"every trial needs a budget; {remedy}")
        require(job.resume is None, f"resume={job.resume} is for single runs; repeat the command to resume a sweep")
        require(job.run.dir is None, f"run.dir={job.run.dir} would be shared by all trials; use hydra.sweep.dir=")
        type(self).check(job)

    def _print_space(self) -> None:
        print(f"study        {self._name}")
        print(f"folder       {display_path(self._folder)}")
        print(f"trials       {self._settings.n_trials}, by {self._settings.sampler}, pruned by {self._settings.pruner}")
        for parameter in self._parameters:
            print(f"{parameter.name}  {parameter.distribution}")

    def _create(self) -> None:
        settings = self._settings
        about = StudySettings(
            study=self._name,
            objectives=parse_objectives(settings.objectives),
            pruner=settings.pruner,
            pruner_options=settings.pruner_options,
            fixed=[item for item in self._fixed if not item.startswith(NOT_PASSED)],
            command=format_command(sys.orig_argv),
            sources=format_source_arguments(self._config.hydra),
            num_envs=None if {"vec", NUM_ENVS} & {one.name for one in self._parameters} else count_envs(self._config),
            parameters=format_parameters(self._parameters),
            n_trials=settings.n_trials,
            finals=settings.count_finals(),
            held_out=settings.count_held_out(),
        )
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with locked(self._folder):
                known = (self._folder / SETTINGS).exists()
                if known:
                    check_same(StudySettings.read(self._folder), about, display_path(self._folder))
                directions = [optuna.study.StudyDirection[way.upper()] for way in about.objectives.values()]
                names: Any = {"storage": open_storage(self._folder), "study_name": self._name}
                optuna.create_study(**names, directions=directions, load_if_exists=True)
                runs = not known and any(self._folder.glob("[0-9]*/config.yaml"))
                require(
                    not runs,
                    f"{display_path(self._folder)} holds other runs; choose another folder by hydra.sweep.dir=",
                )
                about.write(self._folder)
                (self._folder / RESULT).unlink(missing_ok=True)  # written again after the finals
        except OSError as error:
            remedy = "choose another folder with hydra.sweep.dir="
            raise ConfigError(f"{display_path(self._folder)} cannot be written ({error.strerror}); {remedy}") from error

    def _plan(self, trial: Trial, run: Path) -> tuple[list[str], Plan]:
        """Sample the missing parameters of a trial; return its overrides and the plan to start it."""
        sampled = suggest(trial, self._parameters)
        overrides = [*self._fixed, *sampled]
        return sampled, plan_job(self._loader, self._config, overrides, trial.number, run, self._copy_of)

    def _plan_final(self, number: int, seed: int, run: Path) -> Plan:
        note = Note.read(self._folder / str(number))
        fixed = [item for item in self._fixed if not item.startswith("seed=")]
        overrides = [*fixed, *(note.overrides if note else ()), f"seed={seed}"]
        return plan_job(self._loader, self._config, overrides, number, run, self._copy_of)
