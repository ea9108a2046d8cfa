"""The rows of a run's journals: a mapping of metrics on each line."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .folder import FolderError

JOURNALS = ("metrics.jsonl", "system.jsonl")
EVALUATION = "eval/"  # how the metrics of an evaluation begin
EVALUATION_OF = "eval/of_iteration"  # the iteration whose policy was evaluated, where a later row reports it


def parse_rows(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The rows of a journal as far as it is whole."""
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            return
        if not isinstance(row, dict) or "iteration" not in row or not line.endswith(b"\n"):
            return
        yield row


def to_number(value: Any) -> float:
    """The value, or NaN if it is no number."""
    return float(value) if isinstance(value, int | float) else np.nan


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Read the rows of a journal as far as it is whole; none where there is no such file.

    Raises:
        FolderError: it cannot be read.
    """
    try:
        with open(path, "rb") as lines:
            yield from parse_rows(lines)
    except FileNotFoundError:
        return
    except OSError as error:
        raise FolderError(f"{path} cannot be read ({error.strerror})") from error
