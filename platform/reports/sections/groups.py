"""Sections that compare groups of runs: summary, learning curves, scores and probabilities of improvement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...runs.units import short
from .. import statistics
from ..curves import EVALUATION, TRAINING, X_AXES, draw_group, explain_lines, label_x, read_line
from ..data import Group
from ..drawing import GREY, name_rows
from ..page import INK, Html, axes, grid, heading, join, key, keys, panel, picture, section, table
from .tasks import compare_over_tasks, draw_profile, span

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[np.float64]

MOST = 10  # groups in a picture
TITLES = {"eval/return_mean": "mean return of evaluations", "train/return_mean": "mean return in training"}


def compare(groups: Sequence[Group]) -> list[Html]:
    """Return the sections about groups; those without data are empty."""
    return [_summary(groups), _curves(groups), _scores(groups), _improvements(groups), compare_over_tasks(groups)]


def shown(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Return the groups with scores by environment, at most `MOST` each."""
    return {
        env: [group for group in groups if group.env == env and len(group.scores)][:MOST]
        for env in dict.fromkeys(group.env for group in groups if len(group.scores))
    }


def list_marks(groups: Sequence[Group]) -> Html:
    """Return the legend of groups, if there is more than one."""
    return keys((key(group.letter, group.color), group.label) for group in groups) if len(groups) > 1 else Html("")


def _summary(groups: Sequence[Group]) -> Html:
    metric = groups[0].metric if groups else ""
    rows = [_row(group) for group in groups]
    head = ("", "group", "environment", "seeds", "IQM", "95 % interval", "median", "lowest", "highest", "steps")
    training = " There are no evaluations, so these are training returns." if metric == TRAINING else ""
    note = (
        f"Runs that differ only in the seed. Their score is the last {TITLES.get(metric, metric)}; IQM is the "
        f"interquartile mean, with a bootstrap interval over seeds.{training}"
    )
    return section("Groups", note, table(head, rows, words=(0, 1, 2))) if rows else Html("")


def _row(group: Group) -> list[object]:
    mark = key(group.letter, group.color)
    ended = sum(entry.state == "done" for entry in group.entries)
    count = str(len(group.entries)) if ended == len(group.entries) else f"{len(group.entries)} ({ended} done)"
    steps = short(float(np.median([entry.run.last("step") or 0 for entry in group.entries])))
    if not len(group.scores):
        return [mark, group.label, group.env, count, *["–"] * 5, steps]
    matrix = group.scores[:, None]
    values = [np.median(matrix), matrix.min(), matrix.max()]
    center = short(float(statistics.interquartile_mean(matrix)))
    return [mark, group.label, group.env, count, center, span(statistics.interval(matrix)), *map(short, values), steps]


def _curves(groups: Sequence[Group]) -> Html:
    """Return curves over environment steps, and for a single environment also over time."""
    by_env = {env: [group for group in groups if group.env == env] for env in dict.fromkeys(g.env for g in groups)}
    metric = groups[0].metric if groups else ""
    panels = [
        panel(env, drawn, f"{TITLES.get(metric, metric)} over {X_AXES[x][2]}{_cut(same)}{_training_note(same)}")
        for k, (env, same) in enumerate(by_env.items())
        for x in (("step", "minutes") if len(by_env) == 1 else ("step",))
        if (drawn := _draw_curves(same[:MOST], metric, x, f"curves{k}-{x}"))
    ]
    explained = explain_lines(len(group.entries) for group in groups)
    note = f"{explained[0].upper()}{explained[1:]}." if explained else ""
    return section("Learning curves", note, _legend(groups), grid(panels)) if panels else Html("")


def _draw_curves(groups: Sequence[Group], metric: str, x: str, name: str) -> Html | None:
    ax = axes(height_in=3.1)
    if _has_training(groups):
        _draw_lines(ax, groups[0], x, TRAINING, GREY, 1)
    before = len(ax.lines)
    for group in groups:
        _draw_lines(ax, group, x, metric, group.color, 2)
    if len(ax.lines) == before:
        return None
    label_x(ax, x)
    return picture(ax.figure, name, f"learning curves: {metric} over {X_AXES[x][2]}")


def _draw_lines(ax: Axes, group: Group, x: str, metric: str, color: str, zorder: float) -> None:
    lines = [line for entry in group.entries if len((line := read_line(entry.run.columns, x, metric))[0])]
    if lines:
        draw_group(ax, lines, color, zorder=zorder)


def _has_training(groups: Sequence[Group]) -> bool:
    """Return whether to draw training next to evaluation, as `paddock.plot` does for a single group."""
    return (
        len(groups) == 1
        and groups[0].metric == EVALUATION
        and any(TRAINING in entry.run.columns for entry in groups[0].entries)
    )


def _training_note(groups: Sequence[Group]) -> str:
    return "; grey: mean training return" if _has_training(groups) else ""


def _scores(groups: Sequence[Group]) -> Html:
    panels: list[Html] = []
    for k, (env, same) in enumerate(shown(groups).items()):
        if sum(len(group.scores) for group in same) > 1:
            panels.append(panel(env, _draw_distribution(same, f"scores{k}"), "scores of runs, IQM and its interval"))
        if any(len(group.scores) > 1 for group in same):
            drawn = draw_profile([(group.color, group.scores[:, None]) for group in same], f"profile{k}")
            panels.append(panel(env, drawn, "performance profile: share of runs above a score"))
    return section("Scores", "", _legend(groups), grid(panels)) if panels else Html("")


def _draw_distribution(groups: Sequence[Group], name: str) -> Html:
    ax = axes(height_in=max(0.42 * len(groups) + 0.8, 1.8))
    for k, group in enumerate(groups):
        matrix = group.scores[:, None]
        low, high = statistics.interval(matrix)
        ax.plot([low, high], [k, k], color=group.color, linewidth=9, alpha=0.22, solid_capstyle="butt")
        spread = np.linspace(-0.18, 0.18, len(group.scores)) if len(group.scores) > 1 else np.zeros(1)
        ax.plot(group.scores, k + spread, "o", color=group.color, markersize=4, alpha=0.75, markeredgewidth=0)
        ax.plot(statistics.interquartile_mean(matrix), k, "|", color=INK, markersize=15, markeredgewidth=1.6)
    name_rows(ax, [group.letter for group in groups])
    ax.set_xlabel("score")
    return picture(ax.figure, name, "distribution of scores")


def _improvements(groups: Sequence[Group]) -> Html:
    """Return the probabilities that a run of the row's group beats one of the column's, by environment."""
    tables: list[Html] = []
    for env, same in shown(groups).items():
        if len(same) < 2:
            continue
        cells = [["–"] * len(same) for _ in same]
        for i, x in enumerate(same):
            for j, y in enumerate(same[:i]):
                cells[i][j], cells[j][i] = _improvement(x.scores[:, None], y.scores[:, None])
        rows = [[key(x.letter, x.color), x.label, *line] for x, line in zip(same, cells, strict=True)]
        tables += [heading(env), table(["", "", *(key(y.letter, y.color) for y in same)], rows, words=(0, 1))]
    note = (
        "Probability that a run of the row's group scores above one of the column's; ties count half. In brackets: "
        "95 % interval."
    )
    return section("Probability of improvement", note, join(tables)) if tables else Html("")


def _improvement(x: Array, y: Array) -> tuple[str, str]:
    """Format the probability of improvement of X over Y, and of Y over X."""
    share, (low, high) = float(statistics.improvement(x, y)), statistics.improvement_interval(x, y)
    sides = (share, low, high), (1 - share, 1 - high, 1 - low)
    one, other = (f"{s:.2f} [{a:.2f}, {b:.2f}]" if np.isfinite(low) else f"{s:.2f}" for s, a, b in sides)
    return one, other


def _legend(groups: Sequence[Group]) -> Html:
    known = [group for same in shown(groups).values() for group in same] or groups[:MOST]
    return list_marks(known) if len(groups) > 1 else Html("")


def _cut(groups: Sequence[Group]) -> str:
    return f"; the best {MOST} of {len(groups)} groups" if len(groups) > MOST else ""
