"""Section that compares algorithms over several environments, with normalized scores."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...runs.units import short
from .. import statistics
from ..curves import FEW_SEEDS, band_style
from ..data import Group
from ..figures import Picture, Series, axes, picture
from ..page import Cell, Grid, Panel, Section, Table, group_cell

Array = NDArray[np.float64]


def compare_over_tasks(groups: Sequence[Group]) -> Section:
    """Return the section about groups that were run on several common environments; empty without any."""
    methods = normalize(groups)
    rows = [
        [
            group_cell(first),
            "×".join(map(str, matrix.shape)),
            short(float(statistics.interquartile_mean(matrix))),
            span(matrix),
        ]
        for first, matrix in methods
    ]
    head = ("group", "runs × environments", "IQM", "95 % interval")
    note = "Scores are normalized by the lowest (0) and highest (1) run on each environment."
    blocks: list[Table | Grid] = []
    if methods:
        profile = Panel("Performance profile", draw_profile(methods, "profile-tasks"), "share of runs above a score")
        blocks = [Table(head, rows), Grid([profile])]
    return Section("Several environments", note, blocks)


def normalize(groups: Sequence[Group]) -> list[tuple[Group, Array]]:
    """Normalize the scores of methods to [0, 1], on the N > 1 environments that most methods have in common.

    Returns:
        (group on the first environment, [R, N]) for each method, with R runs on every environment.
    """
    scored = [group for group in groups if len(group.scores)]
    bounds: dict[str, tuple[float, float]] = {}
    methods: dict[str, dict[str, Group]] = {}
    for group in scored:
        task, method = _split_settings(group)
        low, high = bounds.get(task, (np.inf, -np.inf))
        bounds[task] = min(low, group.scores.min()), max(high, group.scores.max())
        methods.setdefault(method, {})[task] = group
    several = [sorted(by_task) for by_task in methods.values() if len(by_task) > 1]
    if not several:
        return []
    shared = max(several, key=lambda tasks: (sum(m.keys() >= set(tasks) for m in methods.values()), len(tasks)))
    normalized = []
    for by_task in methods.values():
        if by_task.keys() >= set(shared):
            fewest = min(len(by_task[task].scores) for task in shared)
            scaled = [
                (by_task[task].scores[:fewest] - low) / ((high - low) or 1.0)
                for task in shared
                for low, high in [bounds[task]]
            ]
            normalized.append((by_task[shared[0]], np.stack(scaled, axis=1)))
    return normalized


def _split_settings(group: Group) -> tuple[str, str]:
    settings = sorted(group.entries[0].run.settings.items())
    env, others = ([item for item in settings if item[0].startswith("env.") is want] for want in (True, False))
    return repr(env), repr(others)


def draw_profile(groups: Sequence[tuple[Group, Array]], name: str) -> Picture:
    """Draw performance profiles of groups with scores [R, N], and their intervals."""
    ax = axes()
    every = np.concatenate([matrix.ravel() for _, matrix in groups])
    margin = 0.05 * (np.ptp(every) or 1.0)
    thresholds = np.linspace(every.min() - margin, every.max() + margin, 120)
    series: list[Series] = []
    for group, matrix in groups:
        share, low, high = statistics.performance_profile(matrix, thresholds)
        ax.plot(thresholds, share, color=group.color, linewidth=1.8, drawstyle="steps-post")
        columns = {"score": thresholds, "share of runs above": share}
        if len(matrix) > 1:
            ax.fill_between(thresholds, low, high, step="post", **band_style(group.color, len(matrix)))
            columns |= {"low": low, "high": high}
        series.append(Series({"group": group.label}, columns, "score", "share of runs above", group.color))
    ax.set_ylim(-0.02, 1.04)
    ax.set_xlabel("score")
    ax.set_ylabel("share of runs above")
    return picture(ax.figure, name, "performance profile", series)


def span(scores: Array) -> Cell:
    """Format the interval of scores [R, N], with a warning for few seeds."""
    if len(scores) < 2:
        return Cell("one seed", kind="dim")
    low, high = map(float, statistics.interval(scores))
    return Cell(f"{short(low)} to {short(high)}", warning=warning(len(scores)))


def warning(seeds: int) -> str:
    """Return the mark of an interval of few seeds; empty for a single one, which has no interval, and for enough."""
    return f"{seeds} seeds" if 1 < seeds < FEW_SEEDS else ""
