"""Learning curves of groups of runs: one colour per group, one panel per metric."""

from __future__ import annotations

import logging
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from paddock.envs.errors import nearest, require

from ...runs.lazy_imports import matplotlib
from ..curves import EVALUATION, TRAINING, X_AXES, Curve, draw_group, explain_lines, label_x, read_line, smooth_line
from ..data import ReportedRun, find_repeats, group_by_seed, label_groups, sort_groups
from ..drawing import COLORS, GREY, new_figure, open_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

log = logging.getLogger(__name__)

LABELS = {EVALUATION: "evaluation", TRAINING: "training", "return_mean": "mean return of an episode"}
MAX_GROUPS = 10  # in a picture without labels
MAX_INSIDE = 4  # legend entries inside the axes
ARCHIVE = ["qd/score", "qd/coverage", "qd/objective_max"]  # default metrics of quality diversity
NARROW_IN = 6.0  # figures that are narrower have small text


def collect(
    runs: Sequence[ReportedRun],
    x: str = "step",
    y: Sequence[str] | None = None,
    label: Sequence[str] | None = None,
    smooth: int = 1,
) -> tuple[list[Curve], str]:
    """Return a curve per group and metric, without lines if there are none, and a title; for arguments see `draw`."""
    require(x in X_AXES, f"x={x} is not an axis; allowed: {', '.join(X_AXES)}")
    require(smooth >= 1, f"smooth={smooth} must be at least 1 point")
    begun = [run for run in runs if run.columns]
    require(bool(begun), f"no run has metrics yet ({', '.join(str(run.path) for run in runs)}); wait for an iteration")
    repeats = find_repeats(begun)
    for repeat, other in repeats.items():
        log.warning("%s is skipped: it repeats the settings and seed of %s", repeat.path, other.path)
    every = group_by_seed([run for run in begun if run not in repeats])
    metrics = _default_metrics(every) if y is None else list(dict.fromkeys(y))
    known = {name for run in begun for name in run.columns}
    for metric in metrics:
        require(metric in known, f"y={metric} is not a metric of these runs; {nearest(metric, known)}")
    groups = every if label else sort_groups(every, metrics[0])[:MAX_GROUPS]
    names = label_groups(groups)
    if label:
        wrong = f"label= needs {len(names)} names but has {len(label)}"
        require(len(label) == len(names), f"{wrong}; the groups are, in this order: {'; '.join(names)}")
        names = list(label)
    curves: list[Curve] = []
    missing = {run.path: None for run in runs if run not in begun}
    for name, group in zip(names, groups, strict=True):
        for metric in metrics:
            read = {run: line for run in group if len((line := read_line(run.columns, x, metric))[0])}
            missing |= {run.path: None for run in group if run not in read}
            lines = [smooth_line(line, smooth) for line in read.values()]
            curves.append(Curve(name, metric, [run.config.get("seed") for run in read], lines))
    empty = f"no value of {' and '.join(metrics)} has been logged yet; wait, or choose another y="
    require(any(curve.lines for curve in curves), empty)
    for path in missing:
        log.warning("%s lacks some of these metrics and is missing from the picture", path)
    cut = f": the best {MAX_GROUPS} of {len(every)} groups" if len(every) > len(groups) else ""
    return curves, name_runs(groups) + cut


def draw(
    runs: Sequence[ReportedRun],
    x: str = "step",
    y: Sequence[str] | None = None,
    label: Sequence[str] | None = None,
    smooth: int = 1,
    title: str | None = None,
    size: tuple[float, float] | None = None,
) -> Figure:
    """Plot metrics of runs into a new figure; for the arguments see `paddock.plot`."""
    curves, default = collect(runs, x, y, label, smooth)
    groups = list(dict.fromkeys(curve.group for curve in curves))
    panels = _panels([curve.metric for curve in curves])
    below = -(-len(groups) // 2) if len(groups) > MAX_INSIDE and len(panels) == 1 else 0  # legend rows
    width, height = size or (8, 1.5 + 3 * len(panels) + 0.2 * below)
    points = 8 if width < NARROW_IN else 10
    legend: dict[str, Any] = {"frameon": False, "fontsize": "small"}
    with matplotlib.rc_context({"font.size": points, "text.parse_math": False}):
        figure = new_figure(width, height)
        axes = figure.subplots(len(panels), sharex=True, squeeze=False)[:, 0]
        for ax, (name, metrics) in zip(axes, panels.items(), strict=True):
            shown = [curve for curve in curves if curve.metric in metrics]
            named = _draw_panel(ax, shown, len(groups) > 1 or label is not None)
            for line in named:
                line.set_label(_wrap(str(line.get_label()), width / 2 - 0.7, points))
            ax.set_ylabel(LABELS.get(name, metrics[0] if len(metrics) == 1 else name))
            ax.tick_params(labelsize=points)
            if not below and (len(shown) > 1 or label):
                ax.legend(handles=named, **legend)
        if below:
            figure.legend(handles=named, loc="outside lower center", ncols=2, **legend)
            if size is None:
                figure.set_figheight(height + 0.08 * sum(str(line.get_label()).count("\n") for line in named))
        label_x(axes[-1], x)
        explained = explain_lines([len(curve.lines) for curve in curves], smooth)
        _write_above(axes[0], default if title is None else title, explained, width, points)
    return figure


def name_runs(groups: Sequence[list[ReportedRun]]) -> str:
    """Return the algorithm and environment that runs share, and the seeds of a single group."""
    runs = [run for group in groups for run in group]
    names = [{str(run.settings.get("algo.name", "")) for run in runs}, {run.env for run in runs}]
    subject = " on ".join(name for choice in names if len(choice) == 1 for name in choice if name) or "learning curves"
    if len(groups) > 1:
        return subject
    seeds = [str(run.config.get("seed")) for run in runs]
    listed = ", ".join(seeds) if len(seeds) <= 8 else str(len(seeds))
    return f"{subject}, seed{'s' if len(seeds) > 1 else ''} {listed}"


def _default_metrics(groups: Sequence[list[ReportedRun]]) -> list[str]:
    known = [{name for run in group for name in run.columns} for group in groups]
    if all(names.issuperset(ARCHIVE) for names in known):
        return ARCHIVE
    if not all(EVALUATION in names for names in known):
        return [TRAINING]
    return [EVALUATION, TRAINING] if len(groups) == 1 and TRAINING in known[0] else [EVALUATION]


def _panels(metrics: Sequence[str]) -> dict[str, list[str]]:
    """Return the metrics of each panel: those of the same name, or numbered ones of a group."""
    panels: dict[str, list[str]] = {}
    for metric in dict.fromkeys(metrics):
        group, _, name = metric.rpartition("/")
        panels.setdefault(group if name.isdecimal() else name, []).append(metric)
    return panels


def _draw_panel(ax: Axes, curves: Sequence[Curve], with_group: bool) -> list[Line2D]:
    metrics = {curve.metric for curve in curves}
    named: list[Line2D] = []
    for k, curve in enumerate(curves):
        if not curve.lines:
            continue
        words = [curve.group] * with_group
        words += [LABELS.get(curve.metric, curve.metric)] * (len(metrics) > 1 or not with_group)
        seeds = f" ({len(curve.lines)} seeds)" if len(curve.lines) > 1 else ""
        color = GREY if curve.metric == TRAINING and EVALUATION in metrics else COLORS[k % len(COLORS)]
        # The first line lies on top.
        named.append(draw_group(ax, curve.lines, color, ", ".join(words) + seeds, zorder=3 - k / len(curves)))
    open_axes(ax)
    return named


def _write_above(ax: Axes, title: str, explained: str, width_in: float, points: float) -> None:
    """Write a title, and below it an explanation of the lines in small type that fits the width."""
    points *= 0.7
    text = _wrap(explained, width_in - 0.9, points)
    place: dict[str, Any] = {"ha": "center", "va": "bottom", "transform": ax.transAxes, "color": GREY}
    ax.text(0.5, 1.02, text, fontsize=points, **place)
    ax.set_title(title, pad=7 + 1.4 * points * (1 + text.count("\n")))


def _wrap(text: str, width_in: float, points: float) -> str:
    return textwrap.fill(text, max(int(width_in * 72 / (0.5 * points)), 20))
