"""Run as a trial of a sweep: it reports evaluations to the study, and stops when pruned.

`trial.json` in the run's folder marks a trial. An evaluation is reported for every percent of the budget since the last
one, so that trials are compared at equal shares of the budget.
"""

import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from paddock.envs.errors import DISK_FULL, NO_WORKERS

from ..runs.checkpoint import write_atomically
from ..runs.journal import EVALUATION, EVALUATION_OF

log = logging.getLogger(__name__)

NOTE = "trial.json"  # in the run's folder
PRUNED = "pruned"  # prefix of the reason of a pruned trial's end
SHARED_FAILURES = {  # exit codes that all trials of the sweep would end with
    DISK_FULL: "the disk of trial {} is full or gone",
    NO_WORKERS: "the workers of trial {} cannot be reached",
}


@dataclass(frozen=True)
class Note:
    """Content of `trial.json`."""

    number: int  # of the trial in the study
    owner: str  # the sweeping process that supervises it
    overrides: Sequence[str] = field(default_factory=list)  # sampled for it
    starts: int = 0
    losses: int = 0  # number of times its process was lost

    @classmethod
    def read(cls, run: Path) -> "Note | None":
        """Read the note in a run's folder; return None without one."""
        try:
            return cls(**json.loads((run / NOTE).read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, run: Path) -> None:
        """Write the note into a run's folder."""
        run.mkdir(parents=True, exist_ok=True)
        write_atomically(run / NOTE, json.dumps(asdict(self), indent=2).encode())


def is_trial(run: Path) -> bool:
    """Return whether a run is a trial of a sweep."""
    return (run / NOTE).is_file()


class Reporter:
    """Reporter of evaluations to a study; if the study is unreachable, the run continues without pruning."""

    def __init__(self, run: Path, note: Note) -> None:
        # Optuna is slow to import.
        from .study import StudySettings, open_study, open_trial

        self._metrics = list(StudySettings.read(run.parent).objectives)
        study = open_study(run.parent)
        self._frozen = study.get_trials(deepcopy=False)[note.number]
        self._trial = open_trial(study, self._frozen)
        self._percent = self._frozen.last_step or 0
        # Optuna prunes by a single objective.
        self._off = self._frozen.state.is_finished() or len(self._metrics) > 1

    def report(self, row: Mapping[str, float], share: float | None) -> str | None:
        """Report the evaluation in a row, if any, at a share of the budget; return a reason to stop, or None."""
        metric = self._metrics[0]
        value = row.get(metric)
        if self._off or value is None or share is None:
            return None
        if metric.startswith(EVALUATION):
            share *= row.get(EVALUATION_OF, row["iteration"]) / row["iteration"]
        percent = min(100, math.floor(100 * share + 1e-9))
        try:
            for step in range(self._percent + 1, percent + 1):
                self._trial.report(value, step)
            new, self._percent = percent > self._percent, max(percent, self._percent)
            if new and percent < 100 and self._trial.should_prune():
                return f"{PRUNED} at {percent} % of the budget"
        except Exception as error:  # any error of the file system or database
            self._off = True
            log.warning("cannot reach the sweep's study (%s); the run continues without pruning", _one_line(error))
        return None


def find_reporter(run: Path) -> Reporter | None:
    """Return the reporter of a trial; None if the run is not a trial."""
    note = Note.read(run)
    if note is None:
        return None
    try:
        return Reporter(run, note)
    except Exception as error:  # as above
        log.warning("cannot read the study of trial %s (%s); the run continues without it", run, _one_line(error))
        return None


def _one_line(error: BaseException) -> Any:
    return " ".join(f"{type(error).__name__}: {error}".split())
