"""Optuna study of a sweep: settings and storage.

The sweep folder contains the settings (`sweep.json`) and the study (`study.journal`). Optuna's tools can read it:
`optuna trials --storage-class JournalFileStorage --storage FOLDER/study.journal ...`.
"""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from paddock.envs.errors import ConfigError, require
from paddock.envs.ranges import AT_LEAST_ONE, AT_LEAST_ZERO, PositiveInt, check_fields

from ..runs.checkpoint import write_atomically
from ..runs.folder import FolderError
from ..runs.lazy_imports import optuna
from .samplers import make_pruner, make_sampler

if TYPE_CHECKING:
    import polars as pl

SETTINGS, JOURNAL = "sweep.json", "study.journal"  # file names in the sweep folder
DIRECTIONS = ("maximize", "minimize")
MAX_FINALS = 64


def parse_objectives(texts: Sequence[str]) -> dict[str, str]:
    """Parse `maximize group/name` and `minimize group/name` into a mapping from metric to direction."""
    require(len(texts) > 0, "objectives is empty; set ['maximize eval/return_mean']")
    parsed: dict[str, str] = {}
    for text in texts:
        direction, _, metric = str(text).partition(" ")
        valid = direction in DIRECTIONS and bool(metric.strip())
        remedy = "write maximize METRIC or minimize METRIC, such as 'maximize eval/return_mean'"
        require(valid, f"objectives: '{text}' is invalid; {remedy}")
        require(metric.strip() not in parsed, f"objectives: {metric.strip()} is listed twice; list each metric once")
        parsed[metric.strip()] = direction
    return parsed


@dataclass(frozen=True, kw_only=True)
class SweepSettings:
    """Sweeper settings, documented in conf/hydra/sweeper/optuna.yaml."""

    study: str | None
    n_trials: PositiveInt
    finals: Annotated[int | None, AT_LEAST_ZERO]
    held_out: Annotated[int | None, AT_LEAST_ZERO]
    parallel: Annotated[int | None, AT_LEAST_ONE]
    objectives: Sequence[str]
    sampler: str
    seed: Annotated[int, AT_LEAST_ZERO]
    pruner: str
    retries: Annotated[int, AT_LEAST_ZERO]
    params: Mapping[str, Any]
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        require(self.study is None or "/" not in self.study, f"study={self.study} must not contain '/'")
        check_fields(self)
        several = len(parse_objectives(self.objectives)) > 1
        for key in ("finals", "held_out"):
            wrong = f"{key}={getattr(self, key)} needs a single objective; remove it"
            require(not several or not getattr(self, key), wrong)
        valid = not self.finals or (2 <= self.finals <= MAX_FINALS and self.finals & (self.finals - 1) == 0)
        require(valid, f"finals={self.finals} must be 0, null or a power of two from 2 to {MAX_FINALS}")
        self.make_sampler(0)
        make_pruner(self.pruner, self.pruner_options)

    def count_finals(self) -> int:
        """Return how many trials race in the finals: by default a tenth of all, at least 4."""
        if self.finals is not None or len(self.objectives) > 1:
            return self.finals or 0
        return min(max(1 << (self.n_trials // 10).bit_length() >> 1, 4), MAX_FINALS)

    def count_held_out(self) -> int:
        """Return on how many held-out seeds the winner is measured."""
        if self.held_out is not None:
            return self.held_out
        return 5 if self.count_finals() else 0

    @property
    def pruner_options(self) -> Mapping[str, Any]:
        """Options of the selected pruner."""
        return self.options.get(self.pruner) or {}

    def make_sampler(self, number: int) -> optuna.samplers.BaseSampler:
        """Make the sampler for a trial."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return make_sampler(self.sampler, self.options.get(self.sampler) or {}, self.seed, number)


@dataclass(frozen=True)
class StudySettings:
    """Contents of `sweep.json`."""

    study: str  # study name in the journal
    objectives: Mapping[str, str]  # metric -> "maximize" or "minimize"
    pruner: str
    pruner_options: Mapping[str, Any]
    fixed: Sequence[str]  # arguments shared by all trials
    command: str
    sources: Sequence[str]  # arguments that set config sources
    num_envs: int | None  # environments per trial; None if it does not affect results or is a parameter
    parameters: Sequence[str]  # see `space.format_parameters`
    n_trials: int  # finished trials of the whole sweep, at most
    finals: int  # finalists, at most
    held_out: int  # runs on held-out seeds

    @classmethod
    def read(cls, folder: Path) -> StudySettings:
        """Read the study settings in a sweep folder."""
        path = folder / SETTINGS
        try:
            return cls(**json.loads(path.read_text()))
        except OSError as error:
            raise ConfigError(f"{folder} is not a sweep folder: it has no {SETTINGS}") from error
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{path} is damaged ({type(error).__name__}: {error}); use another folder") from error

    def write(self, folder: Path) -> None:
        """Write the settings to a sweep folder."""
        write_atomically(folder / SETTINGS, json.dumps(asdict(self), indent=2).encode())


def open_storage(folder: Path) -> optuna.storages.BaseStorage:
    """Open the journal in the folder of a sweep."""
    optuna.logging.set_verbosity(logging.ERROR)
    # Symlink locks are atomic on shared file systems and expire if the process is killed.
    lock: Any = _JournalLock(folder / JOURNAL)
    return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(folder / JOURNAL), lock))


class _JournalLock:
    """Journal lock of Optuna that removes an incomplete last line, left by a full disk or a killed process.

    Appending to an incomplete line would make the study unreadable.
    """

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._lock = optuna.storages.journal.JournalFileSymlinkLock(str(journal))

    def acquire(self) -> bool:
        """Lock the journal and remove an incomplete last line."""
        self._lock.acquire()
        try:
            with open(self._journal, "r+b") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(size - 1, 0))
                if size and file.read() != b"\n":
                    file.seek(0)
                    file.truncate(file.read().rfind(b"\n") + 1)
        except BaseException:
            self._lock.release()
            raise
        return True

    def release(self) -> None:
        self._lock.release()


def open_study(folder: Path, sampler: optuna.samplers.BaseSampler | None = None) -> optuna.Study:
    """Open the study in a sweep folder, with its pruner."""
    settings, journal = StudySettings.read(folder), folder / JOURNAL
    pruner = make_pruner(settings.pruner, settings.pruner_options)
    if not journal.is_file():
        raise FolderError(f"{journal} does not exist yet; wait for the first trial")
    try:
        return optuna.load_study(
            study_name=settings.study, storage=open_storage(folder), sampler=sampler, pruner=pruner
        )
    except Exception as error:  # a damaged journal may raise anything
        raise FolderError(f"cannot read the study {settings.study} from {journal} ({type(error).__name__})") from error


def read_trials(folder: str | os.PathLike[str]) -> pl.DataFrame:
    """Read the trials of a sweep into a data frame with one row per trial.

    Returns:
        Columns `number`, `state`, objectives, parameters, `steps` (of the environments), `seconds` and `run` (path).
        One objective is named `value`; several have the names of their metrics. A pruned trial has its last reported
        value. Parameters have the names of their keys (`algo.learning_rate`).

    Raises:
        ConfigError: the folder does not contain a sweep.
        FolderError: the study cannot be read.
    """
    import polars as pl

    from ..runs.frames import to_series

    folder = Path(folder)
    trials = open_study(folder).get_trials(deepcopy=False)
    metrics = list(StudySettings.read(folder).objectives)
    names = ["value"] if len(metrics) == 1 else metrics
    parameters = dict.fromkeys(name for trial in trials for name in trial.params)
    attributes = [trial.user_attrs for trial in trials]
    seconds = [trial.duration.total_seconds() if trial.duration else None for trial in trials]
    return pl.DataFrame(
        [
            pl.Series("number", [trial.number for trial in trials], pl.Int64),
            pl.Series("state", [trial.state.name.lower() for trial in trials], pl.String),
            *(
                pl.Series(name, [trial.values[k] if trial.values else None for trial in trials], pl.Float64)
                for k, name in enumerate(names)
            ),
            *(to_series(name, [trial.params.get(name) for trial in trials]) for name in parameters),
            pl.Series("steps", [user.get("steps") for user in attributes], pl.Float64).cast(pl.Int64),
            pl.Series("seconds", [u.get("seconds", s) for u, s in zip(attributes, seconds, strict=True)], pl.Float64),
            pl.Series("run", [str(folder / user["run"]) if "run" in user else None for user in attributes], pl.String),
        ]
    )


def open_trial(study: optuna.Study, frozen: optuna.trial.FrozenTrial) -> optuna.Trial:
    """Return a running trial, for reporting values; Optuna's public API only creates new trials."""
    return optuna.trial.Trial(study, frozen._trial_id)
