"""Sections that compare groups of runs: summary, curves, scores and probabilities of improvement."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...runs.units import short
from .. import statistics
from ..curves import FEW_SEEDS
from ..data import Group
from ..drawing import name_rows
from ..figures import INK, Picture, Series, axes, picture
from ..page import Cell, Grid, Heading, Panel, Section, Table, group_cell
from .curves import MOST_GROUPS, TITLES, by_env, legend, show_curves, show_training
from .tasks import compare_over_tasks, draw_profile, span, warning

Array = NDArray[np.float64]

WARNING_NOTE = f"Intervals of fewer than {FEW_SEEDS} seeds are marked, since they are unreliable."


def compare(groups: Sequence[Group]) -> list[Section]:
    """Return the sections about groups; those without data are empty."""
    return [
        _summarize(groups),
        show_curves(groups),
        _show_scores(groups),
        _show_improvements(groups),
        compare_over_tasks(groups),
        show_training(groups),
    ]


def shown(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Return the groups with scores by environment, at most `MOST_GROUPS` each."""
    scored = [group for group in groups if len(group.scores)]
    return {env: same[:MOST_GROUPS] for env, same in by_env(scored).items()}


def _summarize(groups: Sequence[Group]) -> Section:
    metric = groups[0].metric if groups else ""
    rows = [_row(group) for group in groups]
    head = ("group", "environment", "seeds", "IQM", "95 % interval", "median", "lowest", "highest", "steps")
    note = (
        f"Runs that differ only in the seed. Their score is the last {TITLES.get(metric, metric)}; IQM is the "
        f"interquartile mean, with a bootstrap interval over seeds. {WARNING_NOTE}"
    )
    return Section("Groups", note, [Table(head, rows, words=(0, 1))] if rows else [])


def _row(group: Group) -> list[object]:
    name = Cell(group.label, color=group.color)
    ended = sum(entry.state == "done" for entry in group.entries)
    count = str(len(group.entries)) if ended == len(group.entries) else f"{len(group.entries)} ({ended} done)"
    steps = short(float(np.median([entry.run.last("step") or 0 for entry in group.entries])))
    if not len(group.scores):
        return [name, group.env, count, *["–"] * 5, steps]
    matrix = group.scores[:, None]
    values = [float(value) for value in (np.median(matrix), matrix.min(), matrix.max())]
    center = short(float(statistics.interquartile_mean(matrix)))
    return [name, group.env, count, center, span(matrix), *map(short, values), steps]


def _show_scores(groups: Sequence[Group]) -> Section:
    panels: list[Panel] = []
    for k, (env, same) in enumerate(shown(groups).items()):
        if sum(len(group.scores) for group in same) > 1:
            panels.append(Panel(env, _draw_distribution(same, f"scores{k}"), "scores of runs, IQM and its interval"))
        if any(len(group.scores) > 1 for group in same):
            drawn = draw_profile([(group, group.scores[:, None]) for group in same], f"profile{k}")
            panels.append(Panel(env, drawn, "performance profile: share of runs above a score"))
    note = f"Intervals of fewer than {FEW_SEEDS} seeds are dashed."
    return Section("Scores", note, [*legend(groups), Grid(panels)] if panels else [])


def _draw_distribution(groups: Sequence[Group], name: str) -> Picture:
    ax = axes(height_in=max(0.42 * len(groups) + 0.8, 1.8))
    series: list[Series] = []
    for k, group in enumerate(groups):
        matrix = group.scores[:, None]
        low, high = statistics.interval(matrix)
        few = len(group.scores) < FEW_SEEDS
        style = {"linewidth": 1.5, "linestyle": (0, (3, 2))} if few else {"linewidth": 9, "alpha": 0.22}
        ax.plot([low, high], [k, k], color=group.color, solid_capstyle="butt", **style)
        spread = np.linspace(-0.18, 0.18, len(group.scores)) if len(group.scores) > 1 else np.zeros(1)
        ax.plot(group.scores, k + spread, "o", color=group.color, markersize=4, alpha=0.75, markeredgewidth=0)
        ax.plot(statistics.interquartile_mean(matrix), k, "|", color=INK, markersize=15, markeredgewidth=1.6)
        names = {"group": group.label, "metric": group.metric}
        seeds = [
            str(entry.run.config.get("seed")) for entry in group.entries if entry.run.last(group.metric) is not None
        ]
        series.append(Series(names, {"seed": seeds, "score": group.scores}, "score", k + spread, group.color))
    name_rows(ax, [group.short_name for group in groups], parse_math=False)
    ax.set_xlabel("score")
    return picture(ax.figure, name, "distribution of scores", series)


def _show_improvements(groups: Sequence[Group]) -> Section:
    """Return the probabilities that a run of the row's group beats one of the column's, by environment."""
    blocks: list[Heading | Table] = []
    for env, same in shown(groups).items():
        if sum(len(group.scores) > 1 for group in same) > 1:
            rows = [[group_cell(x), *(_improvement(x, y) for y in same)] for x in same]
            blocks += [Heading(env), Table(["", *map(group_cell, same)], rows)]
    note = (
        "Probability that a run of the row's group scores above one of the column's, with 95 % interval; ties count "
        f"half. A group with one seed has none. {WARNING_NOTE}"
    )
    return Section("Probability of improvement", note, blocks)


def _improvement(x: Group, y: Group) -> Cell:
    fewest = min(len(x.scores), len(y.scores))
    if x is y or fewest < 2:
        return Cell("–", "" if x is y else "a group has one seed")
    # Both cells of a pair use the same bootstrap samples, so that they agree.
    first, second = (x, y) if x.label < y.label else (y, x)
    matrices = first.scores[:, None], second.scores[:, None]
    values = float(statistics.improvement(*matrices)), *statistics.improvement_interval(*matrices)
    share, low, high = values if first is x else (1 - values[0], 1 - values[2], 1 - values[1])
    return Cell(f"{share:.2f} [{low:.2f}, {high:.2f}]", warning=warning(fewest))
