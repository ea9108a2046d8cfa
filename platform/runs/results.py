"""Read runs as NumPy columns for plots, and folders of runs as Polars data frames for notebooks and reports.

from paddock.runs.results import read_metrics, read_runs

read_runs("multirun/2026-11-21_19-28-20").group_by("algo.name").agg(pl.mean("eval/return_mean"))
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from paddock.envs.errors import require

from .folder import has_ended, holds_run, read_end, read_json
from .identity import flatten
from .journal import read_rows
from .state import State, find_runs, read_config_if_any, read_run_states

if TYPE_CHECKING:
    # Polars is slow to import.
    import polars as pl

Columns = dict[str, NDArray[np.float64]]

FIXED = ("run", "state", "started")  # columns of read_runs besides configuration and metrics


def read_columns(run: Path) -> Columns:
    """Read all metrics of a run by name, including `system/`: arrays [R], one row per iteration.

    A missing or non-finite value is NaN. An evaluation is placed in the row of the iteration whose policy was
    evaluated. An incomplete last row and damaged lines are skipped.

    Raises:
        FolderError: a journal cannot be read.
    """
    from .frames import read_journals

    rows = read_journals([run]).drop("run")
    return {column.name: column.to_numpy().astype(np.float64) for column in rows} if rows.height else {}


def read_events(run: Path) -> list[dict[str, Any]]:
    """Read the events of a run in order; damaged lines are skipped with a warning.

    Raises:
        FolderError: the journal cannot be read.
    """
    return list(read_rows(run / "events.jsonl"))


def read_runs(*folders: str | os.PathLike[str]) -> "pl.DataFrame":
    """Read one row per run below the folders: configuration, state and last metrics.

    Returns:
        `run` (its path), `state` (as in `paddock.status`) and `started` (with a time zone), every key of the
        configuration (`seed`, `algo.learning_rate`), and the last value of each metric (`eval/return_mean`), or null.
        Lists and columns of mixed types are JSON text. A key or metric with the name of another column gets the prefix
        `config.` or `metric.`.

    Raises:
        ConfigError: a folder does not exist or holds no run.
        FolderError: a journal cannot be read.
    """
    import polars as pl

    from .frames import read_journals, to_series

    runs = _find(folders)
    states = read_states(runs)
    configs = [flatten(read_config_if_any(run)) for run in runs]
    names = dict.fromkeys(name for config in configs for name in config)
    started = [_started(run) for run in runs]
    columns = [
        pl.Series("run", [str(run) for run in runs], pl.String),
        pl.Series("state", [states[run][0] for run in runs], pl.String),
        pl.Series("started", started, pl.String).str.to_datetime(time_zone="UTC", strict=False),
        *(to_series(_free(name, FIXED, "config"), [config.get(name) for config in configs]) for name in names),
    ]
    known = pl.DataFrame(columns)
    metrics = read_journals(runs)
    last = metrics.group_by("run").agg(pl.exclude("run").drop_nulls().last())
    last = last.rename({name: _free(name, known.columns, "metric") for name in last.columns if name != "run"})
    return known.join(last, on="run", how="left", maintain_order="left")


def read_metrics(*folders: str | os.PathLike[str]) -> "pl.DataFrame":
    """Read one row per iteration of every run below the folders: `run`, `iteration`, `step`, then metrics.

    Both journals are joined, and an evaluation is placed in the row of the iteration whose policy was evaluated.
    Metrics are Float64, or null. Damaged lines are skipped with a warning.

    Raises:
        ConfigError: a folder does not exist or holds no run.
        FolderError: a journal cannot be read.
    """
    from .frames import read_journals

    return read_journals(_find(folders))


def find_sweeps(folder: Path) -> list[Path]:
    """Find the sweeps in a folder at any depth, including the folder itself."""
    sweeps = []
    for here, inner, files in os.walk(folder):
        if "sweep.json" in files:
            sweeps.append(Path(here))
        # Run folders contain many files, but no sweeps.
        inner[:] = [] if holds_run(Path(here)) else sorted(name for name in inner if not name.startswith("."))
    return sweeps


def read_states(runs: Sequence[Path]) -> dict[Path, tuple[State, str]]:
    """Read the state of each run as in `paddock.status`, with a one-line reason, which may be empty."""
    states: dict[Path, tuple[State, str]] = {run: ("done", read_end(run) or "") for run in runs if has_ended(run)}
    others = read_run_states([run for run in runs if run not in states])
    return states | {run_state.run: (run_state.state, run_state.why) for run_state in others}


def _find(folders: Iterable[str | os.PathLike[str]]) -> list[Path]:
    paths = [Path(folder) for folder in folders]
    require(bool(paths), "no folder given; pass runs, multiruns or folders that contain runs")
    return find_runs(*paths)


def _started(run: Path) -> str | None:
    started = read_json(run / "provenance.json").get("started")
    return started if isinstance(started, str) else None


def _free(name: str, taken: Iterable[str], group: str) -> str:
    return f"{group}.{name}" if name in taken else name
