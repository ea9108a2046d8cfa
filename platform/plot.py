"""Draw the learning curves of runs: one colour for runs that differ in nothing but the seed.

python -m paddock.plot RUN... out=FILE.png
"""

import io
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator
from numpy.typing import NDArray

from envs.errors import nearest, require

from .command import Readers, check_output, parse, run_command, write_output
from .folder import computation, read_config, short_name
from .results import Columns, read_columns

log = logging.getLogger(__name__)

GUIDE = """\
Draw the learning curves of runs; they may still be going on.

    python -m paddock.plot RUN... [key=value ...]

    RUN...                    run folders; those that differ in nothing but the seed get one colour: each a thin
                              line, and a bold one for their mean as far as all of them have come
    out=FILE.png              the picture, also .pdf or .svg; else RUN/curves.png for one run, curves.png for several
    x=step                    step: environment steps; iteration; minutes: of computing, over all sittings
    y=group/name,group/name   metrics, as metrics.jsonl and system.jsonl name them; those of one name share a panel;
                              else eval/return_mean, with train/return_mean where that leaves it readable
"""
READERS: Readers = {
    "out": (Path, "a file *.png, *.pdf or *.svg"),
    "x": (str, "step, iteration or minutes"),
    "y": (lambda text: text.strip("[]").replace(" ", "").split(","), "names of metrics, with commas between"),
}
FORMATS = (".png", ".pdf", ".svg")
X_AXES = {  # name -> metric, its unit, label
    "step": ("step", 1, "environment steps"),
    "iteration": ("iteration", 1, "iteration"),
    "minutes": ("system/seconds", 60, "computing time (minutes)"),
}
EVALUATION, TRAINING = "eval/return_mean", "train/return_mean"
SPOKEN = {EVALUATION: "evaluation", TRAINING: "training", "return_mean": "mean return of an episode"}
FEW_POINTS = 30  # up to so many are marked

Line = tuple[NDArray[np.float64], NDArray[np.float64]]  # x [n] rising, y [n], both finite


@dataclass(frozen=True, eq=False)
class Run:
    """One run's configuration and numbers."""

    path: Path
    config: dict[str, Any]
    columns: Columns

    @property
    def settings(self) -> dict[str, Any]:
        """What it computes, the seed excepted."""
        return {key: value for key, value in computation(self.config).items() if key != "seed"}


def main() -> int:
    """The command `paddock.plot`; see `run_command` for the exit codes."""
    return run_command(GUIDE, _command)


def plot(runs: Sequence[Path], out: Path, *, x: str = "step", y: Sequence[str] | None = None) -> None:
    """Draw metrics of runs into a file.

    Args:
        runs: their folders, which are only read.
        out: a PNG, PDF or SVG; written whole or not at all.
        x: step, iteration or minutes.
        y: names of metrics; None for the return.

    Raises:
        PaddockError: a run or a metric is unknown, nothing has been logged yet, or the file cannot be written.
    """
    require(x in X_AXES, f"x={x} is not an axis; allowed: {', '.join(X_AXES)}")
    read = [Run(run, read_config(run), read_columns(run)) for run in runs]
    check_output("out", out, FORMATS)
    figure = draw(read, x, y)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=out.suffix[1:], dpi=150)
    write_output("out", out, buffer.getvalue())


def draw(runs: Sequence[Run], x: str, y: Sequence[str] | None) -> Figure:
    """The picture of `plot`, as a figure that belongs to no window."""
    begun = [run for run in runs if run.columns]
    require(bool(begun), f"no run has metrics yet ({', '.join(str(run.path) for run in runs)}); wait for an iteration")
    groups = group_by_seed(begun)
    known = {name for run in begun for name in run.columns}
    panels: dict[str, list[str]] = {}
    for metric in _default_metrics(groups) if y is None else dict.fromkeys(y):
        require(metric in known, f"y={metric} is not a metric of these runs; {nearest(metric, known)}")
        panels.setdefault(metric.rpartition("/")[2], []).append(metric)

    figure = Figure(figsize=(8, 1.5 + 3 * len(panels)), layout="constrained")
    missing = {run.path: None for run in runs if run not in begun}
    axes = figure.subplots(len(panels), sharex=True, squeeze=False)[:, 0]
    for ax, (name, shown) in zip(axes, panels.items(), strict=True):
        left_out = _draw_panel(ax, groups, x, shown)
        require(bool(ax.lines), f"no number of {' and '.join(shown)} has been logged yet; wait, or choose another y=")
        missing |= {run.path: None for run in left_out}
        ax.set_ylabel(SPOKEN.get(name, shown[0] if len(shown) == 1 else name))
    axes[0].set_title(_title(groups))
    axes[-1].set_xlabel(X_AXES[x][2])
    if x == "step":
        axes[-1].xaxis.set_major_formatter(EngFormatter(sep=""))
    elif x == "iteration":
        axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    for path in missing:
        log.warning("%s is not in all of the picture: it has no such numbers yet", path)
    return figure


def group_by_seed(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs that compute the same but for the seed, in groups labelled by what tells them apart."""
    groups: list[list[Run]] = []
    for run in runs:
        same = next((group for group in groups if group[0].settings == run.settings), None)
        if same is None:
            groups.append([run])
        else:
            same.append(run)
    return dict(zip(_labels([group[0] for group in groups]), groups, strict=True))


def mean_line(lines: Sequence[Line]) -> Line:
    """The mean of lines over the range that all of them cover; empty where there is none."""
    low, high = max(x[0] for x, _ in lines), min(x[-1] for x, _ in lines)
    points = np.unique(np.concatenate([x for x, _ in lines]))
    points = points[(points >= low) & (points <= high)]
    return points, np.mean([np.interp(points, x, y) for x, y in lines], axis=0)


def _draw_panel(ax: Axes, groups: Mapping[str, list[Run]], x: str, metrics: Sequence[str]) -> list[Run]:
    """Draw one line for each run and metric, and their means; returns the runs that lack numbers."""
    missing: list[Run] = []
    series = [(label, group, metric) for label, group in groups.items() for metric in metrics]
    for k, (label, group, metric) in enumerate(series):
        every = [(run, _line(run, x, metric)) for run in group]
        lines = [line for _, line in every if len(line[0])]
        missing += [run for run, line in every if not len(line[0])]
        if not lines:
            continue
        parts = [label] * (len(groups) > 1) + [SPOKEN.get(metric, metric)] * (len(metrics) > 1 or len(groups) == 1)
        # What comes first lies on top.
        style: dict[str, Any] = {"color": f"C{k % 10}", "zorder": 3 - k / len(series)}
        xs, ys = lines[0]
        if len(lines) > 1:
            parts[-1] += f" (mean of {len(lines)} seeds)"
            for line in lines:
                ax.plot(*line, linewidth=0.8, alpha=0.45, marker=_marker(line[0]), markersize=2, **style)
            xs, ys = mean_line(lines)
        # The points of a mean line are those of all its seeds: no measurements of its own, so no marks.
        marker = _marker(xs) if len(lines) == 1 or len(xs) == 1 else None
        ax.plot(xs, ys, linewidth=2, marker=marker, markersize=4, **style)
        ax.lines[-1].set_label(", ".join(parts))
    ax.grid(color="0.9", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.margins(x=0.02)
    if len(series) > 1 or len(ax.lines) > 1:
        ax.legend(frameon=False, fontsize="small")
    return missing


def _line(run: Run, x: str, metric: str) -> Line:
    name, unit, _ = X_AXES[x]
    nothing = np.full(len(run.columns["step"]), np.nan)
    xs, ys = run.columns.get(name, nothing) / unit, run.columns.get(metric, nothing)
    finite = np.isfinite(xs) & np.isfinite(ys)
    return xs[finite], ys[finite]


def _marker(xs: NDArray[np.float64]) -> str | None:
    return "o" if len(xs) <= FEW_POINTS else None


def _default_metrics(groups: Mapping[str, list[Run]]) -> list[str]:
    known = [{name for run in group for name in run.columns} for group in groups.values()]
    if not all(EVALUATION in names for names in known):
        return [TRAINING]
    return [EVALUATION, TRAINING] if len(groups) == 1 and TRAINING in known[0] else [EVALUATION]


def _labels(runs: Sequence[Run]) -> list[str]:
    """What tells runs apart: algorithm and environment, or up to three keys, or else the names of their folders."""
    keys = {key for run in runs for key in run.settings}
    differing = sorted(key for key in keys if len({repr(run.settings.get(key)) for run in runs}) > 1)
    subject = [key for key in ("algo.name", "env.id") if key in differing]
    for chosen in (subject, differing):
        if 0 < len(chosen) <= 3:
            labels = [", ".join(_setting(key, run.settings.get(key)) for key in chosen) for run in runs]
            if len(set(labels)) == len(runs):
                return labels
    return [str(run.path) for run in runs]


def _setting(key: str, value: Any) -> str:
    if key == "env.id":
        return short_name(str(value))
    return str(value) if key == "algo.name" else f"{key.rpartition('.')[2]}={value}"


def _title(groups: Mapping[str, list[Run]]) -> str:
    runs = [run for group in groups.values() for run in group]
    names = [{_setting(key, run.settings.get(key, "")) for run in runs} for key in ("algo.name", "env.id")]
    subject = " on ".join(name for choice in names if len(choice) == 1 for name in choice if name) or "learning curves"
    if len(groups) > 1:
        return subject
    seeds = [str(run.config.get("seed")) for run in runs]
    listed = ", ".join(seeds) if len(seeds) <= 8 else str(len(seeds))
    return f"{subject}, seed{'s' if len(seeds) > 1 else ''} {listed}"


def _command(arguments: Sequence[str]) -> None:
    given, options = parse("plot", arguments, READERS)
    require(bool(given), "plot needs a RUN; write python -m paddock.plot RUN... out=FILE.png")
    runs = list({run.resolve(): run for run in given}.values())
    out = options.pop("out", runs[0] / "curves.png" if len(runs) == 1 else Path("curves.png"))
    plot(runs, out, **options)
    print(out)


if __name__ == "__main__":
    sys.exit(main())
