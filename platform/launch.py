"""Main command: compose the configuration, check it, build the experiment, and run it.

python -m platform algo=es env=bipedal compute=dask
"""

import argparse
import contextlib
import importlib.metadata
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from paddock.algos.pool.protocol import PoolError
from paddock.algos.protocol import Describes
from paddock.envs.errors import NO_WORKERS, PaddockError, require

from .config.command import display_path, format_main_command, print_error, run_and_flush
from .config.compose import ACTIONS, composed, explained, make_argument_parser, parse_arguments
from .config.experiment import Experiment, assemble
from .config.grid import compose_grid
from .config.help import print_help
from .config.hydra_private import run_hydra
from .config.overrides import format_run_dir, format_source_arguments
from .config.plugins import check_runs_here, register_plugin
from .runs.folder import FolderTaken
from .runs.identity import env_name
from .runs.loop import Outcome, RunFailed
from .runs.state import read_run_states
from .runs.table import print_table
from .session import check_start, run_session
from .sweep.claim import check_folder, claim_folder
from .sweep.trial import is_trial
from .tracking.tracker import HasCommands

T = TypeVar("T")


def main() -> int:
    """Run the command `paddock`.

    Exit codes: 0 done; 1 the run failed; 2 bad input; 69 a trial's workers are unreachable; 74 a disk is full or gone;
    75 another process uses the run folder; 128 + n stopped by signal n.
    """
    return run_and_flush(_launch)


def _launch() -> int:
    os.environ["HYDRA_FULL_ERROR"] = "1"  # makes Hydra raise its errors, which are then reported in one line
    runs: list[Path] = []  # started by this process
    multirun = False
    if "--version" in sys.argv[1:]:
        print(f"Paddock {importlib.metadata.version('paddock')}")
        return 0
    try:
        arguments = parse_arguments()
        multirun = arguments.multirun
        if arguments.help:
            print_help(arguments)
        elif multirun:
            _sweep(arguments, runs)
        elif any(getattr(arguments, action) for action in ACTIONS):
            with explained(arguments):
                run_hydra(arguments, make_argument_parser(), lambda config: None)
        else:
            retry_if_folder_taken(lambda: _run(arguments, runs))
    except RunFailed as error:
        code = print_error(error, _exit_code(error, runs))
        if isinstance(error.__cause__, PoolError) and not multirun:
            print(f"  {_format_resume(runs[-1])}", file=sys.stderr)
        return code
    except PaddockError as error:
        return print_error(error, _exit_code(error, runs))
    return 0


def _exit_code(error: PaddockError, runs: Sequence[Path]) -> int:
    """Return an error's exit code; a trial whose pool failed has its own, since all trials would fail alike."""
    cause = error.__cause__ if isinstance(error, RunFailed) else error
    pool_failed = isinstance(cause, PoolError) and runs and is_trial(runs[-1])
    return NO_WORKERS if pool_failed else error.exit_code


def retry_if_folder_taken(start: Callable[[], T]) -> T:
    """Call a function that starts a run until no other process takes the folder chosen for it."""
    while True:
        with contextlib.suppress(FolderTaken):
            return start()


def _run(arguments: argparse.Namespace, runs: list[Path]) -> None:
    experiment = prepare(arguments)
    runs[:] = [experiment.path]
    run_experiment(experiment)


def prepare(words: Sequence[str] | argparse.Namespace) -> Experiment:
    """Compose and build one experiment, and set this process's environment variables."""
    with composed(words) as config:
        check_runs_here()
        experiment = assemble(config)
        os.environ.update(HydraConfig.get().job.env_set)
    return experiment


def _sweep(arguments: argparse.Namespace, runs: list[Path]) -> None:
    """Check every job of a sweep, then run them; in a dry run, print them."""
    # Optuna and the launchers are slow to import, and a single run does not need them.
    from .slurm.submit import SlurmLauncher
    from .sweep.launchers import DaskLauncher, LocalLauncher
    from .sweep.sweeper import OptunaSweeper

    def check(config: DictConfig) -> Path:
        check_folder(HydraConfig.get().sweep.dir)
        experiment = assemble(config)
        check_start(experiment)
        return experiment.path

    def job(config: DictConfig) -> float | None:
        experiment = assemble(config)
        runs.append(experiment.path)
        return run_experiment(experiment, sweep=True)

    OptunaSweeper.check = staticmethod(check)
    for plugin in (LocalLauncher, DaskLauncher, SlurmLauncher, OptunaSweeper):
        register_plugin(plugin)
    grid = compose_grid(arguments)
    with contextlib.ExitStack() as stack:
        if grid is not None:
            if grid.config.dry_run is not True:
                stack.enter_context(claim_folder(grid.config, arguments))
            folders: dict[Path, int] = {}
            for number, config in grid.configs():
                folder = check(config)
                other = folders.setdefault(folder, number)
                remedy = "remove run.dir and resume from the sweep"
                require(other == number, f"jobs {other} and {number} of the sweep would share {folder}; {remedy}")
            if grid.config.dry_run is True:
                return grid.preview(job)
        with explained(arguments):
            run_hydra(arguments, make_argument_parser(), job)
    if len(runs) > 1 and runs[0].exists():
        print_table(Path(os.path.commonpath(runs)), read_run_states(runs), 0)


def run_experiment(experiment: Experiment, sweep: bool = False) -> float | None:
    """Run or preview an experiment; return the mean return of its last evaluation, for sweeps."""
    if experiment.config["dry_run"]:
        print_dry_run(experiment)
        return None
    resume = _format_resume(experiment.path, sweep)
    outcome, ran = run_session(experiment, resume=resume)
    if ran:
        _print_end(experiment, outcome, resume)
    stopped = outcome.caught if sweep else outcome.signal  # after a signal, a grid starts no further runs
    if stopped is not None:
        raise SystemExit(128 + stopped)
    return outcome.metrics.get("eval/return_mean")


def print_dry_run(experiment: Experiment) -> None:
    """Print a summary of the experiment instead of running it."""
    config, algorithm, origin = experiment.config, experiment.algorithm, check_start(experiment)
    lines = {
        "algorithm": config["algo"]["_target_"],
        "environment": env_name(config),
        "workers": experiment.pool.describe(),
        "devices": "cpu",
        **(algorithm.describe() if isinstance(algorithm, Describes) else {}),
        **({} if origin is None else {"init_from": origin.describe()}),
        "budget": ", ".join(f"{key}={value}" for key, value in config["budget"].items() if value is not None)
        or "none: runs until Ctrl-C",
        "folder": display_path(experiment.path),
    }
    for name, text in lines.items():
        print(f"{name:12} {text}")


def _print_end(experiment: Experiment, outcome: Outcome, resume: str) -> None:
    path = display_path(experiment.path)
    print(format_end(experiment.path, outcome))
    print(f"  python -m paddock.evaluate {shlex.join([path, f'video={path}/episode.mp4'])}")
    print(f"  python -m paddock.plot {shlex.quote(path)}")
    for mirror in experiment.mirrors:
        for command in mirror.commands() if isinstance(mirror, HasCommands) else ():
            print(f"  {command}")
    print(f"  {resume}" + ("" if outcome.signal is not None else "  # to continue training, increase budget.*"))


def format_end(path: Path, outcome: Outcome) -> str:
    """Return one line that says why a run ended and after how many iterations."""
    end = f"stopped by {outcome.reason}"
    if outcome.signal is None:
        end = f"done: {'reached ' if outcome.reason.startswith('budget.') else ''}{outcome.reason}"
    iterations = int(outcome.metrics.get("iteration", 0))
    return f"{end} ({iterations} iteration{'s' if iterations != 1 else ''}): {display_path(path)}"


def _format_resume(path: Path, sweep: bool = False) -> str:
    arguments = sys.argv[1:]
    if sweep:
        arguments = [*format_source_arguments(HydraConfig.get()), *HydraConfig.get().overrides.task]
    kept = [argument for argument in arguments if not argument.startswith(("run.dir=", "resume="))]
    return format_main_command([*kept, format_run_dir(Path(display_path(path)))])
