"""Run folders as columns of numbers and lists of events, for plots, notebooks and reports."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .folder import FolderError

Columns = dict[str, NDArray[np.float64]]


def read_columns(run: Path) -> Columns:
    """Every metric of a run by its name, the group `system/` included: [R] each, one row an iteration.

    NaN stands where a row lacks the metric, or had a NaN or an infinity. The run may still be going on: a line that
    is not whole ends the reading.

    Raises:
        FolderError: a journal cannot be read.
    """
    rows: dict[int, dict[str, Any]] = {}
    for journal in ("metrics.jsonl", "system.jsonl"):
        for row in _read_rows(run / journal):
            rows.setdefault(row["iteration"], {}).update(row)
    names = dict.fromkeys(name for row in rows.values() for name in row)
    return {name: np.array([_number(row.get(name)) for row in rows.values()]) for name in names}


def read_events(run: Path) -> list[dict[str, Any]]:
    """What happened in a run, in order, as its `events.jsonl` tells; empty where nothing has been told.

    The run may still be going on: a line that is not whole ends the reading.

    Raises:
        FolderError: the journal cannot be read.
    """
    return list(_read_rows(run / "events.jsonl"))


def _read_rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with open(path, "rb") as lines:
            for line in lines:
                try:
                    row = json.loads(line)
                except ValueError:
                    return
                if not isinstance(row, dict) or "iteration" not in row or not line.endswith(b"\n"):
                    return
                yield row
    except FileNotFoundError:
        return
    except OSError as error:
        raise FolderError(f"{path} cannot be read ({error.strerror})") from error


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else np.nan
