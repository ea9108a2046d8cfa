"""Rows of a run's journals: a JSON mapping of metrics on each line."""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .folder import FolderError

log = logging.getLogger(__name__)

JOURNALS = ("metrics.jsonl", "system.jsonl")
EVALUATION = "eval/"  # prefix of an evaluation's metrics
EVALUATION_OF = "eval/of_iteration"  # the iteration whose policy was evaluated, if a later row reports it
SHOWN = 3  # damaged lines, or values that differ, in a message


def parse_rows(lines: Iterable[bytes], damaged: list[int]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a journal, without a last line that is being written.

    Args:
        damaged: receives the numbers, from 1, of damaged lines.
    """
    for number, line in enumerate(lines, 1):
        if not line.endswith(b"\n"):
            return
        if (row := parse_row(line)) is None:
            damaged.append(number)
        else:
            yield row


def parse_row(line: bytes) -> dict[str, Any] | None:
    """Return the row in a line; None if it is damaged or lacks its end."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    whole = isinstance(row, dict) and type(row.get("iteration")) is int and line.endswith(b"\n")
    return row if whole else None


def is_final_evaluation(row: Mapping[str, Any]) -> bool:
    """Return whether a row of both journals is an evaluation alone, added at a run's end."""
    return EVALUATION_OF in row and "system/seconds" not in row


def name_damage(path: Path, damaged: Sequence[int]) -> str:
    """Return in words which lines of a journal are damaged."""
    if len(damaged) == 1:
        return f"{path}: line {damaged[0]} is damaged"
    more = f" and {len(damaged) - SHOWN} more" if damaged[SHOWN:] else ""
    return f"{path}: lines {', '.join(map(str, damaged[:SHOWN]))}{more} are damaged"


def describe_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return in words which values differ between two rows or other mappings; "" if none does."""
    keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    listed = ", ".join(f"{key} was {before.get(key)} and is {after.get(key)}" for key in keys[:SHOWN])
    return listed + (f", and {len(keys) - SHOWN} more" if keys[SHOWN:] else "")


def warn_of_damage(path: Path, damaged: Sequence[int]) -> None:
    """Log which lines of a journal are damaged."""
    log.warning("%s, and left out", name_damage(path, damaged))


def to_number(value: Any) -> float:
    """Return the value, or NaN if it is no number or too large."""
    try:
        return float(value) if isinstance(value, int | float) else np.nan
    except OverflowError:
        return np.nan


def read_rows(path: Path, *, strict: bool = False) -> Iterator[dict[str, Any]]:
    """Read the rows of a journal, none if there is no file; damaged lines are left out, which is logged.

    Raises:
        FolderError: it cannot be read; if strict, a line is damaged.
    """
    damaged: list[int] = []
    try:
        with open(path, "rb") as lines:
            for row in parse_rows(lines, damaged):
                if damaged and strict:
                    break
                yield row
    except FileNotFoundError:
        return
    except OSError as error:
        raise FolderError(f"{path} cannot be read ({error.strerror})") from error
    if damaged and strict:
        raise FolderError(f"{name_damage(path, damaged)}; mend it, or take a whole copy of the run")
    if damaged:
        warn_of_damage(path, damaged)
