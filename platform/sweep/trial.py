"""A run as a trial of a sweep: it reports every evaluation to the study, and stops when it is pruned.

`trial.json` in the run's folder marks a trial. Evaluations are reported at every percent of the run's budget since the
last one, so that trials are compared at equal shares of the budget whatever their rollouts.
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
PRUNED = "pruned"  # prefix of the reason for which a trial ended early
LACKS = {  # exit codes that all trials of the sweep would end with
    DISK_FULL: "the disk of trial {} is full or gone",
    NO_WORKERS: "the workers of trial {} are out of reach",
}


@dataclass(frozen=True)
class Note:
    """The content of `trial.json`."""

    number: int  # of the trial in the study
    owner: str  # the sweeping process that supervises it
    overrides: Sequence[str] = field(default_factory=list)  # drawn for it
    starts: int = 0
    losses: int = 0  # times its process was lost under supervision

    @classmethod
    def read(cls, run: Path) -> "Note | None":
        """Read the note in a folder, if there is one."""
        try:
            return cls(**json.loads((run / NOTE).read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, run: Path) -> None:
        """Write it into a run's folder."""
        run.mkdir(parents=True, exist_ok=True)
        write_atomically(run / NOTE, json.dumps(asdict(self), indent=2).encode())


def is_trial(run: Path) -> bool:
    """Return whether a run is one of a sweep's trials."""
    return (run / NOTE).is_file()


class Reporter:
    """Reports to a study; if it cannot be reached, the run continues without pruning."""

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
        """Report an evaluation if the row has one; return why the run should stop, or None.

        Args:
            share: of the budget that is spent; the policy evaluated may be of an earlier iteration.
        """
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
        except Exception as error:  # whatever a file system or a database may raise
            self._off = True
            log.warning("the sweep's study is out of reach (%s); the run goes on, and is not pruned", _in_a_line(error))
        return None


def find_reporter(run: Path) -> Reporter | None:
    """Return the reporter of the run in a folder; None if it is no trial."""
    note = Note.read(run)
    if note is None:
        return None
    try:
        return Reporter(run, note)
    except Exception as error:  # as above
        log.warning("%s is a trial, and its study cannot be read (%s); it goes on alone", run, _in_a_line(error))
        return None


def _in_a_line(error: BaseException) -> Any:
    return " ".join(f"{type(error).__name__}: {error}".split())
