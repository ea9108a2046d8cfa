"""Section about a sweep: history, parameter importances, trials and the best command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...runs.folder import read_json
from ...runs.units import duration, short
from ...sweep.finals import RESULT
from ...sweep.study import StudySettings, open_study, read_trials
from ...sweep.summary import best_trials, command_of, count_ends, describe_winner, importances
from ..drawing import COLORS, GREY, mark_whole, name_rows
from ..figures import INK, Column, Picture, Series, axes, picture
from ..page import Code, Grid, Heading, Panel, Section, Table, Text
from .finals import describe_finals

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

BLUE, ORANGE = COLORS[0], COLORS[1]
MOST_PARAMETERS = 14  # in a picture
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
    signs = [1.0 if direction.name == "MAXIMIZE" else -1.0 for direction in study.directions]
    panels = [
        Panel("History", _draw_history(trials, j, signs[j], f"{name}-history{j}"), f"{metric} by trial number")
        for j, metric in enumerate(metrics)
    ]
    if shares := importances(study):
        drawn = _draw_importances(shares, f"{name}-importances")
        panels.append(Panel("Importances", drawn, f"of parameters for {metrics[0]} (PED-ANOVA)"))
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
    shown = dict(list(importances.items())[:MOST_PARAMETERS])
    ax = axes(height_in=max(0.34 * len(shown) + 0.7, 1.6))
    ax.barh(range(len(shown)), list(shown.values()), color=BLUE, height=0.6)
    name_rows(ax, [_short_name(key) for key in shown], parse_math=False)
    ax.set_xlabel("importance")
    columns: dict[str, Column] = {"parameter": list(shown), "importance": list(shown.values())}
    series = Series({}, columns, "importance", np.arange(len(shown)), BLUE)
    return picture(ax.figure, name, "importances of parameters", [series])


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
