"""Compare the scores of two sets of runs, and decide whether one is better or no worse.

python -m paddock.compare A B gate=no_worse
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from paddock.envs.errors import require

from .config.command import Readers, check_output, parse, read_choice, run_command, write_output
from .reports import statistics
from .reports.comparison import Comparison, TaskComparison, compare, read_results, store_results
from .reports.curves import FEW_SEEDS
from .runs.units import short

READERS: Readers = {
    "gate": (read_choice("better", "no_worse"), "better or no_worse"),
    "score": (str, "the name of a metric"),
    "at": (lambda text: int(float(text)), "a number of environment steps"),
    "versions": (read_choice("same", "any"), "same or any"),
    "json": (Path, "a file *.json"),
}


def main() -> int:
    """Run the command `paddock.compare`; return 1 if the gate fails."""
    return run_command("compare", _command)


def _command(arguments: Sequence[str]) -> int:
    sides, options = parse("compare", arguments, READERS)
    gate, file = options.pop("gate", None), options.pop("json", None)
    require(len(sides) in ((1, 2) if file else (2,)), "give two sides to compare: python -m paddock.compare A B")
    if file:
        check_output("json", file, (".json",))
        write_output("json", file, store_results(read_results(sides[0], options.get("score"))))
        print(file)
    if len(sides) == 1:
        return 0
    comparison = compare(sides[0], sides[1], **options)
    print_comparison(comparison)
    if gate is None:
        return 0
    passed = comparison.passes(gate)
    print(f"gate={gate}: {'passed' if passed else 'failed'}")
    return 0 if passed else 1


def print_comparison(comparison: Comparison) -> None:
    """Print a line per task, one over all tasks, and the settings in which A and B differ."""
    if comparison.reference:
        head = ["task", "seeds", "A: IQM [95 %]", "published"]
        rows = [[task.task, str(len(task.a)), _center(task.a), short(task.b[0])] for task in comparison.tasks]
    else:
        head = ["task", "seeds", "A: IQM [95 %]", "B: IQM [95 %]", "P(A > B) [95 %]"]
        rows = [_row(task) for task in comparison.tasks]
        if len(rows) > 1:
            rows.append(["all tasks", "", "", "", _share(comparison.probability, comparison.interval)])
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for line in (head, *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    if comparison.same:
        print("same runs: equal metrics for every seed")
    notes = dict.fromkeys(note for task in comparison.tasks for note in task.differences)
    if notes:
        print("source:" if comparison.reference else "settings that differ (A and B):", *notes, sep="\n    ")
    sides = {task.task: [task.a] if comparison.reference else [task.a, task.b] for task in comparison.tasks}
    few = [name for name, scores in sides.items() if min(map(len, scores)) < FEW_SEEDS]
    if few:
        print(f"fewer than five seeds, so intervals are unreliable: {', '.join(few)}")


def _row(task: TaskComparison) -> list[str]:
    interval = statistics.mean_improvement_interval([(task.a, task.b)])
    seeds = f"{len(task.a)}, {len(task.b)}"
    return [task.task, seeds, _center(task.a), _center(task.b), _share(task.probability, interval)]


def _center(scores: np.ndarray) -> str:
    low, high = statistics.interval(scores[:, None])
    return f"{short(float(statistics.interquartile_mean(scores[:, None])))} [{short(float(low))}, {short(float(high))}]"


def _share(probability: float, interval: tuple[float, float]) -> str:
    return f"{probability:.2f} [{interval[0]:.2f}, {interval[1]:.2f}]"


if __name__ == "__main__":
    sys.exit(main())
