"""Optuna study of a sweep: settings and storage.

The sweep's folder holds the settings, `sweep.json`, and the study, `study.journal`, unless a storage URL is set.
Optuna's tools read the study: `optuna trials --storage-class JournalFileStorage --storage FOLDER/study.journal ...`.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from paddock.envs.errors import ConfigError, one_line, require
from paddock.envs.ranges import AT_LEAST_ONE, AT_LEAST_ZERO, PositiveInt, check_fields

from ..runs.checkpoint import write_atomically
from ..runs.folder import FolderError
from ..runs.lazy_imports import optuna
from .samplers import make_pruner, make_sampler

if TYPE_CHECKING:
    import polars as pl

SETTINGS, JOURNAL = "sweep.json", "study.journal"  # in the sweep's folder
DIRECTIONS = ("maximize", "minimize")
PASSWORD = re.compile(r"(://[^/:@\s]*):[^@\s]*@")  # in a URL
COMPARISON = re.compile(r"\s*(\S+)\s*(<=|>=)\s*(\S+)\s*")


@dataclass(frozen=True)
class Constraint:
    """Upper or lower bound on a metric of a trial."""

    metric: str
    sign: int  # 1: upper bound; -1: lower bound
    bound: float

    @classmethod
    def parse(cls, text: str) -> Constraint:
        """Parse `group/name <= number` or `group/name >= number`."""
        match = COMPARISON.fullmatch(str(text))
        remedy = "write METRIC <= NUMBER or METRIC >= NUMBER, such as 'system/seconds <= 600'"
        require(match is not None, f"constraints: '{text}' is invalid; {remedy}")
        assert match is not None
        try:
            bound = float(match[3])
        except ValueError:
            bound = math.nan
        require(not math.isnan(bound), f"constraints: {match[3]} in '{text}' is not a number; {remedy}")
        return cls(match[1], 1 if match[2] == "<=" else -1, bound)

    def excess(self, value: float) -> float:
        """Return the violation of the bound; 0 or less means satisfied."""
        return self.sign * (value - self.bound)


def parse_objectives(texts: Sequence[str]) -> dict[str, str]:
    """Parse `maximize group/name` and `minimize group/name` into a mapping of metric to direction."""
    require(len(texts) > 0, "objectives is empty; set ['maximize eval/return_mean']")
    found: dict[str, str] = {}
    for text in texts:
        direction, _, metric = str(text).partition(" ")
        known = direction in DIRECTIONS and bool(metric.strip())
        remedy = "write maximize METRIC or minimize METRIC, such as 'maximize eval/return_mean'"
        require(known, f"objectives: '{text}' is invalid; {remedy}")
        require(metric.strip() not in found, f"objectives: {metric.strip()} is listed twice; list each metric once")
        found[metric.strip()] = direction
    return found


@dataclass(frozen=True, kw_only=True)
class SweepSettings:
    """Keys of conf/hydra/sweeper/optuna.yaml, which documents them."""

    study: str | None
    storage: str | None
    n_trials: PositiveInt
    parallel: Annotated[int | None, AT_LEAST_ONE]
    objectives: Sequence[str]
    constraints: Sequence[str]
    sampler: str
    seed: Annotated[int, AT_LEAST_ZERO]
    pruner: str
    retries: Annotated[int, AT_LEAST_ZERO]
    on_failure: Literal["continue", "stop"]
    params: Mapping[str, Any]
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        """Check the values."""
        require(self.study is None or "/" not in self.study, f"study={self.study} must not contain '/'")
        check_fields(self)
        parse_objectives(self.objectives)
        for text in self.constraints:
            Constraint.parse(text)
        self.make_sampler(0)
        make_pruner(self.pruner, self.pruner_options)

    @property
    def pruner_options(self) -> Mapping[str, Any]:
        """Options of the chosen pruner."""
        return self.options.get(self.pruner) or {}

    def make_sampler(self, number: int) -> optuna.samplers.BaseSampler:
        """Make the sampler of a trial."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return make_sampler(self.sampler, self.options.get(self.sampler) or {}, self.seed, number)


@dataclass(frozen=True)
class StudySettings:
    """Content of `sweep.json`."""

    study: str  # its name in the storage
    storage: str | None  # Optuna's URL; None for the journal in the folder
    objectives: Mapping[str, str]  # metric -> maximize or minimize
    constraints: Sequence[str]
    pruner: str
    pruner_options: Mapping[str, Any]
    fixed: Sequence[str]  # arguments of all trials
    command: str
    sources: Sequence[str]  # arguments that set config sources
    num_envs: int | None  # environments of each trial; None if results do not depend on it, or it is a parameter
    parameters: Sequence[str]  # see `space.format_parameters`

    @classmethod
    def read(cls, folder: Path) -> StudySettings:
        """Read the settings of the study in a sweep's folder."""
        path = folder / SETTINGS
        try:
            return cls(**json.loads(path.read_text()))
        except OSError as error:
            raise ConfigError(f"{folder} is not a sweep folder: it has no {SETTINGS}") from error
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{path} is damaged ({type(error).__name__}: {error}); use another folder") from error

    def write(self, folder: Path) -> None:
        """Write the settings into a sweep's folder."""
        write_atomically(folder / SETTINGS, json.dumps(asdict(self), indent=2).encode())


def open_storage(folder: Path, url: str | None) -> optuna.storages.BaseStorage:
    """Open the storage of a sweep: the journal in its folder, or a URL."""
    optuna.logging.set_verbosity(logging.ERROR)
    if url is None:
        # A symlink lock is atomic on shared file systems, and expires if its process is killed.
        lock: Any = _JournalLock(folder / JOURNAL)
        return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(folder / JOURNAL), lock))
    try:
        return optuna.storages.get_storage(url)
    except Exception as error:  # of any database, or its missing module
        safe = hide_passwords(url)
        why = one_line(error).replace(url, safe)
        raise ConfigError(f"cannot open hydra.sweeper.storage={safe} ({why}): check the URL") from error


def hide_passwords(text: str) -> str:
    """Mask the passwords of URLs in a text."""
    return PASSWORD.sub(r"\1:...@", text)


class _JournalLock:
    """Optuna's journal lock, which removes an incomplete last line left by a full disk or a kill.

    Appending to such a line would make the study unreadable.
    """

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._lock = optuna.storages.journal.JournalFileSymlinkLock(str(journal))

    def acquire(self) -> bool:
        """Lock the journal and repair its end."""
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
        """Unlock the journal."""
        self._lock.release()


def open_study(folder: Path, sampler: optuna.samplers.BaseSampler | None = None) -> optuna.Study:
    """Open the study of a sweep's folder with its pruner.

    Raises:
        ConfigError: the folder does not hold a sweep.
        FolderError: the study does not exist yet, or cannot be read.
    """
    about, journal = StudySettings.read(folder), folder / JOURNAL
    pruner = make_pruner(about.pruner, about.pruner_options)
    if about.storage is None and not journal.is_file():
        raise FolderError(f"{journal} does not exist yet; wait for the first trial")
    try:
        storage = open_storage(folder, about.storage)
        return optuna.load_study(study_name=about.study, storage=storage, sampler=sampler, pruner=pruner)
    except Exception as error:  # of any database; its message may hold a password
        place = journal if about.storage is None else "its storage"
        raise FolderError(f"the study {about.study} cannot be read from {place} ({type(error).__name__})") from error


def read_trials(folder: str | os.PathLike[str]) -> pl.DataFrame:
    """Read one row per trial of a sweep: `number`, `state`, objectives, parameters, `steps`, `seconds`, `run`.

    Returns:
        A single objective is named `value`; several are named by their metrics. A pruned trial has its last reported
        value. Parameters are named by their keys (`algo.learning_rate`), `steps` counts environment steps, and `run` is
        a path.

    Raises:
        ConfigError: the folder does not hold a sweep.
        FolderError: the study cannot be read.
    """
    import polars as pl

    from ..runs.frames import to_series

    folder = Path(folder)
    trials = open_study(folder).get_trials(deepcopy=False)
    metrics = list(StudySettings.read(folder).objectives)
    names = ["value"] if len(metrics) == 1 else metrics
    parameters = dict.fromkeys(name for trial in trials for name in trial.params)
    noted = [trial.user_attrs for trial in trials]
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
            pl.Series("steps", [user.get("steps") for user in noted], pl.Float64).cast(pl.Int64),
            pl.Series("seconds", [u.get("seconds", s) for u, s in zip(noted, seconds, strict=True)], pl.Float64),
            pl.Series("run", [str(folder / user["run"]) if "run" in user else None for user in noted], pl.String),
        ]
    )


def open_trial(study: optuna.Study, known: optuna.trial.FrozenTrial) -> optuna.Trial:
    """Return a running trial to report to; Optuna's public functions only create new ones."""
    return optuna.trial.Trial(study, known._trial_id)
