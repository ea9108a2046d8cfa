"""Learning curves of groups of runs: interquartile mean and interval over seeds."""

from __future__ import annotations

from collections.abc import Sequence
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
EXPLAINED = "bold: interquartile mean (IQM) over the range that all seeds cover, with 95 % interval; thin: each seed"
GRID_POINTS = 80  # of the common grid of seeds
FEW_POINTS = 30  # lines with at most so many points have markers


def read_line(columns: Columns, x: str, metric: str) -> Line:
    """Return the points of a metric over an axis of `X_AXES`, without NaN."""
    name, unit, _ = X_AXES[x]
    nothing = np.full(len(columns.get("step", ())), np.nan)
    xs, ys = columns.get(name, nothing) / unit, columns.get(metric, nothing)
    finite = np.isfinite(xs) & np.isfinite(ys)
    return xs[finite], ys[finite]


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


def draw_group(ax: Axes, lines: Sequence[Line], color: str, label: str | None = None, zorder: float = 2) -> Line2D:
    """Draw the lines of a group's seeds: a single one bold, several ones thin below their bold mean.

    Returns:
        The bold line, which has the label.
    """
    bold: dict[str, Any] = {"color": color, "linewidth": 2, "zorder": zorder}
    thin: dict[str, Any] = {"color": color, "zorder": zorder - 0.5}
    xs, ys = lines[0]
    # The points of a mean line are grid points, not measurements, so they have no markers.
    marked = len(lines) == 1 and len(xs) <= FEW_POINTS
    if len(lines) > 1:
        for line in lines:
            ax.plot(*line, linewidth=0.7, alpha=0.4, marker=_marker(line[0]), markersize=2, **thin)
        xs, every = common_grid(lines)
        ys = interquartile_mean(every.T[:, :, None]) if len(xs) else np.empty(0)
        marked = len(xs) == 1
        if len(xs) > 1:
            ax.fill_between(xs, *interval(every.T[:, :, None]), alpha=0.18, linewidth=0, **thin)
    return ax.plot(xs, ys, label=label, marker="o" if marked else None, markersize=4, **bold)[0]


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
