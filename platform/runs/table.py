"""Where runs stand, as a table on the terminal."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from .state import WRONG, Standing, log_tail
from .units import duration, short

HEAD = ("run", "state", "iteration", "steps", "budget", "return", "time", "last row", "why or job")
NAME_WIDTH = 32  # longer names lose their middle, so that a line fits into 100 columns


def print_table(folder: Path, standings: Sequence[Standing], lines: int) -> None:
    """Print a line for each run, below it why it is as it is, and how many there are of each state.

    Args:
        lines: how many to show of what the job of a run printed that failed before it began.
    """
    rows = [_cells(folder, standing) for standing in standings]
    widths = [max(map(len, column)) for column in zip(HEAD, *rows, strict=True)]
    print(_line(HEAD, widths))
    for standing, cells in zip(standings, rows, strict=True):
        print(_line(cells, widths))
        if standing.why and (standing.state in WRONG or standing.state in ("requeued", "unknown")):
            print(f"    {standing.why}")
        if standing.state == "failed" and standing.submission and not standing.metrics:
            for line in log_tail(standing.submission, lines):
                print(f"    | {line}")
    counts = Counter(standing.state for standing in standings)
    print(", ".join(f"{count} {state}" for state, count in counts.items()))


def _cells(folder: Path, standing: Standing) -> tuple[str, ...]:
    metrics, job = standing.metrics, standing.submission.job if standing.submission else ""
    name = os.path.relpath(standing.run, folder) if standing.run != folder else standing.run.absolute().name
    value = metrics.get("eval/return_mean", metrics.get("train/return_mean"))
    return (
        _shorten(name),
        standing.state,
        f"{metrics['iteration']:.0f}" if "iteration" in metrics else "",
        short(metrics["step"]) if "step" in metrics else "",
        f"{standing.progress:.0%}" if standing.progress is not None else "",
        short(value) if value is not None else "",
        duration(metrics["system/seconds"]) if "system/seconds" in metrics else "",
        f"{duration(standing.updated_s)} ago" if standing.updated_s is not None else "",
        f"{job} {standing.why}".strip() if standing.state in ("pending", "done") else job,
    )


def _shorten(name: str) -> str:
    half = NAME_WIDTH // 2 - 1
    return name if len(name) <= NAME_WIDTH else f"{name[:half]}..{name[-half:]}"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    numbers = range(2, 8)
    pairs = enumerate(zip(cells, widths, strict=True))
    return "  ".join(cell.rjust(width) if i in numbers else cell.ljust(width) for i, (cell, width) in pairs).rstrip()
