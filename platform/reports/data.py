"""Data of a report: runs, groups of runs that differ only in the seed, and their scores."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.envs.errors import PaddockError, nearest, require

from ..runs.folder import FolderError, read_config, read_json
from ..runs.identity import experiment_settings, format_value, short_name
from ..runs.results import Columns, find_runs, find_sweeps, read_columns, read_states
from ..runs.sweeps import find_differences
from .curves import EVALUATION, TRAINING
from .drawing import COLORS

Array = NDArray[np.float64]

MOST_KEYS = 6  # in the label of a group
MOST_LETTERS = 36  # in the short name of a group


@dataclass(frozen=True, eq=False)
class ReportedRun:
    """Configuration and metrics of a run."""

    path: Path
    config: dict[str, Any]
    columns: Columns

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings that affect results, except the seed."""
        return experiment_settings(self.config)

    @property
    def env(self) -> str:
        """Return the short name of the environment; for families, which have no id, that of their class."""
        settings = self.settings
        return short_name(str(settings.get("env.id") or str(settings.get("env._target_", "?")).rpartition(".")[2]))

    def last(self, metric: str) -> float | None:
        """Return the last value of a metric; None if there is none."""
        values = self.columns.get(metric, np.empty(0))
        values = values[np.isfinite(values)]
        return float(values[-1]) if len(values) else None


@dataclass(frozen=True, eq=False)
class Entry:
    """Run in a report, possibly incomplete or damaged."""

    name: str  # path relative to the report's root
    run: ReportedRun  # a damaged run has an empty configuration or no columns
    state: str
    why: str
    provenance: dict[str, Any]
    in_sweep: bool


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ only in the seed."""

    color: str
    label: str  # distinguishes it from other groups
    env: str
    entries: list[Entry]
    metric: str  # compared between groups
    scores: Array  # [R], last value of each run that has one

    @property
    def short_name(self) -> str:
        """Return the label, without its middle if it is long."""
        return self.label if len(self.label) <= MOST_LETTERS else f"{self.label[:21]}…{self.label[-14:]}"


@dataclass(frozen=True, eq=False)
class ReportData:
    """Everything that a report shows."""

    root: Path  # contains all runs and sweeps
    entries: list[Entry]
    sweeps: list[Path]
    notes: dict[str, list[str]]  # problem -> names of runs


def read_settings(run: Path) -> dict[str, Any]:
    """Read a run's configuration, with `init_from` as run and iteration instead of a path.

    A rerun starts from the same policy, in a file of the first run's folder.
    """
    config, origin = read_config(run), read_json(run / "provenance.json").get("init_from")
    if isinstance(origin, dict):
        config["init_from"] = f"{origin.get('run')}@{origin.get('iteration')}"
    return config


def gather(folders: Sequence[Path]) -> ReportData:
    """Read all runs and find all sweeps in some folders."""
    sweeps = list(dict.fromkeys(_absolute(sweep) for folder in folders for sweep in find_sweeps(folder)))
    found: dict[Path, Path] = {}
    for folder in folders:
        try:
            for run in find_runs(folder):
                found.setdefault(run.resolve(), _absolute(run))
        except PaddockError:
            # A sweep that has just started has no run yet.
            if not any(_absolute(folder) in (sweep, *sweep.parents) for sweep in sweeps):
                raise
    root = Path(os.path.commonpath([_absolute(folder) for folder in folders]))
    root = root.parent if root in found.values() else root
    states = read_states(list(found.values()))
    notes: dict[str, list[str]] = {}
    entries = [
        _read(run, root, *states[run], any(sweep in run.parents for sweep in sweeps), notes) for run in found.values()
    ]
    started = {
        entry.run: entry.name for entry in entries if not entry.in_sweep and entry.run.columns and entry.run.config
    }
    repeats = find_repeats(list(started))
    if repeats:
        problem = "counted once, since they repeat the settings and seed of another run"
        notes[problem] = [f"{started[repeat]} (of {started[other]})" for repeat, other in repeats.items()]
    return ReportData(root, entries, sweeps, notes)


def choose_metric(runs: Sequence[ReportedRun], asked: str | None) -> str:
    """Return the metric to compare: the requested one, else the evaluation return, or without it the training return."""
    known = {name for run in runs for name in run.columns}
    if asked is not None:
        require(asked in known, f"score={asked} is not a metric of these runs; {nearest(asked, known)}")
        return asked
    return EVALUATION if EVALUATION in known or TRAINING not in known else TRAINING


def group(entries: Sequence[Entry], metric: str) -> list[Group]:
    """Group runs that have metrics by everything except the seed, sorted by environment and score."""
    started = {entry.run: entry for entry in entries if entry.run.columns and entry.run.config}
    repeats = find_repeats(list(started))
    every = sort_groups(group_by_seed([run for run in started if run not in repeats]), metric)
    labels = label_groups(every, with_env=False)
    numbers = {label: k for k, label in enumerate(dict.fromkeys(labels))}  # one colour on all environments
    return [
        Group(
            COLORS[numbers[label] % len(COLORS)],
            label,
            same[0].env,
            [started[run] for run in same],
            metric,
            np.array([score for run in same if (score := run.last(metric)) is not None]),
        )
        for same, label in zip(every, labels, strict=True)
    ]


def group_by_seed(runs: Sequence[ReportedRun]) -> list[list[ReportedRun]]:
    """Group runs that differ only in the seed, in the order of each group's first run."""
    groups: list[tuple[dict[str, Any], list[ReportedRun]]] = []
    for run in runs:
        settings = run.settings
        same = next((group for known, group in groups if known == settings), None)
        if same is None:
            groups.append((settings, [run]))
        else:
            same.append(run)
    return [group for _, group in groups]


def find_repeats(runs: Sequence[ReportedRun]) -> dict[ReportedRun, ReportedRun]:
    """Find runs that repeat another run's settings and seed, such as copies, which are not independent samples.

    Returns:
        The representative of each repeat: the run with the most steps, or the first of equals.
    """
    repeats: dict[ReportedRun, ReportedRun] = {}
    for group in group_by_seed(runs):
        by_seed: dict[Any, list[ReportedRun]] = {}
        for run in group:
            by_seed.setdefault(run.config.get("seed"), []).append(run)
        for same in by_seed.values():
            farthest = max(same, key=lambda run: run.last("step") or 0)
            repeats |= {run: farthest for run in same if run is not farthest}
    return repeats


def sort_groups(groups: Sequence[list[ReportedRun]], metric: str) -> list[list[ReportedRun]]:
    """Sort groups by environment, and within one by the median of a metric's last values, the best first."""

    def sort_key(group: list[ReportedRun]) -> tuple[str, float]:
        values = [value for run in group if (value := run.last(metric)) is not None]
        return group[0].env, -float(np.median(values)) if values else np.inf

    return sorted(groups, key=sort_key)


def label_groups(groups: Sequence[list[ReportedRun]], *, with_env: bool = True) -> list[str]:
    """Label groups by algorithm and by the keys in which groups of one algorithm and environment differ."""
    settings = [group[0].settings for group in groups]
    names = [
        {"algo": str(own.get("algo.name", "?")), "env": group[0].env}
        for own, group in zip(settings, groups, strict=True)
    ]
    envs = {name["env"] for name in names} if with_env else ()
    labels = []
    for name, keys in zip(names, find_differences(names, settings), strict=True):
        listed = [f"{key}={format_value(shorten_path(value))}" for key, value in keys.items()]
        more = [f"and {len(listed) - MOST_KEYS} more"] if len(listed) > MOST_KEYS else []
        labels.append(", ".join([name["algo"], *([name["env"]] if len(envs) > 1 else []), *listed[:MOST_KEYS], *more]))
    return labels


def shorten_path(value: Any) -> Any:
    """Return the last two components of an absolute path, and other values unchanged."""
    absolute = isinstance(value, str) and os.path.isabs(value)
    return os.path.join(*Path(value).parts[-2:]) if absolute else value


def _read(path: Path, root: Path, state: str, why: str, in_sweep: bool, notes: dict[str, list[str]]) -> Entry:
    name = os.path.relpath(path, root)
    config: dict[str, Any] = {}
    columns: dict[str, Array] = {}
    wrong = None
    try:
        config = read_settings(path)
        columns = read_columns(path)
        if EVALUATION not in columns:
            wrong = "no evaluation yet" if columns else "no metrics yet"
    except FolderError as error:
        wrong = " ".join(str(error).split()) if (path / "config.yaml").exists() else "not started"
    if wrong is not None:
        notes.setdefault(wrong.replace(f"{root}{os.sep}", ""), []).append(name)
    why = why.replace(f"{root}{os.sep}", "")
    return Entry(name, ReportedRun(path, config, columns), state, why, read_json(path / "provenance.json"), in_sweep)


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))
