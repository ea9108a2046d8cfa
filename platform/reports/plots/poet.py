"""Figures of a POET run (arXiv:1901.01753, arXiv:2003.08536): lineage of niches and ANNECS."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from paddock.envs.errors import require
from paddock.envs.family import Family

from ...config.build import build
from ...runs.lazy_imports import matplotlib
from ..drawing import COLORS, draw_arrows, explain, mark_whole, new_figure, open_axes
from ..lineage import History, Life, order_lines
from .grounds import draw_grounds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

POINT = 1 / 72  # inch
LETTER = 0.062  # mean width of a small letter, inches
# Without yellow, which is invisible on white.
DIFFICULTY = ["#0d0887", "#6a00a8", "#b12a90", "#e16462", "#fca636"]


def draw_lineage(history: History, title: str) -> Figure:
    """Draw the tree of niches over iterations: a line per lifetime, edges from parents, arrows for transfers."""
    lives, now = history.lives, history.now
    order = order_lines(lives)
    row = {number: k for k, number in enumerate(order)}
    difficulty, label = measure_difficulty(history)
    colors, scale = _colors(), matplotlib.colors.Normalize(0, max(difficulty.values()) or 1)

    height = min(max(0.26 * len(order), 2.2), 12.0)  # high enough for the label of the colour bar
    figure = new_figure(10, height + 1.3)
    ax = figure.subplots()
    _span_iterations(ax, now)
    pitch = min(height / len(order), 0.26) / POINT  # points between lines
    thickness = min(max(0.3 * pitch, 0.7), 3.5)
    for number in order:
        life, color = lives[number], colors(scale(difficulty[number]))
        end = now if life.retired is None else life.retired
        if life.parent is not None:
            ax.plot([life.born] * 2, [row[life.parent], row[number]], color=color, linewidth=0.8, zorder=1)
        name = f"niche {number}"
        ax.plot(
            [life.born, end], [row[number]] * 2, color=color, linewidth=thickness, solid_capstyle="butt", label=name
        )
        ax.plot(life.born, row[number], "o", color=color, markersize=thickness + 1.5, zorder=3)
        ax.plot(end, row[number], "|" if life.retired else ">", color=color, markersize=thickness + 4, zorder=3)
        if life.solved is not None:
            style: dict[str, Any] = {"markerfacecolor": "white", "markeredgecolor": "black", "markeredgewidth": 0.7}
            ax.plot(life.solved, row[number], "*", markersize=thickness + 5.5, zorder=5, **style)
    # Arrows are placed right of their iteration, since transfers follow the creation of niches.
    moves = [(move.iteration, row[move.source], row[move.target]) for move in history.attempts if move.accepted]
    draw_arrows(ax, moves)
    _name_lines(ax, [(lives[number].retired or now, number) for number in order], pitch)

    ax.set_ylim(len(order) - 0.5, -0.5)
    ax.set_yticks([])
    ax.spines[["top", "right", "left"]].set_visible(False)
    active = sum(life.retired is None for life in lives.values())
    ax.set_title(f"{title}: {_count(len(lives), 'niche')}, {active} active", pad=24)
    _explain_marks(ax, lives.values(), bool(moves))
    if any(difficulty.values()):
        bar = figure.colorbar(
            matplotlib.cm.ScalarMappable(scale, colors), ax=ax, aspect=6 * height, pad=0.01, fraction=0.05
        )
        width = int(height / LETTER)
        bar.set_label("\n".join(textwrap.fill(line, width) for line in label.splitlines()), fontsize="small")
    return figure


def draw_annecs(history: History, title: str) -> Figure:
    """Draw the accumulated number of novel environments created and solved, active niches and transfers."""
    columns = history.columns
    require("poet/annecs" in columns, "poet/annecs has not been logged yet; wait for an iteration")
    figure = new_figure(8, 6)
    upper, lower = figure.subplots(2, sharex=True)
    other = lower.twinx()
    x = columns["iteration"]
    marker = "o" if len(x) == 1 else None
    novel = {
        "poet/annecs_admitted": ("admitted, solved or not", "#fdbe85", 4.5),
        "poet/annecs": ("ANNECS: admitted and solved", COLORS[0], 2.0),
    }
    active = {"poet/active": ("active niches", COLORS[2], 2.0)}
    transfers = {"poet/transfers": ("accepted transfers", COLORS[3], 2.0)}
    open_axes(upper)
    open_axes(lower)
    other.spines["top"].set_visible(False)
    for ax, drawn in ((upper, novel), (lower, active), (other, transfers)):
        top = 1.0
        for metric, (label, color, width) in drawn.items():
            y = columns.get(metric, np.full(len(x), np.nan))
            ax.step(x, y, where="post", label=label, color=color, linewidth=width, marker=marker)
            top = max(top, float(np.nanmax(y, initial=0)))
        # Different limits keep the lines of both scales apart.
        ax.set_ylim(-0.03 * top, (1.3 if ax is lower else 1.06) * top)
        mark_whole(ax.yaxis)
        if ax is not upper:
            ax.set_ylabel(label, color=color)
            ax.tick_params(axis="y", labelcolor=color)
    upper.set_ylabel("environments")
    upper.legend(frameon=False, fontsize="small", loc="upper left")
    _span_iterations(lower, history.now)
    upper.set_title(f"{title}: novel environments")
    return figure


PICTURES: Mapping[str, Callable[[History, str], Figure]] = {
    "lineage": draw_lineage,
    "grounds": draw_grounds,
    "annecs": draw_annecs,
}


def measure_difficulty(history: History) -> tuple[dict[int, float], str]:
    """Return each niche's distance from the family's first environment, and a description of the distance."""
    family: Family = build("env", history.config["env"])
    flat = family.flat()
    measured = {number: family.distance(flat, life.encoding) for number, life in history.lives.items()}
    meaning = (inspect.getdoc(family.distance) or "").partition("\n")[0].partition(";")[0].rstrip(".")
    return measured, f"distance from the first environment\n{meaning}".strip()


def _span_iterations(ax: Axes, last: int) -> None:
    margin = max(0.04 * (last - 1), 0.5)
    ax.set_xlim(1 - margin, last + 1.5 * margin)
    mark_whole(ax.xaxis)
    ax.set_xlabel("iteration")


def _name_lines(ax: Axes, ends: Sequence[tuple[int, int]], pitch: float) -> None:
    """Write niche numbers to the right of their lines; only some if the lines are close."""
    every = int(np.ceil(7 / pitch))
    for k, (end, number) in list(enumerate(ends))[::every]:
        text = ax.annotate(str(number), (end, k), (6, 0), textcoords="offset points", va="center", fontsize=7, zorder=6)
        text.set_path_effects([matplotlib.patheffects.withStroke(linewidth=2, foreground="white")])


def _explain_marks(ax: Axes, lives: Collection[Life], moves: bool) -> None:
    marks = {
        "created": ("o", True),
        "retired": ("|", any(life.retired is not None for life in lives)),
        "active": (">", any(life.retired is None for life in lives)),
        "solved": ("*", any(life.solved is not None for life in lives)),
        "transfer": ("$\\downarrow$", moves),
    }
    style: dict[str, Any] = {"linestyle": "", "color": "black", "markersize": 7}
    shown = {label: style | {"marker": mark} for label, (mark, there) in marks.items() if there}
    explain(
        ax, {label: look | ({"markerfacecolor": "white"} if label == "solved" else {}) for label, look in shown.items()}
    )


def _colors() -> Colormap:
    return matplotlib.colors.LinearSegmentedColormap.from_list("difficulty", DIFFICULTY)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
