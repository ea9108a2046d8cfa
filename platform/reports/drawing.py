"""What plots and pages draw with: colours, figures, axes, rows, arrows between rows, and what marks stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..runs.late import matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

COLORS = ("#2f6fd0", "#d9762b", "#2d9a6a", "#c9435a", "#8562c0", "#1f93a8", "#a8763f", "#6f7a8a", "#b1498f", "#7a9a2a")
GREY = COLORS[7]  # of training beside evaluation


def new_figure(width_in: float, height_in: float) -> Figure:
    """A figure that belongs to no window."""
    return matplotlib.figure.Figure(figsize=(width_in, height_in), layout="constrained")


def open_axes(ax: Axes, color: str = "0.9", linewidth: float = 0.8) -> None:
    """Leave a grid, below all else, and two sides of the frame."""
    ax.grid(color=color, linewidth=linewidth)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def name_rows(ax: Axes, names: Sequence[str], **text: Any) -> None:
    """Make rows of an axis, from the top."""
    ax.set_yticks(range(len(names)), names, **text)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.grid(axis="y", visible=False)


def mark_whole(axis: Axis) -> None:
    """Have ticks at whole numbers alone."""
    axis.set_major_locator(matplotlib.ticker.MaxNLocator(integer=True, min_n_ticks=1))


def explain(ax: Axes, marks: Mapping[str, Mapping[str, Any]], above: bool = True) -> None:
    """Say what marks stand for, in a line above the axes or inside them.

    Args:
        marks: what is said -> how its line or marker looks.
    """
    handles = [matplotlib.lines.Line2D([], [], label=label, **style) for label, style in marks.items()]
    place: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "borderaxespad": 0.2}
    place |= {"ncols": len(handles)}
    ax.legend(handles=handles, frameon=False, fontsize="small", **(place if above else {}))


def draw_arrows(ax: Axes, moves: Sequence[tuple[float, int, int]], zorder: float = 4) -> None:
    """Draw arrows from row to row, those of one time side by side just after it.

    Args:
        moves: (x, from row, to row) in order of x.
    """
    if not moves:
        return
    x, source, target = np.array(moves, np.float64).T
    times, counts = np.unique(x, return_counts=True)
    apart = min(
        0.006 * float(np.ptp(ax.get_xlim())),
        0.8 * float(np.diff(times).min(initial=np.inf)) / (counts.max() + 1),
    )
    beside = np.concatenate([np.arange(count) + 1 for count in counts])
    ax.quiver(
        x + apart * beside,
        source,
        np.zeros(len(moves)),
        target - source,
        angles="xy",
        scale_units="xy",
        scale=1,
        units="inches",
        width=0.009,
        headwidth=7,
        headlength=8,
        headaxislength=7,
        color="black",
        alpha=float(np.clip(60 / len(moves), 0.12, 0.6)),
        zorder=zorder,
    )
