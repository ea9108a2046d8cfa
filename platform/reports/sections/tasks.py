"""The part of a report that compares algorithms over several environments, whose scores it brings to one scale."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...runs.units import short
from .. import statistics
from ..data import Group
from ..page import Html, axes, grid, key, panel, picture, section, table

Array = NDArray[np.float64]


def compare_over_tasks(groups: Sequence[Group]) -> Html:
    """The section about those that were run on the same environments; nothing where each has one."""
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
        "Scores from 0, the lowest of any run on an environment, to 1, the highest; marks are those of the first one."
    )
    profile = panel("Performance profile", drawn, "share of runs above a score")
    return section("Several environments", note, table(head, rows, words=(0, 1)), grid([profile]))


def normalize(groups: Sequence[Group]) -> list[tuple[Group, Array]]:
    """Scores in [0, 1] of what was run on the N > 1 environments that most are run on.

    Returns:
        (its group on the first of them, [R, N] with as many runs as it has on each).
    """
    scored = [group for group in groups if len(group.scores)]
    bounds: dict[str, tuple[float, float]] = {}
    methods: dict[str, dict[str, Group]] = {}
    for group in scored:
        task, method = _spell_parts(group)
        low, high = bounds.get(task, (np.inf, -np.inf))
        bounds[task] = min(low, group.scores.min()), max(high, group.scores.max())
        methods.setdefault(method, {})[task] = group
    several = [sorted(of) for of in methods.values() if len(of) > 1]
    if not several:
        return []
    shared = max(several, key=lambda tasks: (sum(of.keys() >= set(tasks) for of in methods.values()), len(tasks)))
    normalized = []
    for of in methods.values():
        if of.keys() >= set(shared):
            fewest = min(len(of[task].scores) for task in shared)
            scaled = [
                (of[task].scores[:fewest] - low) / ((high - low) or 1.0)
                for task in shared
                for low, high in [bounds[task]]
            ]
            normalized.append((of[shared[0]], np.stack(scaled, axis=1)))
    return normalized


def _spell_parts(group: Group) -> tuple[str, str]:
    """Return what tells a group's environment from others, arguments and all, and what its algorithm."""
    settings = sorted(group.entries[0].run.settings.items())
    env, others = ([item for item in settings if item[0].startswith("env.") is of] for of in (True, False))
    return repr(env), repr(others)


def draw_profile(series: Sequence[tuple[str, Array]], name: str) -> Html:
    """The performance profiles of scores [R, N], each in its colour, with their intervals."""
    ax = axes()
    every = np.concatenate([matrix.ravel() for _, matrix in series])
    room = 0.05 * (np.ptp(every) or 1.0)
    thresholds = np.linspace(every.min() - room, every.max() + room, 120)
    for color, matrix in series:
        share, low, high = statistics.performance_profile(matrix, thresholds)
        ax.plot(thresholds, share, color=color, linewidth=1.8, drawstyle="steps-post")
        if len(matrix) > 1:
            ax.fill_between(thresholds, low, high, color=color, alpha=0.15, linewidth=0, step="post")
    ax.set_ylim(-0.02, 1.04)
    ax.set_xlabel("score")
    ax.set_ylabel("share of runs above it")
    return picture(ax.figure, name, "performance profile")


def span(bounds: tuple[Array, Array]) -> str:
    """An interval in words."""
    low, high = map(float, bounds)
    return f"{short(low)} to {short(high)}" if np.isfinite(low) else "one seed"
