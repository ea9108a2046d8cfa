"""Section that compares algorithms over several environments, with normalized scores."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...runs.units import short
from .. import statistics
from ..data import Group
from ..page import Html, axes, grid, key, panel, picture, section, table

Array = NDArray[np.float64]


def compare_over_tasks(groups: Sequence[Group]) -> Html:
    """Return the section about groups that were run on several common environments; empty without any."""
    methods = normalize(groups)
    if not methods:
        return Html("")
    rows = [
        [
            key(first.letter, first.color),
            first.label,
            "×".join(map(str, matrix.shape)),
            short(float(statistics.interquartile_mean(matrix))),
            span(statistics.interval(matrix)),
        ]
        for first, matrix in methods
    ]
    head = ("", "group", "runs × environments", "IQM", "95 % interval")
    drawn = draw_profile([(first.color, matrix) for first, matrix in methods], "profile-tasks")
    note = (
        "Scores are normalized by the lowest (0) and highest (1) run on each environment; marks are those of the first."
    )
    profile = panel("Performance profile", drawn, "share of runs above a score")
    return section("Several environments", note, table(head, rows, words=(0, 1)), grid([profile]))


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
    """Return identifiers of a group's environment and of its other settings."""
    settings = sorted(group.entries[0].run.settings.items())
    env, others = ([item for item in settings if item[0].startswith("env.") is want] for want in (True, False))
    return repr(env), repr(others)


def draw_profile(series: Sequence[tuple[str, Array]], name: str) -> Html:
    """Draw performance profiles of scores [R, N], each in its colour, with their intervals."""
    ax = axes()
    every = np.concatenate([matrix.ravel() for _, matrix in series])
    margin = 0.05 * (np.ptp(every) or 1.0)
    thresholds = np.linspace(every.min() - margin, every.max() + margin, 120)
    for color, matrix in series:
        share, low, high = statistics.performance_profile(matrix, thresholds)
        ax.plot(thresholds, share, color=color, linewidth=1.8, drawstyle="steps-post")
        if len(matrix) > 1:
            ax.fill_between(thresholds, low, high, color=color, alpha=0.15, linewidth=0, step="post")
    ax.set_ylim(-0.02, 1.04)
    ax.set_xlabel("score")
    ax.set_ylabel("share of runs above")
    return picture(ax.figure, name, "performance profile")


def span(bounds: tuple[Array, Array]) -> str:
    """Format an interval."""
    low, high = map(float, bounds)
    return f"{short(low)} to {short(high)}" if np.isfinite(low) else "one seed"
