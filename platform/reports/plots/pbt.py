"""Figures of population based training (arXiv:1711.09846): lineage and resulting hyperparameter schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from ...runs.lazy_imports import matplotlib
from ..curves import FEW_POINTS
from ..drawing import COLORS, GREY, draw_arrows, explain, mark_whole, name_rows, new_figure, open_axes
from ..lineage import PopulationHistory, Span, trace_back

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FAINT = "0.75"  # colour of members that are not ancestors of the last leader
SCORES = {"pbt/best": ("best", COLORS[0], 2.0), "pbt/median": ("median", GREY, 1.2), "pbt/worst": ("worst", FAINT, 1.2)}


def draw_lineage(population: PopulationHistory, title: str) -> Figure:
    """Draw a row per member over rounds: the colour shows the initial ancestor, arrows show takeovers."""
    members = list(population.spans)
    row = {member: k for k, member in enumerate(members)}
    ends = {member: _ends(population, member) for member in members}
    colors = _colors(members)
    height = min(max(0.3 * len(members), 2.0), 12.0)
    figure = new_figure(9, height + 1.4)
    ax = figure.subplots()
    _span_rounds(ax, population.now)
    bar: dict[str, Any] = {"linewidth": min(0.5 * height / len(members) * 72, 11.0), "solid_capstyle": "butt"}
    for member in members:
        for first, last, span in ends[member]:
            label = f"member {member}, from {span.origin}"
            ax.plot([first - 0.5, last + 0.5], [row[member]] * 2, color=colors[span.origin], label=label, **bar)
    taken = [
        (first - 0.5, row[span.source], row[member])
        for member in members
        for first, _, span in ends[member][1:]
        if span.source is not None
    ]
    draw_arrows(ax, sorted(taken), zorder=3)
    leaders = [(t, row[m]) for t, m in _leaders(population) if m in row]
    star: dict[str, Any] = {"marker": "*", "linestyle": "", "color": "white", "markeredgecolor": "black"}
    ax.plot(*np.array(leaders).reshape(-1, 2).T, markersize=8, zorder=4, **star)
    name_rows(ax, [str(member) for member in members])
    ax.set_ylabel("member")
    ax.spines[["top", "right", "left"]].set_visible(False)
    left = sorted({ends[member][-1][2].origin for member in members})
    takeovers = f"{len(taken)} takeover{'' if len(taken) == 1 else 's'}"
    ax.set_title(f"{title}: {takeovers}, all members descend from {_enumerate(left)}", pad=24)
    marks = {
        "leader": star | {"markersize": 9},
        "takes over": {"linestyle": "", "marker": "$\\downarrow$", "color": "black", "markersize": 8},
        **{f"from {origin}": {"color": colors[origin], "linewidth": 6} for origin in left[:6]},
    }
    explain(ax, marks)
    return figure


def draw_schedule(population: PopulationHistory, title: str) -> Figure:
    """Draw scores and hyperparameters over rounds: each member's, with the last leader's ancestry in bold."""
    names = sorted({name for spans in population.spans.values() for span in spans for name in span.settings})
    figure = new_figure(9, 1.2 + 2.1 * (1 + len(names)))
    top, *panels = figure.subplots(1 + len(names), sharex=True, squeeze=False)[:, 0]
    rounds = population.columns.get("iteration", np.empty(0))
    for metric, (label, color, width) in SCORES.items():
        scores = population.columns.get(metric, np.full(len(rounds), np.nan))
        marker = "o" if len(rounds) <= FEW_POINTS else None
        top.plot(rounds, scores, color=color, linewidth=width, label=label, marker=marker, markersize=3)
    top.set_ylabel("mean return")
    top.legend(frameon=False, fontsize="small")
    leader = (_leaders(population) or [(population.now, next(iter(population.spans)))])[-1][1]
    way = trace_back(population, leader)[::-1]
    for ax, name in zip(panels, names, strict=True):
        for member in population.spans:
            _steps(ax, _ends(population, member), name, label=f"member {member}", color=FAINT, linewidth=1, zorder=1)
        _steps(ax, way, name, label="last leader", color=COLORS[0], linewidth=2.2, zorder=3)
        explore = population.config.get("algo", {}).get("explore", {})
        if reduce(lambda node, key: node.get(key, {}), name.split("."), explore).get("log"):
            ax.set_yscale("log")
        ax.set_ylabel(name)
    for ax in (top, *panels):
        open_axes(ax)
    _span_rounds((panels or [top])[-1], population.now)
    if panels:
        way_style, style = {"color": COLORS[0], "linewidth": 2.2}, {"color": FAINT, "linewidth": 1}
        explain(panels[0], {"ancestry of the last leader": way_style, "all members": style}, above=False)
    top.set_title(f"{title}: schedule of the last leader, member {leader}")
    return figure


PICTURES: Mapping[str, Callable[[PopulationHistory, str], Figure]] = {
    "lineage": draw_lineage,
    "schedule": draw_schedule,
}


def _ends(population: PopulationHistory, member: int) -> list[tuple[int, int, Span]]:
    """Return a member's spans: (first round, last round, span)."""
    spans = population.spans[member]
    starts = [span.begun for span in spans[1:]] + [population.now + 1]
    # A takeover after the last round has not been used yet.
    return [(span.begun, end - 1, span) for span, end in zip(spans, starts, strict=True) if span.begun < end]


def _steps(ax: Axes, ends: list[tuple[int, int, Span]], name: str, **style: Any) -> None:
    points = [(x, span.settings[name]) for first, last, span in ends for x in (first - 0.5, last + 0.5)]
    ax.plot(*np.array(points).reshape(-1, 2).T, **style)


def _leaders(population: PopulationHistory) -> list[tuple[int, int]]:
    columns = population.columns
    rounds, leaders = (columns.get(name, np.empty(0)) for name in ("iteration", "pbt/leader"))
    return [(int(t), int(m)) for t, m in zip(rounds, leaders, strict=False) if np.isfinite(m)]


def _span_rounds(ax: Axes, last: int) -> None:
    ax.set_xlim(0.4, last + 0.6)
    mark_whole(ax.xaxis)
    ax.set_xlabel("round")


def _colors(members: list[int]) -> dict[int, Any]:
    several = matplotlib.colormaps["turbo"](np.linspace(0.05, 0.95, len(members)))
    return {member: COLORS[k] if len(members) <= len(COLORS) else several[k] for k, member in enumerate(members)}


def _enumerate(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers)) if len(numbers) <= 6 else f"{len(numbers)} initial members"
