"""Learning curves of groups of runs: interquartile mean and interval over seeds."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..runs.lazy_imports import matplotlib
from ..runs.results import Columns
from .drawing import mark_whole
from .statistics import interquartile_mean, interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

Array = NDArray[np.float64]
Line = tuple[Array, Array]  # x [n] increasing, y [n], both finite

EVALUATION, TRAINING = "eval/return_mean", "train/return_mean"
X_AXES = {  # name -> metric, its unit, label
    "step": ("step", 1, "environment steps"),
    "iteration": ("iteration", 1, "iteration"),
    "minutes": ("system/seconds", 60, "computing time (minutes)"),
}
CSV_COLUMNS = ("group", "metric", "seed", "x", "y", "iqm", "low", "high")
FEW_SEEDS = 5  # intervals of fewer seeds are marked
GRID_POINTS = 80  # of the common grid of seeds
FEW_POINTS = 30  # lines with at most so many points have markers


@dataclass(frozen=True)
class Curve:
    """Metric of a group of runs that differ only in the seed."""

    group: str
    metric: str
    seeds: Sequence[object]  # of the lines
    lines: Sequence[Line]


def read_line(columns: Columns, x: str, metric: str) -> Line:
    """Return the points of a metric over an axis of `X_AXES`, without NaN."""
    name, unit, _ = X_AXES[x]
    nothing = np.full(len(columns.get("step", ())), np.nan)
    xs, ys = columns.get(name, nothing) / unit, columns.get(metric, nothing)
    finite = np.isfinite(xs) & np.isfinite(ys)
    return xs[finite], ys[finite]


def smooth_line(line: Line, points: int) -> Line:
    """Replace each value of a line, which is not empty, by the mean of up to `points` values that end with it."""
    x, y = line
    points = min(points, len(y))
    return x, np.convolve(y, np.ones(points))[: len(y)] / np.minimum(np.arange(len(y)) + 1, points)


def explain_lines(seeds: Iterable[int], smooth: int = 1) -> str:
    """Explain the lines and bands of groups with these numbers of seeds; return an empty string if there are none."""
    several = [count for count in seeds if count > 1]
    notes = ["bold: interquartile mean (IQM) with 95 % interval", "thin: each seed"] if several else []
    if min(several, default=FEW_SEEDS) < FEW_SEEDS:
        notes.append(f"dashed: unreliable interval of fewer than {FEW_SEEDS} seeds")
    if smooth > 1:
        notes.append(f"smoothed over {smooth} points")
    return "; ".join(notes)


def tabulate(curves: Iterable[Curve]) -> str:
    """Return curves as CSV with `CSV_COLUMNS`: first the points of each seed, then those of the mean and its interval."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(CSV_COLUMNS)
    for curve in curves:
        for seed, line in zip(curve.seeds, curve.lines, strict=True):
            table.writerows((curve.group, curve.metric, seed, x, y, "", "", "") for x, y in zip(*line, strict=True))
        if len(curve.lines) > 1:
            mean = zip(*aggregate(curve.lines), strict=True)
            table.writerows((curve.group, curve.metric, "", x, "", *values) for x, *values in mean)
    return text.getvalue()


def common_grid(lines: Sequence[Line], points: int = GRID_POINTS) -> tuple[Array, Array]:
    """Interpolate lines on a common grid over the range that all of them cover.

    Returns:
        (x [G], y [R, G]); empty if there is no such range.
    """
    low, high = max(x[0] for x, _ in lines), min(x[-1] for x, _ in lines)
    if high < low:
        return np.empty(0), np.empty((len(lines), 0))
    grid_x = np.unique(np.linspace(low, high, points))
    return grid_x, np.array([np.interp(grid_x, x, y) for x, y in lines])


def aggregate(lines: Sequence[Line]) -> tuple[Array, Array, Array, Array]:
    """Return a common grid [G] of lines, their interquartile mean [G], and its interval: low [G], high [G]."""
    x, every = common_grid(lines)
    scores = every.T[:, :, None]
    return (x, interquartile_mean(scores), *interval(scores)) if len(x) else (x, x, x, x)


def draw_group(
    ax: Axes,
    lines: Sequence[Line],
    color: str,
    label: str | None = None,
    zorder: float = 2,
    aggregated: tuple[Array, Array, Array, Array] | None = None,
) -> Line2D:
    """Draw the lines of a group's seeds: a single one bold, several ones thin below their bold mean.

    `aggregated` is what `aggregate` returns for several lines, if it is known. Return the bold line.
    """
    bold: dict[str, Any] = {"color": color, "linewidth": 2, "zorder": zorder}
    thin: dict[str, Any] = {"color": color, "zorder": zorder - 0.5}
    xs, ys = lines[0]
    # The points of a mean line are grid points, not measurements, so they have no markers.
    marked = len(lines) == 1 and len(xs) <= FEW_POINTS
    if len(lines) > 1:
        for line in lines:
            ax.plot(*line, linewidth=0.7, alpha=0.4, marker=_marker(line[0]), markersize=2, **thin)
        xs, ys, low, high = aggregated or aggregate(lines)
        marked = len(xs) == 1
        if len(xs) > 1:
            ax.fill_between(xs, low, high, zorder=zorder - 0.5, **band_style(color, len(lines)))
    return ax.plot(xs, ys, label=label, marker="o" if marked else None, markersize=4, **bold)[0]


def band_style(color: str, seeds: int) -> dict[str, Any]:
    """Return the style of an interval's band, which has dashed bounds for few seeds."""
    if seeds >= FEW_SEEDS:
        return {"color": color, "alpha": 0.18, "linewidth": 0}
    face, edge = (matplotlib.colors.to_rgba(color, alpha) for alpha in (0.1, 0.6))
    return {"facecolor": face, "edgecolor": edge, "linestyle": (0, (4, 3)), "linewidth": 0.8}


def label_x(ax: Axes, x: str) -> None:
    """Label an axis of `X_AXES` and format its ticks."""
    ax.set_xlabel(X_AXES[x][2])
    ax.margins(x=0.02)
    if x == "step":
        ax.xaxis.set_major_formatter(matplotlib.ticker.EngFormatter(sep=""))
    elif x == "iteration":
        mark_whole(ax.xaxis)


def _marker(xs: Array) -> str | None:
    return "o" if len(xs) <= FEW_POINTS else None
