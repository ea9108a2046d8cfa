"""Figures of a page: inline SVG that follows its colours, and the values shown under the pointer and saved as CSV."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup, escape

from ..runs.lazy_imports import matplotlib
from .drawing import new_figure, open_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

# Placeholders for the page's colours, which differ between light and dark mode.
INK, LINE = "#0a0b0c", "#0d0e0f"
FONT: Any = {"svg.fonttype": "none", "font.size": 9.5, "axes.labelsize": 9.5}
Column = Sequence[Any] | np.ndarray[Any, Any]  # numbers or texts


@dataclass(frozen=True, eq=False)
class Series:
    """Points of a figure."""

    names: Mapping[str, str]  # column -> value of all points, such as the group
    columns: Mapping[str, Column]  # column -> value of each point
    x: str | Column  # position in the axes; the name of a column, or values that are not shown
    y: str | Column
    color: str = "transparent"


@dataclass(frozen=True, eq=False)
class Picture:
    """Figure as inline SVG with its data."""

    name: str  # unique within the page, and the name of downloaded files
    svg: Markup
    data: dict[str, Any]  # for page.js


def axes(width_in: float = 4.5, height_in: float = 2.9) -> Axes:
    """Return empty axes in the page's colours."""
    with matplotlib.rc_context(FONT):
        ax = new_figure(width_in, height_in).subplots()
    open_axes(ax, LINE, 0.7)
    ax.spines[["bottom", "left"]].set_color(LINE)
    ax.tick_params(color=LINE, labelcolor=INK, labelsize=8.5)
    for label in (ax.xaxis.label, ax.yaxis.label):
        label.set_color(INK)
    return ax


def picture(figure: Figure | SubFigure, name: str, label: str, series: Sequence[Series] = ()) -> Picture:
    """Return a figure as inline SVG, with the data of `series`, or else of the labelled lines and images of its axes."""
    assert isinstance(figure, matplotlib.figure.Figure)  # not a SubFigure
    buffer = io.StringIO()
    with matplotlib.rc_context(FONT | {"svg.hashsalt": name}):
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    svg = buffer.getvalue()
    svg = re.sub(
        r"<style.*?</style>", "", svg[svg.index("<svg") :], flags=re.DOTALL
    )  # it would apply to the whole page
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(url\(|href=")#', rf"\1#{name}-", svg)
    attributes = f'role="img" aria-label="{escape(label)}"'  # may contain a backslash from a folder's name
    svg = re.sub(r'<svg [^>]*?(viewBox="[^"]*")[^>]*>', lambda found: f"<svg {found[1]} {attributes}>", svg, count=1)
    svg = svg.replace("xlink:href", "href").replace(INK, "currentColor").replace(LINE, "var(--line)")
    drawn = [series] if series else [read_series(ax) for ax in figure.axes]
    data = {
        "axes": [_locate(ax, figure) for ax in figure.axes],
        "series": [_encode(one, number) for number, same in enumerate(drawn) for one in same],
    }
    return Picture(name, Markup(svg), data)


def read_series(ax: Axes) -> list[Series]:
    """Read the labelled lines and the images of axes."""
    shared = [other.get_xlabel() for other in ax.figure.axes if other.get_xlabel()]
    x, y = ax.get_xlabel() or next(iter(shared), "x"), ax.get_ylabel() or "y"
    found = []
    for line in ax.lines:
        label = str(line.get_label())
        if not label.startswith("_"):
            xs, ys = np.asarray(line.get_xdata(), np.float64), np.asarray(line.get_ydata(), np.float64)
            color = matplotlib.colors.to_hex(line.get_color())
            found.append(Series({"series": label}, {x: xs, y: ys}, x, y, color))
    for image in ax.images:
        columns, rows = ([text.get_text() for text in axis.get_ticklabels()] for axis in (ax.xaxis, ax.yaxis))
        values = np.ma.filled(np.ma.asarray(image.get_array(), dtype=np.float64), np.nan)
        if values.shape == (len(rows), len(columns)):
            whole = np.arange(len(columns))
            found += [
                Series({y: name}, {x: columns, "value": line}, whole, np.full(len(whole), k))
                for k, (name, line) in enumerate(zip(rows, values, strict=True))
            ]
    return found


def _locate(ax: Axes, figure: Figure) -> dict[str, Any]:
    """Return the box of axes in the units of the SVG (left, top, right, bottom), and their limits."""
    width, height = 72 * figure.get_size_inches()
    box = ax.get_position()
    limits = {
        name: {"low": low, "high": high, "log": axis.get_scale() == "log", "label": axis.get_label_text()}
        for name, axis in (("x", ax.xaxis), ("y", ax.yaxis))
        for low, high in [map(float, axis.get_view_interval())]
    }
    corners = [box.x0 * width, (1 - box.y1) * height, box.x1 * width, (1 - box.y0) * height]
    return {"box": [round(float(corner), 2) for corner in corners], **limits}


def _encode(series: Series, number: int) -> dict[str, Any]:
    place = {"x": series.x, "y": series.y}
    return {
        "axes": number,
        "names": series.names,
        "columns": {name: _encode_column(values) for name, values in series.columns.items()},
        **{name: at if isinstance(at, str) else _encode_column(at) for name, at in place.items()},
        "color": series.color,
    }


def _encode_column(values: Column) -> list[Any]:
    """Return numbers with nine digits, and null for NaN, which JSON lacks."""
    return [
        str(value) if isinstance(value, str) else float(f"{value:.9g}") if math.isfinite(value) else None
        for value in values
    ]
