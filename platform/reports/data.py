"""What a report is about: runs as far as they can be read, those equal but for the seed as groups, and their scores."""

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

MOST_KEYS = 6  # in the name of a group


@dataclass(frozen=True, eq=False)
class ReportedRun:
    """One run's configuration and numbers."""

    path: Path
    config: dict[str, Any]
    columns: Columns

    @property
    def settings(self) -> dict[str, Any]:
        """What it computes, the seed excepted."""
        return experiment_settings(self.config)

    @property
    def env(self) -> str:
        """What people call its environment; families, which have no id, are called by their class."""
        settings = self.settings
        return short_name(str(settings.get("env.id") or str(settings.get("env._target_", "?")).rpartition(".")[2]))

    def last(self, metric: str) -> float | None:
        """The last value of a metric; None if there is none."""
        values = self.columns.get(metric, np.empty(0))
        values = values[np.isfinite(values)]
        return float(values[-1]) if len(values) else None


@dataclass(frozen=True, eq=False)
class Entry:
    """A run, as far as it can be read."""

    name: str  # its path from the folder that was given
    run: ReportedRun  # of a damaged one, configuration or columns are empty
    state: str
    why: str
    provenance: dict[str, Any]
    in_sweep: bool


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ in nothing but the seed."""

    letter: str
    color: str
    label: str  # what tells it from the other groups
    env: str
    entries: list[Entry]
    metric: str  # what is compared
    scores: Array  # [R], the last value of each run that has one


@dataclass(frozen=True, eq=False)
class Material:
    """All that was found."""

    entries: list[Entry]
    sweeps: list[Path]
    notes: dict[str, list[str]]  # what is wrong -> with which runs


def read_settings(run: Path) -> dict[str, Any]:
    """Read a run's configuration, in which `init_from` is run and iteration of a policy, and not where it was found.

    A repeated run begins with the same one from a file of the first run's folder.

    Raises:
        FolderError: there is no run, or its configuration is damaged.
    """
    config, origin = read_config(run), read_json(run / "provenance.json").get("init_from")
    if isinstance(origin, dict):
        config["init_from"] = f"{origin.get('run')}@{origin.get('iteration')}"
    return config


def gather(folders: Sequence[Path]) -> Material:
    """Read every run and find every sweep in some folders.

    Raises:
        ConfigError: there is no such folder, or neither a run nor a sweep in one.
    """
    sweeps = list(dict.fromkeys(sweep for folder in folders for sweep in find_sweeps(folder)))
    found: dict[Path, str] = {}
    places: dict[Path, Path] = {}
    for folder in folders:
        try:
            runs = find_runs(folder)
        except PaddockError:
            # A sweep that has just begun has no run yet.
            if not any(folder in (sweep, *sweep.parents) for sweep in sweeps):
                raise
            continue
        for run in runs:
            if places.setdefault(run.resolve(), run) is run:
                found[run] = _name(run, folder, len(folders))
    states = read_states(list(found))
    notes: dict[str, list[str]] = {}
    entries = [
        _read(run, name, *states[run], any(sweep in run.parents for sweep in sweeps), notes)
        for run, name in found.items()
    ]
    begun = {
        entry.run: entry.name for entry in entries if not entry.in_sweep and entry.run.columns and entry.run.config
    }
    repeats = find_repeats(list(begun))
    if repeats:
        wrong = "counted once, as they repeat the settings and the seed of another run"
        notes[wrong] = [f"{begun[repeat]} (of {begun[other]})" for repeat, other in repeats.items()]
    return Material(entries, sweeps, notes)


def choose_metric(entries: Sequence[Entry], asked: str | None) -> str:
    """The metric that is compared: the one asked for, else the return of evaluations, or of training if there are none.

    Raises:
        ConfigError: no run has the one asked for.
    """
    known = {name for entry in entries for name in entry.run.columns}
    if asked is not None:
        require(asked in known, f"score={asked} is not a metric of these runs; {nearest(asked, known)}")
        return asked
    return EVALUATION if EVALUATION in known or TRAINING not in known else TRAINING


def group(entries: Sequence[Entry], metric: str) -> list[Group]:
    """Groups of runs with numbers, each seed once, those of one environment together, the best first."""
    begun = {entry.run: entry for entry in entries if entry.run.columns and entry.run.config}
    repeats = find_repeats(list(begun))
    every = sort_groups(group_by_seed([run for run in begun if run not in repeats]), metric)
    labels = label_groups(every, with_env=False)
    return [
        Group(
            _letter(k),
            COLORS[k % len(COLORS)],
            label,
            same[0].env,
            [begun[run] for run in same],
            metric,
            np.array([score for run in same if (score := run.last(metric)) is not None]),
        )
        for k, (same, label) in enumerate(zip(every, labels, strict=True))
    ]


def group_by_seed(runs: Sequence[ReportedRun]) -> list[list[ReportedRun]]:
    """Group runs that compute the same but for the seed, in the order of the first of each."""
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
    """Find runs that repeat another one's settings and seed, as copies do: they are no further samples.

    Returns:
        Each repeat, and the run that stands for it: of equals the one that has come farthest, or the first.
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
    """Sort groups by their environments, and those of one environment by the median of a metric's last values."""

    def place(group: list[ReportedRun]) -> tuple[str, float]:
        values = [value for run in group if (value := run.last(metric)) is not None]
        return group[0].env, -float(np.median(values)) if values else np.inf

    return sorted(groups, key=place)


def label_groups(groups: Sequence[list[ReportedRun]], *, with_env: bool = True) -> list[str]:
    """Name groups by their algorithms, and the keys in which those of one algorithm and environment differ.

    Args:
        with_env: name environments too, where there are several.
    """
    settings = [group[0].settings for group in groups]
    names = [
        {"algo": str(of.get("algo.name", "?")), "env": group[0].env} for of, group in zip(settings, groups, strict=True)
    ]
    envs = {name["env"] for name in names} if with_env else ()
    labels = []
    for name, keys in zip(names, find_differences(names, settings), strict=True):
        told = [f"{key}={format_value(value)}" for key, value in keys.items()]
        more = [f"and {len(told) - MOST_KEYS} more"] if len(told) > MOST_KEYS else []
        labels.append(", ".join([name["algo"], *([name["env"]] if len(envs) > 1 else []), *told[:MOST_KEYS], *more]))
    return labels


def _read(run: Path, name: str, state: str, why: str, in_sweep: bool, notes: dict[str, list[str]]) -> Entry:
    config: dict[str, Any] = {}
    columns: dict[str, Array] = {}
    wrong = None
    try:
        config = read_settings(run)
        columns = read_columns(run)
        if EVALUATION not in columns:
            wrong = "no evaluation yet" if columns else "no row yet"
    except FolderError as error:
        wrong = " ".join(str(error).split()) if (run / "config.yaml").exists() else "not begun"
    if wrong is not None:
        notes.setdefault(wrong, []).append(name)
    return Entry(name, ReportedRun(run, config, columns), state, why, read_json(run / "provenance.json"), in_sweep)


def _name(run: Path, folder: Path, folders: int) -> str:
    return str(run) if folders > 1 or run == folder else os.path.relpath(run, folder)


def _letter(k: int) -> str:
    """A, B, ... Z, AA, AB, ..."""
    return (_letter(k // 26 - 1) if k >= 26 else "") + chr(65 + k % 26)
