"""Section about a sweep: history, parameter importances, parameters and the best command."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...runs.folder import read_json
from ...runs.lazy_imports import matplotlib
from ...runs.units import duration, short
from ...sweep.finals import RESULT
from ...sweep.study import StudySettings, open_study, read_trials
from ...sweep.summary import best_trials, command_of, count_ends, describe_winner, importances
from ..drawing import COLORS, GREY, mark_whole, name_rows
from ..figures import INK, Column, Picture, Series, axes, picture
from ..page import Code, Grid, Heading, Panel, Section, Table, Text
from .finals import describe_finals

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from optuna import Study
    from optuna.trial import FrozenTrial

Array = NDArray[np.float64]

BLUE, ORANGE = COLORS[0], COLORS[1]
MOST_PARAMETERS = 7  # in a picture
MOST_TRIALS = 500  # in a table


def describe(folder: Path, name: str, k: int) -> Section:
    """Return the section about the sweep in a folder; `k` is its number in the page."""
    about, study = StudySettings.read(folder), open_study(folder)
    trials = study.get_trials(deepcopy=False)
    aims = ", ".join(f"{direction} {metric}" for metric, direction in about.objectives.items())
    metrics = list(about.objectives)
    blocks: list[Code | Heading | Grid | Table | Text] = [Code([about.command])]
    if any(trial.state.name == "COMPLETE" for trial in trials):
        blocks += [
            *_best(study, folder, about),
            Grid(_pictures(study, trials, metrics, f"sweep{k}")),
            *describe_finals(folder, metrics[0], trials, f"sweep{k}"),
        ]
    blocks += [Heading("Trials"), *_tabulate(folder, metrics)] if trials else []
    return Section(f"Sweep: {name}", f"{aims}; {count_ends(trials) or 'no trial yet'}.", blocks)


def _best(study: Study, folder: Path, about: StudySettings) -> list[Heading | Code]:
    blocks: list[Heading | Code] = []
    finals = read_json(folder / RESULT)
    best = [study.get_trials(deepcopy=False)[finals["winner"]]] if finals else best_trials(study)
    for trial in best[:5]:
        values = zip(about.objectives, trial.values or (), strict=False)
        reached = ", ".join(f"{metric} {short(value)}" for metric, value in values)
        if finals:
            reached = f"{describe_winner(finals)}; {reached} in the search"
        blocks += [Heading(f"Best: trial {trial.number}, {reached}"), Code([command_of(about, folder, trial)])]
    if len(best) > 5:
        blocks.append(Heading(f"and {len(best) - 5} more on the Pareto front"))
    return blocks


def _pictures(study: Study, trials: Sequence[FrozenTrial], metrics: Sequence[str], name: str) -> list[Panel]:
    done = [trial for trial in trials if trial.state.name == "COMPLETE"]
    signs = [1.0 if direction.name == "MAXIMIZE" else -1.0 for direction in study.directions]
    panels = [
        Panel("History", _draw_history(trials, j, signs[j], f"{name}-history{j}"), f"{metric} by trial number")
        for j, metric in enumerate(metrics)
    ]
    if shares := importances(study):
        drawn = _draw_importances(shares, f"{name}-importances")
        panels.append(Panel("Importances", drawn, f"of parameters for {metrics[0]} (PED-ANOVA)"))
    names = list(shares) or list(dict.fromkeys(key for trial in done for key in trial.params))
    whole = [trial for trial in done if all(key in trial.params for key in names[:MOST_PARAMETERS])]
    if len(names) > 1 and len(whole) > 1:
        drawn = _draw_coordinates(whole, names[:MOST_PARAMETERS], signs[0], f"{name}-coordinates")
        panels.append(Panel("Parameters", drawn, f"one line per trial; darker is better ({metrics[0]})"))
    return panels


def _draw_history(trials: Sequence[FrozenTrial], j: int, sign: float, name: str) -> Picture:
    ax = axes()
    done = [trial for trial in trials if trial.state.name == "COMPLETE"]
    pruned = [trial for trial in trials if trial.state.name == "PRUNED" and trial.intermediate_values]
    x, y = np.array([trial.number for trial in done]), np.array([trial.values[j] for trial in done])
    ax.plot(x, y, "o", color=BLUE, markersize=4.5, alpha=0.75, markeredgewidth=0, label="complete")
    if pruned and j == 0:
        last = [trial.intermediate_values[max(trial.intermediate_values)] for trial in pruned]
        ax.plot([trial.number for trial in pruned], last, "x", color=GREY, markersize=4.5, label="pruned")
    best = sign * np.maximum.accumulate(sign * y)
    ax.step(x, best, where="post", color=ORANGE, linewidth=1.8, label="best so far")
    ax.set_xlabel("trial")
    ax.set_ylabel("value")
    mark_whole(ax.xaxis)
    ax.legend(frameon=False, fontsize=8.5, labelcolor=INK)
    return picture(ax.figure, name, "optimization history")


def _draw_importances(importances: Mapping[str, float], name: str) -> Picture:
    shown = dict(list(importances.items())[: 2 * MOST_PARAMETERS])
    ax = axes(height_in=max(0.34 * len(shown) + 0.7, 1.6))
    ax.barh(range(len(shown)), list(shown.values()), color=BLUE, height=0.6)
    name_rows(ax, [_short_name(key) for key in shown], parse_math=False)
    ax.set_xlabel("importance")
    columns: dict[str, Column] = {"parameter": list(shown), "importance": list(shown.values())}
    series = Series({}, columns, "importance", np.arange(len(shown)), BLUE)
    return picture(ax.figure, name, "importances of parameters", [series])


def _draw_coordinates(trials: Sequence[FrozenTrial], names: Sequence[str], sign: float, name: str) -> Picture:
    ax = axes(height_in=3.1)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    heights = np.array([_place(ax, k, key, trials) for k, key in enumerate(names)])  # [parameters, trials]
    values = sign * np.array([trial.values[0] for trial in trials])
    ranks = np.argsort(np.argsort(values)) / (len(values) - 1)
    colors = matplotlib.colors.LinearSegmentedColormap.from_list("rank", ["#b9c4d6", BLUE])
    for k in np.argsort(values):
        ax.plot(heights[:, k], color=colors(ranks[k]), linewidth=0.8 + ranks[k], alpha=0.35 + 0.6 * ranks[k])
    ax.set_xticks(range(len(names)), [_short_name(key) for key in names], parse_math=False, rotation=20, ha="right")
    ax.set_yticks([])
    ax.set_xlim(-0.15, len(names) - 0.5)
    series = [
        Series(
            {"trial": f"trial {trial.number}"},
            {"parameter": names, "value": [_text(trial.params[key]) for key in names]},
            np.arange(len(names)),
            heights[:, k],
            matplotlib.colors.to_hex(colors(ranks[k])),
        )
        for k, trial in enumerate(trials)
    ]
    return picture(ax.figure, name, "parallel coordinates of parameters", series)


def _place(ax: Axes, k: int, key: str, trials: Sequence[FrozenTrial]) -> Array:
    """Draw the axis of a parameter; return the height of each trial on it, in [0, 1]."""
    distribution: Any = trials[0].distributions[key]
    ax.axvline(k, color=INK, linewidth=0.8, alpha=0.5)
    if choices := getattr(distribution, "choices", None):
        ticks = {j / max(len(choices) - 1, 1): _text(choice) for j, choice in enumerate(choices)}
        heights = [list(choices).index(trial.params[key]) / max(len(choices) - 1, 1) for trial in trials]
    else:
        scale = np.log if distribution.log else np.asarray
        low, high = float(scale(distribution.low)), float(scale(distribution.high))
        ticks = {0.0: f"{distribution.low:.3g}", 1.0: f"{distribution.high:.3g}"}
        heights = [(float(scale(trial.params[key])) - low) / ((high - low) or 1.0) for trial in trials]
    for height, text in ticks.items():
        ax.annotate(text, (k, height), (3, 0), textcoords="offset points", fontsize=8, color=INK, va="center").set(
            parse_math=False
        )
    return np.array(heights)


def _tabulate(folder: Path, metrics: Sequence[str]) -> list[Table | Text]:
    import polars as pl

    frame = read_trials(folder)
    names = [name for name in frame.columns if name != "run"]
    head = [metrics[0] if name == "value" else name for name in names]
    words = [k for k, name in enumerate(names) if frame[name].dtype == pl.String]
    rows = [[_cell(name, row[name]) for name in names] for row in frame.head(MOST_TRIALS).iter_rows(named=True)]
    left_out = f"the first {MOST_TRIALS} of {frame.height} trials; " if frame.height > MOST_TRIALS else ""
    note = [Text(f"{left_out}paddock.sweep.study.read_trials returns all of them")] if left_out else []
    return [Table(head, rows, words), *note]


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "–"
    if name == "seconds":
        return duration(value)
    return short(value) if isinstance(value, float) or name == "steps" else str(value)


def _short_name(key: str) -> str:
    return key.rpartition(".")[2]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
