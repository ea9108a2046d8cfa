"""Run journals: one JSON mapping of metrics per line."""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .folder import FolderError

log = logging.getLogger(__name__)

JOURNALS = ("metrics.jsonl", "system.jsonl")
EVALUATION = "eval/"  # prefix of an evaluation's metrics
EVALUATION_OF = "eval/of_iteration"  # the iteration whose policy was evaluated, if a later row reports it
SHOWN = 3  # damaged lines or changed values named in a message


def parse_row(line: bytes) -> dict[str, Any] | None:
    """Parse a line; return None if it is damaged or incomplete."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    whole = isinstance(row, dict) and type(row.get("iteration")) is int and line.endswith(b"\n")
    return row if whole else None


def is_final_evaluation(row: Mapping[str, Any]) -> bool:
    """Return whether a row holds only an evaluation, added at a run's end."""
    return EVALUATION_OF in row and "system/seconds" not in row


def _name_damage(path: Path, damaged: Sequence[int]) -> str:
    if len(damaged) == 1:
        return f"{path}: line {damaged[0]} is damaged"
    more = f" and {len(damaged) - SHOWN} more" if damaged[SHOWN:] else ""
    return f"{path}: lines {', '.join(map(str, damaged[:SHOWN]))}{more} are damaged"


def describe_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Describe the values that differ between two mappings; return "" if none does."""
    keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    listed = ", ".join(f"{key} was {before.get(key)} and is {after.get(key)}" for key in keys[:SHOWN])
    return listed + (f", and {len(keys) - SHOWN} more" if keys[SHOWN:] else "")


def to_number(value: Any) -> float:
    """Convert a value to float; return NaN if it is not a number or too large."""
    try:
        return float(value) if isinstance(value, int | float) else np.nan
    except OverflowError:
        return np.nan


def read_rows(path: Path, *, strict: bool = False) -> Iterator[dict[str, Any]]:
    """Read the rows of a journal, if it exists; damaged lines are skipped with a warning, or an error if `strict`."""
    damaged: list[int] = []
    try:
        with open(path, "rb") as lines:
            for number, line in enumerate(lines, 1):
                if (row := parse_row(line)) is not None:
                    yield row
                elif line.endswith(b"\n"):  # an incomplete last line is no damage
                    damaged.append(number)
                    if strict:
                        break
    except FileNotFoundError:
        return
    except OSError as error:
        raise FolderError(f"{path} cannot be read ({error.strerror})") from error
    if damaged and strict:
        raise FolderError(f"{_name_damage(path, damaged)}; restore the file from a copy of the run")
    if damaged:
        log.warning("%s and skipped", _name_damage(path, damaged))
