"""Drawing primitives of plots and pages: colours, figures, axes, rows, arrows and legends."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..runs.lazy_imports import matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

COLORS = ("#2f6fd0", "#d9762b", "#2d9a6a", "#c9435a", "#8562c0", "#1f93a8", "#a8763f", "#6f7a8a", "#b1498f", "#7a9a2a")
GREY = COLORS[7]  # training curves next to evaluation
LEGIBLE = 24  # rows of cells up to which each cell shows its value
NAMED = 60  # rows of cells up to which every row and column is labelled


def new_figure(width_in: float, height_in: float) -> Figure:
    """Return a figure without a window."""
    return matplotlib.figure.Figure(figsize=(width_in, height_in), layout="constrained")


def open_axes(ax: Axes, color: str = "0.9", linewidth: float = 0.8) -> None:
    """Draw a grid in the background, and only two sides of the frame."""
    ax.grid(color=color, linewidth=linewidth)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def name_rows(ax: Axes, names: Sequence[str], **text: Any) -> None:
    """Label rows along the y axis, from the top."""
    ax.set_yticks(range(len(names)), names, **text)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.grid(axis="y", visible=False)


def mark_whole(axis: Axis) -> None:
    """Place ticks at integers only."""
    axis.set_major_locator(matplotlib.ticker.MaxNLocator(integer=True, min_n_ticks=1))


def explain(ax: Axes, marks: Mapping[str, Mapping[str, Any]], above: bool = True) -> None:
    """Add a legend of marks (label -> style), in a line above the axes or inside them."""
    handles = [matplotlib.lines.Line2D([], [], label=label, **style) for label, style in marks.items()]
    place: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "borderaxespad": 0.2}
    place |= {"ncols": len(handles)}
    ax.legend(handles=handles, frameon=False, fontsize="small", **(place if above else {}))


def draw_arrows(ax: Axes, moves: Sequence[tuple[float, int, int]], zorder: float = 4) -> None:
    """Draw arrows (x, from row, to row), sorted by x; those of one x are placed side by side just after it."""
    if not moves:
        return
    x, source, target = np.array(moves, np.float64).T
    times, counts = np.unique(x, return_counts=True)
    apart = min(
        0.006 * float(np.ptp(ax.get_xlim())),
        0.8 * float(np.diff(times).min(initial=np.inf)) / (counts.max() + 1),
    )
    offsets = np.concatenate([np.arange(count) + 1 for count in counts])
    ax.quiver(
        x + apart * offsets,
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


def draw_cells(values: NDArray[np.float64], names: Sequence[str], colors: str, label: str, **bounds: Any) -> Axes:
    """Draw a matrix [N, N] as coloured cells with their values; NaN is grey, `bounds` are vmin and vmax."""
    n = len(names)
    side = float(np.clip(0.5 * n, 2.5, 16))
    ax = new_figure(side + 2.6, side + 1.2).subplots()
    shown = matplotlib.colormaps[colors].with_extremes(bad="0.87")
    image = ax.imshow(np.ma.masked_invalid(values), cmap=shown, **bounds)
    ax.figure.colorbar(image, label=label)
    for (row, column), value in np.ndenumerate(values if n <= LEGIBLE else values[:0]):
        if np.isfinite(value):
            dark = np.dot(image.to_rgba(np.array([value]))[0, :3], (0.3, 0.6, 0.1)) < 0.5
            text: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7}
            ax.text(column, row, f"{value:.0f}", color="white" if dark else "black", **text)
    named = range(0, n, -(-n // NAMED))
    labels = [names[k] for k in named]
    ax.set_xticks(named, labels, rotation=90, fontsize="small", parse_math=False)
    ax.set_yticks(named, labels, fontsize="small", parse_math=False)
    ax.tick_params(length=0)
    ax.spines[:].set_color(GREY)
    return ax


def encode_picture(figure: Figure, suffix: str) -> bytes:
    """Return a figure as the content of a .png, .pdf or .svg file; images are at least 1,200 pixels wide."""
    content = io.BytesIO()
    with matplotlib.rc_context({"pdf.fonttype": 42}):  # journals reject the default, Type 3
        figure.savefig(content, format=suffix[1:], dpi=max(150, round(1200 / figure.get_figwidth())))
    return content.getvalue()
