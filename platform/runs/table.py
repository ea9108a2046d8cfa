"""Where runs stand, as a table on the terminal."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from .state import WRONG, RunState, log_tail
from .sweeps import label_runs
from .units import duration, short

HEAD = ("run", "with", "state", "iteration", "steps", "budget", "return", "time", "last row", "why or job")
NAME_WIDTH = 32  # longer names lose their middle, so that a line fits into 100 columns
DIFFERENCES_WIDTH = 40  # longer words lose their end


def print_table(folder: Path, run_states: Sequence[RunState], lines: int) -> None:
    """Print a line for each run, below it why it is as it is, and how many there are of each state.

    Args:
        lines: how many to show of what the job of a run printed that failed before it began.
    """
    told = label_runs({run_state.run: run_state.config for run_state in run_states})
    head, *rows = [HEAD, *(_cells(folder, run_state, told.get(run_state.run, "")) for run_state in run_states)]
    empty = () if any(told.values()) else (HEAD.index("with"),)
    widths = [0 if i in empty else max(map(len, column)) for i, column in enumerate(zip(head, *rows, strict=True))]
    print(_line(head, widths))
    for run_state, cells in zip(run_states, rows, strict=True):
        print(_line(cells, widths))
        if run_state.why and (run_state.state in WRONG or run_state.state in ("requeued", "unknown")):
            print(f"    {run_state.why}")
        if run_state.state == "failed" and run_state.submission and not run_state.metrics:
            for line in log_tail(run_state.submission, lines):
                print(f"    | {line}")
    counts = Counter(run_state.state for run_state in run_states)
    print(", ".join(f"{count} {state}" for state, count in counts.items()))


def _cells(folder: Path, run_state: RunState, told: str) -> tuple[str, ...]:
    metrics, job = run_state.metrics, run_state.submission.job if run_state.submission else ""
    name = os.path.relpath(run_state.run, folder) if run_state.run != folder else run_state.run.absolute().name
    value = metrics.get("eval/return_mean", metrics.get("train/return_mean"))
    return (
        _shorten(name),
        told if len(told) <= DIFFERENCES_WIDTH else f"{told[: DIFFERENCES_WIDTH - 2]}..",
        run_state.state,
        f"{metrics['iteration']:.0f}" if "iteration" in metrics else "",
        short(metrics["step"]) if "step" in metrics else "",
        f"{run_state.progress:.0%}" if run_state.progress is not None else "",
        short(value) if value is not None else "",
        duration(metrics["system/seconds"]) if "system/seconds" in metrics else "",
        f"{duration(run_state.updated_s)} ago" if run_state.updated_s is not None else "",
        f"{job} {run_state.why}".strip() if run_state.state in ("pending", "done") else job,
    )


def _shorten(name: str) -> str:
    half = NAME_WIDTH // 2 - 1
    return name if len(name) <= NAME_WIDTH else f"{name[:half]}..{name[-half:]}"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    numbers = range(3, 9)
    shown = [(i, cell, width) for i, (cell, width) in enumerate(zip(cells, widths, strict=True)) if width]
    return "  ".join(cell.rjust(width) if i in numbers else cell.ljust(width) for i, cell, width in shown).rstrip()
