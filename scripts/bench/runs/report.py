"""How long many runs take to read and to report on: ours against a plain loop of pandas.

    python scripts/bench/runs/report.py [--quick] [--json PATH]

A short run is made; its folder is copied with other seeds and its rows repeated, until there are 1,000 of 300 rows.
`read_runs` reads all of them; the rows of the first 100 are read by `read_metrics` and by `pd.read_json(lines=True)`,
and the report is of those. Sides take turns; what the kernel remembers of the files helps all of them alike.
"""

import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))  # started by its path, Python would look in scripts/ alone

from scripts.bench import harness  # noqa: E402

harness.require_package("pandas", "bench")

import pandas as pd  # noqa: E402

from paddock.report import report  # noqa: E402
from paddock.runs.journal import JOURNALS  # noqa: E402
from paddock.runs.results import read_metrics, read_runs  # noqa: E402
from scripts.bench.harness import Report  # noqa: E402

RUNS, REPORTED, ROWS = 1000, 100, 300
RATIO = 2.0  # pandas over ours, at least
SECONDS = {"read_runs": 30.0, "report": 20.0}  # at most, on two cores that others use too


def main(arguments: list[str] | None = None) -> int:
    """Time both sides in turn, print medians; returns 1 if a target is missed, else 0."""
    options = harness.command_line(__doc__, "one round, under a minute").parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        copy_runs(make_run(Path(folder)), Path(folder) / "runs", RUNS, ROWS)
        found = measure(Path(folder) / "runs", rounds=1 if options.quick else 5)
    print(found["machine"])
    for name, seconds in found["medians"].items():
        print(f"{name:12}  {seconds:7.2f} s")
    print(f"pandas / read_metrics: {found['ratio']:.1f}; at least {RATIO}")
    slow = [name for name, most in SECONDS.items() if found["medians"][name] > most]
    return harness.finish(found, options.json, not slow and found["ratio"] >= RATIO)


def make_run(folder: Path) -> Path:
    """A run of the real thing, of a few seconds."""
    overrides = ["algo=ppo", "env=cartpole", "compute=serial", "algo.eval_every=2", "budget.iterations=10"]
    command = [sys.executable, "-m", "paddock", *overrides, f"run.dir={folder / 'first'}"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder / "first"


def copy_runs(run: Path, folder: Path, count: int, rows: int) -> None:
    """Copies with five seeds of each of many learning rates, and journals of so many rows."""
    journals = {}
    for name in JOURNALS:
        told = [json.loads(line) for line in (run / name).read_text().splitlines()]
        places = ({"iteration": i + 1, "step": 1024 * (i + 1)} for i in range(rows))
        lines = [json.dumps(told[i % len(told)] | place) for i, place in enumerate(places)]
        journals[name] = "\n".join(lines) + "\n"
    config = (run / "config.yaml").read_text()
    for k in range(count):
        copy = folder / str(k)
        copy.mkdir(parents=True)
        for name in ("provenance.json", "done.json"):
            shutil.copy(run / name, copy)
        rate = f"  learning_rate: {0.0001 * (1 + k // 5):.4f}"
        changed = re.sub("^  learning_rate: .*", rate, config, flags=re.MULTILINE)
        (copy / "config.yaml").write_text(re.sub("^seed: .*", f"seed: {k % 5}", changed, flags=re.MULTILINE))
        for name, text in journals.items():
            (copy / name).write_text(text)


def measure(folder: Path, rounds: int) -> Report:
    """Seconds of every side, and how many times those of ours pandas takes for the same rows."""
    runs = [folder / str(k) for k in range(len(list(folder.iterdir())))]
    first = runs[:REPORTED]
    sides: dict[str, Callable[[], Any]] = {
        "read_metrics": lambda: read_metrics(*first),
        "pandas": lambda: read_with_pandas(first),
        "read_runs": lambda: read_runs(folder),
        "report": lambda: report(first),
    }
    for name in ("read_metrics", "report"):  # imports, and the files into the kernel's memory
        sides[name]()
    times = harness.in_turns(rounds, {name: partial(harness.seconds_of, side) for name, side in sides.items()})
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    return {
        "machine": harness.describe_machine(),
        "versions": harness.versions("paddock", "polars", "pandas", "matplotlib", "scipy"),
        "settings": {"runs": len(runs), "reported": len(first), "rows": ROWS, "rounds": rounds},
        "medians": medians,
        "ratio": medians["pandas"] / medians["read_metrics"],
        "times": times,
    }


def read_with_pandas(runs: Sequence[Path]) -> pd.DataFrame:
    """The same rows as `read_metrics`, as one would read them without Paddock."""
    frames = []
    for run in runs:
        learned, how = (pd.read_json(run / name, lines=True) for name in JOURNALS)
        frames.append(learned.merge(how.drop(columns="step"), on="iteration").assign(run=str(run)))
    return pd.concat(frames)


if __name__ == "__main__":
    sys.exit(harness.run_script(main))
