"""Table of run states for the terminal."""

import math
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from .state import WRONG, RunState, log_tail
from .sweeps import label_runs
from .units import duration, short

HEAD = ("run", "with", "state", "iteration", "steps", "budget", "return", "time", "last row", "reason or job")
PRIORITY = (*HEAD[:4], "budget", "return", HEAD[-1], "steps", "time", "last row")  # on a narrow terminal
NAME_WIDTH = 27  # longer names are shortened if possible
DIFFERENCES_WIDTH = 44  # longer text is cut
DATED = re.compile(r"(.*)\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_(.+)")  # names chosen by Paddock


def print_table(folder: Path, run_states: Sequence[RunState], lines: int) -> None:
    """Print one line per run with the reason for its state, then the number of runs in each state.

    `lines` limits the output shown of a job that failed before its run started.
    """
    labels = label_runs({run_state.run: run_state.config for run_state in run_states})
    names = _short_names([_name(folder, run_state.run) for run_state in run_states])
    rows = [_cells(one, labels.get(one.run, ""), name) for one, name in zip(run_states, names, strict=True)]
    columns = [max(map(len, column)) for column in zip(HEAD, *rows, strict=True)]
    width_of = dict(zip(HEAD, columns, strict=True)) | ({} if any(labels.values()) else {"with": 0})
    free = shutil.get_terminal_size().columns if sys.stdout.isatty() else math.inf
    for name in PRIORITY:
        width_of[name] = width_of[name] if width_of[name] <= free else 0
        free -= width_of[name] + 2 if width_of[name] else 0
    widths = [width_of[name] for name in HEAD]
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
    label = re.sub(r"=(?:\w+\.)+(?=[A-Za-z_])", "=", label)  # functions without their modules
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
    """Shorten long names, such as `2026-11-28_21-30-48_ppo_CartPole-v1_seed0` to `ppo CartPole-v1 s0`, if they differ."""
    if max(map(len, names), default=0) <= NAME_WIDTH:
        return list(names)
    short = [
        DATED.sub(r"\1\2", name).replace("_seed", " s").replace("_", " ") if DATED.match(name) else name
        for name in names
    ]
    return short if len(set(short)) == len(names) else list(names)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    numbers = range(3, 9)
    shown = [(i, cell, width) for i, (cell, width) in enumerate(zip(cells, widths, strict=True)) if width]
    return "  ".join(cell.rjust(width) if i in numbers else cell.ljust(width) for i, cell, width in shown).rstrip()
