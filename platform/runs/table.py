"""Table of run states for the terminal."""

import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from .state import WRONG, RunState, log_tail
from .sweeps import label_runs
from .units import duration, short

HEAD = ("run", "with", "state", "iteration", "steps", "budget", "return", "time", "last row", "reason or job")
NAME_WIDTH = 32  # longer names are abbreviated, so that a line fits into 100 columns
DIFFERENCES_WIDTH = 40  # longer text is cut
DATED = re.compile(r"\d{4}-(\d\d-\d\d)_(\d\d-\d\d-\d\d_.+)")  # names chosen by Paddock


def print_table(folder: Path, run_states: Sequence[RunState], lines: int) -> None:
    """Print one line per run with the reason for its state, then the number of runs in each state.

    `lines` limits the output shown of a job that failed before its run started.
    """
    labels = label_runs({run_state.run: run_state.config for run_state in run_states})
    names = _short_names([_name(folder, run_state.run) for run_state in run_states])
    rows = [_cells(one, labels.get(one.run, ""), name) for one, name in zip(run_states, names, strict=True)]
    empty = () if any(labels.values()) else (HEAD.index("with"),)
    widths = [0 if i in empty else max(map(len, column)) for i, column in enumerate(zip(HEAD, *rows, strict=True))]
    print(_line(HEAD, widths))
    for run_state, cells in zip(run_states, rows, strict=True):
        print(_line(cells, widths))
        if run_state.why and (run_state.state in WRONG or run_state.state in ("requeued", "unknown")):
            print(f"    {run_state.why}")
        if run_state.state == "failed" and run_state.submission and not run_state.metrics:
            for line in log_tail(run_state.submission, lines):
                print(f"    | {line}")
    counts = Counter(run_state.state for run_state in run_states)
    print(", ".join(f"{count} {state}" for state, count in counts.items()))


def _name(folder: Path, run: Path) -> str:
    return os.path.relpath(run, folder) if run != folder else run.absolute().name


def _cells(run_state: RunState, label: str, name: str) -> tuple[str, ...]:
    metrics, job = run_state.metrics, run_state.submission.job if run_state.submission else ""
    value = metrics.get("eval/return_mean", metrics.get("train/return_mean"))
    return (
        name,
        label if len(label) <= DIFFERENCES_WIDTH else f"{label[: DIFFERENCES_WIDTH - 2]}..",
        run_state.state,
        f"{metrics['iteration']:.0f}" if "iteration" in metrics else "",
        short(metrics["step"]) if "step" in metrics else "",
        f"{run_state.progress:.0%}" if run_state.progress is not None else "",
        short(value) if value is not None else "",
        duration(metrics["system/seconds"]) if "system/seconds" in metrics else "",
        f"{duration(run_state.updated_s)} ago" if run_state.updated_s is not None else "",
        f"{job} {run_state.why}".strip() if run_state.state in ("pending", "done") else job,
    )


def _short_names(names: Sequence[str]) -> list[str]:
    """Abbreviate long names: `21-30-48 ppo CartPole-v1 s0`, with the day if there are several; cut the middle."""
    days = {match[1] for name in names if (match := DATED.search(name))}

    def shorten(match: re.Match[str]) -> str:
        return (f"{match[1]} " if len(days) > 1 else "") + match[2].replace("_seed", " s").replace("_", " ")

    short_names = [name if len(name) <= NAME_WIDTH else DATED.sub(shorten, name) for name in names]
    half = NAME_WIDTH // 2 - 1
    return [name if len(name) <= NAME_WIDTH else f"{name[:half]}..{name[-half:]}" for name in short_names]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    numbers = range(3, 9)
    shown = [(i, cell, width) for i, (cell, width) in enumerate(zip(cells, widths, strict=True)) if width]
    return "  ".join(cell.rjust(width) if i in numbers else cell.ljust(width) for i, cell, width in shown).rstrip()
