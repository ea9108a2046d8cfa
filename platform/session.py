"""One session of a run: lock its folder, restore its state, run the loop, and record how it ended."""

import contextlib
import logging
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from paddock.algos.pool.lazy import LazyPool
from paddock.algos.protocol import ChecksDiskSpace
from paddock.envs.errors import DISK_FULL, PaddockError, require, split_details

from .config.build import build
from .config.command import display_path
from .config.experiment import Experiment, packages
from .config.resume import find_changes, resolve_vec, restore_session
from .runs.checkpoint import StorageError, measure
from .runs.folder import RunFolder, read_json
from .runs.loop import Outcome, Progress, RunFailed, Signals, exit_at_once, run
from .runs.state import last_metrics, read_progress
from .sweep.trial import find_reporter
from .tracking.console import Console
from .tracking.messages import messages
from .tracking.tracker import Tracker

if TYPE_CHECKING:
    from .evaluation.initial import Origin

log = logging.getLogger(__name__)
STATEFUL_WRAPPERS = (".NormalizeObservation", ".NormalizeReward")  # their statistics are not saved


def run_session(
    experiment: Experiment,
    *,
    resume: str = "",
    command: str | None = None,
    progress: bool = True,
    on_second_signal: Callable[[int], NoReturn] | None = None,
    remedy: str = "increase it to continue",
    repeats: Path | None = None,
) -> tuple[Outcome, bool]:
    """Run an experiment from the state in its folder; return the outcome, and whether anything was left to run.

    Args:
        experiment: the run.
        resume: how the user resumes the run; shown if it has no budget.
        command: recorded as the run's command instead of this process's own.
        progress: show progress; False shows warnings only.
        on_second_signal: called by a second Ctrl-C; None ends the process at once.
        remedy: what to do about a budget that an earlier session reached.
        repeats: the run that this one repeats.

    Raises:
        FolderTaken: another process made the folder that was chosen; building the experiment again chooses another.
    """
    console = Console(sys.stdout if progress else None, sys.stderr, experiment.config["budget"])
    signals = Signals(lambda number: None, on_second_signal)
    with contextlib.closing(console), messages(console) as record, _closing(experiment.pool, signals):
        # Lock before reading: another process may still write to the folder.
        folder = RunFolder.open(experiment.path, experiment.config, new=experiment.new)
        path = display_path(experiment.path)
        try:
            experiment = resolve_vec(experiment)
            start = restore_session(experiment)
            # The journals still hold the metrics of a finished run whose checkpoints were deleted.
            known = start if start.metrics or folder.ended is None else read_progress(experiment.path)
            complete = known.metrics and start.unfinished is None  # else the unfinished row decides
            reached = experiment.budget.spent(known.metrics, known.elapsed_s) if complete else None
            if reached is not None and folder.ended is not None:
                console.message(f"{path} already reached {reached}; {remedy}")
                return Outcome(reached, last_metrics(experiment.path)[0], None), False
            what = f"run.dir={path} holds a finished run without a checkpoint to resume from"
            require(known is start or not known.metrics, f"{what}; delete its done.json to start again")
            for change in find_changes(experiment) if start.metrics else ():
                log.warning("%s; results may differ from here on", change)
            if reached is None:  # otherwise nothing more is written
                _check_disk_space(experiment)
            origin = None if start.metrics else _load_initial_policy(experiment)
            if not experiment.pool.in_process:
                console.status(f"starting workers: {experiment.pool.describe()} ...")
            experiment.pool.open(packages(experiment.config), experiment.path)
            lost = None if start.metrics else read_progress(experiment.path).metrics.get("iteration")
            if lost is not None:
                why = f"killed at iteration {int(lost)}, before the first checkpoint"
                log.info("restarting %s from scratch: %s", path, why)
            extra = {
                "niche": experiment.niche,
                "servers": _find_servers(experiment),
                "repeats": repeats and str(repeats),
            }
            folder.begin(experiment.config, command, extra, None if origin is None else origin.state_dict())
            if origin is not None:
                log.info("initialized with %s", origin.describe())
            record(experiment.path / "log.txt")
            return _run(experiment, start, reached, folder, console, signals, resume), True
        finally:
            folder.release()


def check_start(experiment: Experiment) -> "Origin | None":
    """Run the checks that need no run folder; return the policy named by `init_from`, if any."""
    if not experiment.checkpoints.paths():  # otherwise a part of the disk space is used already
        _check_disk_space(experiment)
    return _load_initial_policy(experiment)


@contextlib.contextmanager
def _closing(pool: LazyPool, signals: Signals) -> Iterator[None]:
    """Close a pool at the end, and delay signals until then: an interrupted close makes Dask wait ten seconds."""

    def close() -> None:
        signals.on_first = lambda number: None
        with signals:
            pool.close()

    try:
        yield
    except BaseException:  # more informative than a signal that arrives now
        close()
        raise
    known = signals.caught
    close()
    if signals.caught is not None and signals.caught != known:
        signal.raise_signal(signals.caught)


def _find_servers(experiment: Experiment) -> dict[str, dict[str, str]]:
    """Return the package versions of environment servers; raise ConfigError if they changed since the first session."""
    from paddock.envs.vector import Remote  # slow to import

    vec, began = build("vec", experiment.config["vec"]), read_json(experiment.path / "provenance.json")
    return vec.versions(began.get("servers")) if isinstance(vec, Remote) else {}


def _check_disk_space(experiment: Experiment) -> None:
    if isinstance(experiment.algorithm, ChecksDiskSpace):
        experiment.algorithm.check_disk_space(
            experiment.checkpoints.lacking, measure(experiment.algorithm.state_dict())
        )


def _load_initial_policy(experiment: Experiment) -> "Origin | None":
    if experiment.config["init_from"] is None:
        return None
    from .evaluation.initial import load_initial_policy  # slow to import

    return load_initial_policy(experiment)


def _run(
    experiment: Experiment,
    progress: Progress,
    reached: str | None,
    folder: RunFolder,
    console: Console,
    signals: Signals,
    resume: str,
) -> Outcome:
    start_iteration = int(progress.metrics.get("iteration", 0))
    verb = "resuming" if start_iteration else "running"
    log.info("%s in %s, workers: %s", verb, display_path(folder.path), experiment.pool.describe())
    if all(bound is None for bound in experiment.config["budget"].values()):
        log.info("no budget: runs until Ctrl-C; set budget.steps=... to limit it. To resume it later:")
        log.info("  %s", resume)
    for wrapper in experiment.config["env"].get("wrappers") or ():
        if str(wrapper["_target_"]).endswith(STATEFUL_WRAPPERS):
            remedy = "use algo.normalize_observations or algo.normalize_rewards if the algorithm has them"
            log.warning("%s loses its statistics in evaluations and on resume; %s", wrapper["_target_"], remedy)
    console.begin(progress.elapsed_s, progress.metrics)
    if reached is None:
        console.status(f"running iteration {start_iteration + 1} ...")

    def on_first(number: int) -> None:
        iteration = int(progress.metrics.get("iteration", 0)) + 1
        console.message(
            f"finishing iteration {iteration} and saving; Ctrl-C again quits now, {_describe_kept(experiment)}"
        )

    def on_second(number: int) -> NoReturn:
        console.message(f"quit now, {_describe_kept(experiment)}")
        if leave is exit_at_once:
            console.close()
        leave(number)

    leave, signals.on_first, signals.on_second = signals.on_second, on_first, on_second
    try:
        with contextlib.closing(Tracker(folder.path, experiment.mirrors, start_iteration, console)) as tracker:
            reporter = find_reporter(folder.path)
            outcome = run(
                experiment.algorithm,
                tracker,
                experiment.checkpoints,
                experiment.budget,
                progress,
                checkpoint_every_s=experiment.config["checkpoint"]["every_s"],
                signals=signals,
                find_stop_reason=reporter.report if reporter else None,
                reached=reached,
            )
            tracker.sync()
            folder.finish(outcome.reason, outcome.metrics)  # first, since closing the mirrors may take long
            with signals if signals.caught is not None else contextlib.nullcontext():
                tracker.close()
    except PaddockError as error:
        line, details = split_details(error)
        with contextlib.suppress(StorageError):
            folder.finish(f"failed: {line}", progress.metrics)
        exists = folder.path.is_dir()
        where = f"the run so far is in {display_path(folder.path)}" if exists else "its folder was deleted"
        failed = RunFailed(f"{line} ({where})\n{details}".rstrip())
        if error.exit_code == DISK_FULL:
            failed.exit_code = DISK_FULL
        raise failed from error
    return outcome


def _describe_kept(experiment: Experiment) -> str:
    newest = experiment.checkpoints.newest
    return "without a checkpoint yet" if newest is None else f"to resume from iteration {newest}"
