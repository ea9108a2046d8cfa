"""Sections of learning curves and training diagnostics, by environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..curves import EVALUATION, TRAINING, X_AXES, Line, aggregate, draw_group, explain_lines, label_x, read_line
from ..data import Group
from ..figures import Series, axes, picture
from ..page import Grid, Heading, Legend, Panel, Section

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_GROUPS = 10  # in a picture
MOST_PANELS = 12  # of training diagnostics
MOST_POINTS = 500  # of a line
TITLES = {
    EVALUATION: "mean return of evaluations",
    TRAINING: "mean return in training",
    "return_mean": "mean return in training",
    "approx_kl": "approximate KL divergence",
    "q_mean": "mean Q-value",
    "alpha": "entropy coefficient",
    "score": "QD score",
    "objective_max": "best return of an elite",
}
# Names of metrics without the algorithm, in the order of their panels.
DIAGNOSTICS = (
    *("score", "coverage", "objective_max"),
    *("return_mean", "loss", "policy_loss", "actor_loss", "value_loss", "critic_loss", "approx_kl", "entropy"),
    *("gradient_norm", "learning_rate", "clip_fraction", "explained_variance", "q_mean", "alpha", "sigma"),
)
OTHER = ("train", "eval", "system", "score", "poet", "pbt")  # groups of metrics that are not the algorithm's


def by_env(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Return the groups of each environment."""
    return {env: [group for group in groups if group.env == env] for env in dict.fromkeys(g.env for g in groups)}


def show_curves(groups: Sequence[Group]) -> Section:
    """Return curves of the score over environment steps, and for a single environment also over time."""
    envs = by_env(groups)
    panels: list[Panel] = []
    for k, (env, same) in enumerate(envs.items()):
        metric = same[0].metric
        cut = f"; the best {MOST_GROUPS} of {len(same)} groups" if len(same) > MOST_GROUPS else ""
        for x in ("step", "minutes") if len(envs) == 1 else ("step",):
            note = f"{TITLES.get(metric, metric)} over {X_AXES[x][2]}{cut}"
            panels += _draw(env, note, axes(height_in=3.1), same, [metric], x, f"curves{k}-{x}")
    return Section("Learning curves", _explain(groups), [*legend(groups), Grid(panels)] if panels else [])


def show_training(groups: Sequence[Group]) -> Section:
    """Return small panels of training returns, losses and other metrics of the algorithms."""
    envs = by_env(groups)
    names = {env: _diagnostics(same) for env, same in envs.items()}
    counts = [len(known) for known in names.values()]
    fair = (n for n in range(MOST_PANELS, 0, -1) if sum(min(count, n) for count in counts) <= MOST_PANELS)
    most = next(fair, 1)  # for an environment
    blocks: list[Heading | Grid] = []
    for k, (env, same) in enumerate(envs.items()):
        panels: list[Panel] = []
        for number, (name, metrics) in enumerate(list(names[env].items())[:most]):
            title = TITLES.get(name, name.replace("_", " "))
            panels += _draw(title, "", axes(3.6, 2.1), same, metrics, "step", f"training{k}-{number}")
        if panels:
            blocks += [*([Heading(env)] if len(envs) > 1 else []), Grid(panels, small=True)]
    note = f"Metrics of training over environment steps. {_explain(groups)}"
    return Section("Training", note, [*legend(groups), *blocks] if blocks else [])


def legend(groups: Sequence[Group]) -> list[Legend]:
    """Return the legend of the groups in pictures, if there is more than one."""
    named = {group.label: group for same in by_env(groups).values() for group in same[:MOST_GROUPS]}
    return [Legend(list(named.values()))] if len(named) > 1 else []


def _diagnostics(groups: Sequence[Group]) -> dict[str, list[str]]:
    """Return metrics by their name without the algorithm: the known ones, then others that vary."""
    runs = [entry.run for group in groups for entry in group.entries]
    found: dict[str, list[str]] = {}
    for metric in sorted({metric for run in runs for metric in run.columns}):
        section, _, name = metric.partition("/")
        values = np.concatenate([run.columns[metric] for run in runs if metric in run.columns])
        varies = name in DIAGNOSTICS or len(np.unique(values[np.isfinite(values)])) > 1
        if (metric == TRAINING != groups[0].metric) or (name and section not in OTHER and varies):
            found.setdefault(name, []).append(metric)
    return {name: found[name] for name in dict.fromkeys([*DIAGNOSTICS, *found]) if name in found}


def _draw(
    title: str, note: str, ax: Axes, groups: Sequence[Group], metrics: Sequence[str], x: str, name: str
) -> list[Panel]:
    series = [one for group in groups[:MOST_GROUPS] for metric in metrics for one in _draw_group(ax, group, x, metric)]
    if not series:
        return []
    label_x(ax, x)
    return [Panel(title, picture(ax.figure, name, f"{title} over {X_AXES[x][2]}", series), note)]


def _draw_group(ax: Axes, group: Group, x: str, metric: str) -> list[Series]:
    """Draw the seeds of a group; return their points as in the CSV files of `paddock.plot`."""
    read = [(entry.run.config.get("seed"), read_line(entry.run.columns, x, metric)) for entry in group.entries]
    lines = {str(seed): _thin(line) for seed, line in read if len(line[0])}
    columns = {seed: {"x": xs, "y": ys} for seed, (xs, ys) in lines.items()}
    aggregated = aggregate(list(lines.values())) if len(lines) > 1 else None
    if aggregated:
        columns[""] = dict(zip(("x", "iqm", "low", "high"), aggregated, strict=True))
    if lines:
        draw_group(ax, list(lines.values()), group.color, aggregated=aggregated)
    return [
        Series({"group": group.label, "metric": metric, "seed": seed}, values, "x", "y" if seed else "iqm", group.color)
        for seed, values in columns.items()
    ]


def _thin(line: Line) -> Line:
    """Return at most `MOST_POINTS` evenly spaced points, to keep the page small."""
    chosen = np.unique(np.linspace(0, len(line[0]) - 1, min(len(line[0]), MOST_POINTS)).round().astype(int))
    return line[0][chosen], line[1][chosen]


def _explain(groups: Sequence[Group]) -> str:
    explained = explain_lines(len(group.entries) for group in groups)
    return f"{explained[0].upper()}{explained[1:]}." if explained else ""
