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


def parse_rows(lines: Iterable[bytes], *, strict: bool = False) -> Iterator[dict[str, Any]]:
    """The rows of a journal as far as it is whole; ValueError at a damaged line, if strict."""
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict) or "iteration" not in row or not line.endswith(b"\n"):
            if strict and line.endswith(b"\n"):
                raise ValueError(f"no row: {line[:40]!r}")
            return
        yield row


def to_number(value: Any) -> float:
    """The value, or NaN if it is no number."""
    return float(value) if isinstance(value, int | float) else np.nan


def read_rows(path: Path, *, strict: bool = False) -> Iterator[dict[str, Any]]:
    """Read the rows of a journal as far as it is whole; none where there is no such file.

    Raises:
        FolderError: it cannot be read; if strict, a line is damaged, and not just being written.
    """
    try:
        with open(path, "rb") as lines:
            yield from parse_rows(lines, strict=strict)
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise FolderError(f"{path} cannot be read ({getattr(error, 'strerror', error)})") from error
