"""The rows of a run's journals: a mapping of metrics on each line."""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .folder import FolderError

log = logging.getLogger(__name__)

JOURNALS = ("metrics.jsonl", "system.jsonl")
EVALUATION = "eval/"  # how the metrics of an evaluation begin
EVALUATION_OF = "eval/of_iteration"  # the iteration whose policy was evaluated, where a later row reports it
SHOWN = 3  # numbers of damaged lines, in a message


def parse_rows(lines: Iterable[bytes], damaged: list[int]) -> Iterator[dict[str, Any]]:
    """Return the rows of a journal; a last line without its end is just being written, and left out.

    Args:
        damaged: the numbers, from 1, of whole lines that are no rows are added to it.
    """
    for number, line in enumerate(lines, 1):
        if not line.endswith(b"\n"):
            return
        if (row := parse_row(line)) is None:
            damaged.append(number)
        else:
            yield row


def parse_row(line: bytes) -> dict[str, Any] | None:
    """Return the row that a line holds; None where it holds none, or lacks its end."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    whole = isinstance(row, dict) and type(row.get("iteration")) is int and line.endswith(b"\n")
    return row if whole else None


def is_of_end(row: Mapping[str, Any]) -> bool:
    """Whether a row, both journals' part of it, is an evaluation alone, which a run's end has added."""
    return EVALUATION_OF in row and "system/seconds" not in row


def name_damage(path: Path, damaged: Sequence[int]) -> str:
    """Return which lines of a journal are no rows, in words."""
    if len(damaged) == 1:
        return f"{path}: line {damaged[0]} is damaged"
    more = f" and {len(damaged) - SHOWN} more" if damaged[SHOWN:] else ""
    return f"{path}: lines {', '.join(map(str, damaged[:SHOWN]))}{more} are damaged"


def warn_of_damage(path: Path, damaged: Sequence[int]) -> None:
    """Log which lines of a journal are no rows."""
    log.warning("%s, and left out", name_damage(path, damaged))


def to_number(value: Any) -> float:
    """The value, or NaN if it is no number, or one that is too large."""
    try:
        return float(value) if isinstance(value, int | float) else np.nan
    except OverflowError:
        return np.nan


def read_rows(path: Path, *, strict: bool = False) -> Iterator[dict[str, Any]]:
    """Read the rows of a journal; none where there is no such file. Damaged lines are left out, which is logged.

    Raises:
        FolderError: it cannot be read; if strict, a line is damaged, and not just being written.
    """
    damaged: list[int] = []
    try:
        with open(path, "rb") as lines:
            yield from parse_rows(lines, damaged)
    except FileNotFoundError:
        return
    except OSError as error:
        raise FolderError(f"{path} cannot be read ({error.strerror})") from error
    if damaged and strict:
        raise FolderError(f"{name_damage(path, damaged)}; mend it, or take a whole copy of the run")
    if damaged:
        warn_of_damage(path, damaged)
