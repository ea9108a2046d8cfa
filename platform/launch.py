"""From the command line to a run: compose the configuration, check it, build every part, and run.

python -m platform algo=es env=bipedal compute=dask
"""

import argparse
import contextlib
import importlib.metadata
import logging
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from paddock.algos.pool.late import LatePool
from paddock.algos.pool.protocol import PoolError
from paddock.algos.protocol import ChecksDiskSpace, Describes
from paddock.envs.errors import NO_ROOM, NO_WORKERS, PaddockError, require, split_details

from .config.build import build
from .config.command import display_path, print_error, run_and_flush
from .config.compose import ACTIONS, composed, explained, make_argument_parser, parse_arguments
from .config.experiment import Experiment, assemble, packages
from .config.grid import compose_grid
from .config.help import print_help
from .config.hydra_private import run_hydra
from .config.overrides import format_run_dir, format_source_arguments
from .config.plugins import check_runs_here, register_plugin
from .config.sessions import find_changes, resolve_vec, resume
from .runs.checkpoint import StorageError, measure
from .runs.folder import FolderTaken, RunFolder, read_json
from .runs.identity import env_name
from .runs.loop import Outcome, Progress, RunFailed, Signals, exit_at_once, run
from .runs.state import last_metrics, read_progress, read_run_states
from .runs.table import print_table
from .sweep.claim import check_folder, claim_folder
from .sweep.trial import find_reporter, is_trial
from .tracking.console import Console
from .tracking.messages import messages
from .tracking.tracker import HasCommands, Tracker

if TYPE_CHECKING:
    from .evaluation.initial import Origin

log = logging.getLogger(__name__)
STATEFUL_WRAPPERS = (".NormalizeObservation", ".NormalizeReward")  # their statistics are not saved
T = TypeVar("T")


def main() -> int:
    """Run the command `paddock`.

    Exit codes: 0 done, 1 the run failed, 2 bad input, 74 its disk or that of its output is full or gone, 75 another
    process is at it, 128 + n stopped by signal n.
    """
    return run_and_flush(_launch)


def _launch() -> int:
    """Do what the command line says; returns the exit code."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises its errors, and they can be put in one line
    runs: list[Path] = []  # of this process
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
            print(f"  {_command(sys.argv[1:], runs[-1])}", file=sys.stderr)
        return code
    except PaddockError as error:
        return print_error(error, _exit_code(error, runs))
    return 0


def _exit_code(error: PaddockError, runs: Sequence[Path]) -> int:
    """Return the exit code of a command that ends by an error; of a trial it tells whether others would end so too."""
    cause = error.__cause__ if isinstance(error, RunFailed) else error
    others_too = isinstance(cause, PoolError) and runs and is_trial(runs[-1])
    return NO_WORKERS if others_too else error.exit_code


def retry_if_folder_taken(begin: Callable[[], T]) -> T:
    """Return what beginning a run returns; begin again where another process took the folder that was chosen for it."""
    while True:
        with contextlib.suppress(FolderTaken):
            return begin()


def _run(arguments: argparse.Namespace, runs: list[Path]) -> None:
    """Compose, build and run one experiment."""
    parts = prepare(arguments)
    runs[:] = [parts.path]
    experiment(parts)


def prepare(words: Sequence[str] | argparse.Namespace) -> Experiment:
    """Compose and assemble one experiment, and set the variables of its process."""
    with composed(words) as config:
        check_runs_here()
        parts = assemble(config)
        os.environ.update(HydraConfig.get().job.env_set)
    return parts


def _sweep(arguments: argparse.Namespace, runs: list[Path]) -> None:
    """Check every job of a sweep, then run them; in a dry run, show them."""
    # Optuna and the places where runs go take longer to import than the help of a single run.
    from .slurm.submit import SlurmLauncher
    from .sweep.launchers import DaskLauncher, LocalLauncher
    from .sweep.sweeper import OptunaSweeper

    def check(config: DictConfig) -> Path:
        check_folder(HydraConfig.get().sweep.dir)
        parts = assemble(config)
        _preview(parts)
        return parts.path

    def job(config: DictConfig) -> float | None:
        parts = assemble(config)
        runs.append(parts.path)
        return experiment(parts, sweep=True)

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
                remedy = "leave run.dir and resume out of a sweep"
                require(other == number, f"jobs {other} and {number} of the sweep would share {folder}; {remedy}")
            if grid.config.dry_run is True:
                return grid.rehearse(job)
        with explained(arguments):
            run_hydra(arguments, make_argument_parser(), job)
    if len(runs) > 1 and runs[0].exists():
        print_table(Path(os.path.commonpath(runs)), read_run_states(runs), 0)


def experiment(parts: Experiment, sweep: bool = False) -> float | None:
    """Run what is assembled, or show it; returns the last evaluation's mean return, for sweeps."""
    if parts.config["dry_run"]:
        print_dry_run(parts)
        return None
    outcome, played = play(parts)
    if played:
        _print_end(parts, outcome, sweep)
    stopped = outcome.caught if sweep else outcome.signal  # of a grid further runs are not to begin
    if stopped is not None:
        raise SystemExit(128 + stopped)
    return outcome.metrics.get("eval/return_mean")


def play(
    parts: Experiment,
    *,
    command: str | None = None,
    progress: bool = True,
    leave: Callable[[int], NoReturn] | None = None,
    remedy: str = "raise it to go on",
    repeats: Path | None = None,
) -> tuple[Outcome, bool]:
    """Run what is assembled, from where its folder is; and whether there was anything left to do.

    Args:
        command: that does the same, where it is not this process's own.
        progress: show it; else warnings alone.
        leave: called by a second Ctrl-C; None: the process ends at once.
        remedy: what to do about a budget that was reached before.
        repeats: the run that this one does once more, if it does.

    Raises:
        FolderTaken: another process made the folder that was chosen; assembled again, there will be another one.
    """
    console = Console(sys.stdout if progress else None, sys.stderr, parts.config["budget"])
    signals = Signals(lambda number: None, leave)
    with contextlib.closing(console), messages(console) as record, _closing(parts.pool, signals):
        # The lock comes first: what another process still adds to the run would be lost.
        folder = RunFolder.open(parts.path, parts.config, new=parts.new)
        try:
            parts = resolve_vec(parts)
            start = resume(parts)
            # Where somebody deleted the checkpoints of one that has ended, its numbers are left.
            known = start if start.metrics or folder.ended is None else read_progress(parts.path)
            whole = known.metrics and start.unfinished is None  # else the row that comes next tells
            reached = parts.budget.spent(known.metrics, known.elapsed_s) if whole else None
            if reached is not None and folder.ended is not None:
                console.message(f"{display_path(parts.path)} has reached {reached} before; {remedy}")
                return Outcome(reached, last_metrics(parts.path)[0], None), False
            what = f"run.dir={display_path(parts.path)} holds a run that has ended, and no checkpoint to go on from"
            require(known is start or not known.metrics, f"{what}; delete its done.json to start again")
            for change in find_changes(parts) if start.metrics else ():
                log.warning("%s: from here on numbers may differ", change)
            if reached is None:  # else no row follows, and what there is takes no more
                _check_disk_space(parts)
            origin = None if start.metrics else _begin(parts)
            parts.pool.open(packages(parts.config), parts.path)
            come = None if start.metrics else read_progress(parts.path).metrics.get("iteration")
            if come is not None:
                why = f"it came to iteration {int(come)} and to no checkpoint"
                log.info("%s starts again: %s", display_path(parts.path), why)
            beside = {"niche": parts.niche, "servers": _find_servers(parts), "repeats": repeats and str(repeats)}
            folder.begin(parts.config, command, beside, None if origin is None else origin.state_dict())
            if origin is not None:
                log.info("beginning with %s", origin.describe())
            record(parts.path / "log.txt")
            return _session(parts, start, reached, folder, console, signals), True
        finally:
            folder.release()


@contextlib.contextmanager
def _closing(pool: LatePool, signals: Signals) -> Iterator[None]:
    """Close a pool in the end, and let a signal come after that: Dask would wait ten seconds for a close cut short."""

    def close() -> None:
        signals.stopping = lambda number: None
        with signals:
            pool.close()

    try:
        yield
    except BaseException:  # which says more than a signal that comes now
        close()
        raise
    known = signals.caught
    close()
    if signals.caught is not None and signals.caught != known:
        signal.raise_signal(signals.caught)


def _find_servers(parts: Experiment) -> dict[str, dict[str, str]]:
    """Return what servers of environments have installed, by address, where the run's are at any.

    Raises:
        ConfigError: it is something else than when the run began.
    """
    from paddock.envs.vector import Remote  # late: whoever asks for help has no need of it

    vec = build("vec", parts.config["vec"])
    return vec.versions(read_json(parts.path / "provenance.json").get("servers")) if isinstance(vec, Remote) else {}


def _preview(parts: Experiment) -> "Origin | None":
    """Check what can be known of a run before its folder is made, and return the policy that it would begin with."""
    if not parts.checkpoints.paths():  # which say how much of the disk a run has taken already
        _check_disk_space(parts)
    return _begin(parts)


def _check_disk_space(parts: Experiment) -> None:
    """Compare what the run will take of the disk with what is left, where the algorithm knows it."""
    if isinstance(parts.algorithm, ChecksDiskSpace):
        parts.algorithm.check_disk_space(parts.checkpoints.lacking, measure(parts.algorithm.state_dict()))


def _begin(parts: Experiment) -> "Origin | None":
    """Let the algorithm start from the policy that `init_from` names, if it does."""
    if parts.config["init_from"] is None:
        return None
    from .evaluation.initial import load_initial_policy  # Gymnasium is slow to import, and help needs none

    return load_initial_policy(parts)


def _session(
    parts: Experiment,
    progress: Progress,
    reached: str | None,
    folder: RunFolder,
    console: Console,
    signals: Signals,
) -> Outcome:
    """Run from where the folder is to the end, and note there how it came to it."""
    start_iteration = int(progress.metrics.get("iteration", 0))
    verb = "going on" if start_iteration else "running"
    log.info("%s in %s, workers: %s", verb, display_path(folder.path), parts.pool.describe())
    for wrapper in parts.config["env"].get("wrappers") or ():
        if str(wrapper["_target_"]).endswith(STATEFUL_WRAPPERS):
            remedy = "use algo.normalize_observations or algo.normalize_rewards where the algorithm has them"
            log.warning("%s has no statistics in evaluations and after a resume; %s", wrapper["_target_"], remedy)
    console.begin(progress.elapsed_s, progress.metrics)

    def stopping(number: int) -> None:
        console.message(f"stopping after this iteration; Ctrl-C again leaves at once, {_spell_kept(parts)}")

    def leave_now(number: int) -> NoReturn:
        console.message(f"left at once, {_spell_kept(parts)}")
        if leave is exit_at_once:
            console.close()
        leave(number)

    leave, signals.stopping, signals.leave = signals.leave, stopping, leave_now
    try:
        with contextlib.closing(Tracker(folder.path, parts.mirrors, start_iteration, console)) as tracker:
            reporter = find_reporter(folder.path)
            outcome = run(
                parts.algorithm,
                tracker,
                parts.checkpoints,
                parts.budget,
                progress,
                checkpoint_every_s=parts.config["checkpoint"]["every_s"],
                signals=signals,
                find_stop_reason=reporter.report if reporter else None,
                reached=reached,
            )
            tracker.sync()
            folder.finish(outcome.reason, outcome.metrics)  # before the mirrors end, which may take a while
            with signals if signals.caught is not None else contextlib.nullcontext():
                tracker.close()
    except PaddockError as error:
        line, details = split_details(error)
        with contextlib.suppress(StorageError):
            folder.finish(f"failed: {line}", progress.metrics)
        where = (
            f"the run so far is in {display_path(folder.path)}" if folder.path.is_dir() else "its folder was deleted"
        )
        failed = RunFailed(f"{line} ({where})\n{details}".rstrip())
        if error.exit_code == NO_ROOM:
            failed.exit_code = NO_ROOM
        raise failed from error
    return outcome


def _spell_kept(parts: Experiment) -> str:
    """Return what is left of a run that ends now."""
    newest = parts.checkpoints.newest
    return "without a checkpoint yet" if newest is None else f"with the checkpoint of iteration {newest}"


def print_dry_run(parts: Experiment) -> None:
    """Print what is assembled, in place of running it."""
    config, algorithm, origin = parts.config, parts.algorithm, _preview(parts)
    lines = {
        "algorithm": config["algo"]["_target_"],
        "environment": env_name(config),
        "workers": parts.pool.describe(),
        "devices": "cpu",
        **(algorithm.describe() if isinstance(algorithm, Describes) else {}),
        **({} if origin is None else {"begins with": origin.describe()}),
        "budget": ", ".join(f"{key}={value}" for key, value in config["budget"].items() if value is not None) or "none",
        "folder": display_path(parts.path),
    }
    for name, text in lines.items():
        print(f"{name:12} {text}")


def _print_end(parts: Experiment, outcome: Outcome, sweep: bool) -> None:
    path = Path(display_path(parts.path))
    arguments = sys.argv[1:]
    if sweep:
        arguments = [*format_source_arguments(HydraConfig.get()), *HydraConfig.get().overrides.task]
    hint = "" if outcome.signal is not None else "  # raise its budget to go on"
    print(format_end(path, outcome))
    print(f"  python -m paddock.evaluate {shlex.join([str(path), f'video={path}/episode.mp4'])}")
    print(f"  python -m paddock.plot {shlex.quote(str(path))}")
    for command in (
        command for mirror in parts.mirrors if isinstance(mirror, HasCommands) for command in mirror.commands()
    ):
        print(f"  {command}")
    print(f"  {_command(arguments, path)}{hint}")


def format_end(path: Path, outcome: Outcome) -> str:
    """Return how a run ended, in a line."""
    end = "stopped by" if outcome.signal is not None else "ended by"
    iterations = int(outcome.metrics.get("iteration", 0))
    return f"{end} {outcome.reason} after {iterations} iteration{'s' if iterations != 1 else ''}: {display_path(path)}"


def _command(arguments: Sequence[str], path: Path) -> str:
    """The command that goes on with a run which these arguments began."""
    kept = [argument for argument in arguments if not argument.startswith(("run.dir=", "resume="))]
    return f"python -m paddock {shlex.join([*kept, format_run_dir(path)])}"
