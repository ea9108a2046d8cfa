"""Panels about the finals of a sweep: scores on fresh and held-out seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...runs.folder import read_json
from ...runs.identity import format_value
from ...runs.units import short
from ...sweep.finals import RESULT, read_finals
from ..drawing import COLORS, GREY, name_rows
from ..figures import INK, Column, Picture, Series, axes, picture
from ..page import Grid, Heading, Panel, Table, Text

if TYPE_CHECKING:
    import polars as pl
    from optuna.trial import FrozenTrial

BLUE, ORANGE = COLORS[0], COLORS[1]


def describe_finals(
    folder: Path, metric: str, trials: Sequence[FrozenTrial], name: str
) -> list[Heading | Text | Grid | Table]:
    """Return the blocks about the finals of a sweep; empty before they have begun."""
    import polars as pl

    runs, result = read_finals(folder).drop_nulls(metric), read_json(folder / RESULT)
    if not runs.height:
        return []
    fresh = runs.filter(~pl.col("held_out")).group_by("trial").agg(pl.mean(metric, "steps", "seconds"), pl.len())
    means = {row["trial"]: row for row in fresh.iter_rows(named=True)}
    order = result.get("finalists") or sorted(means)
    shown = [number for number in order if number in means]
    panel = Panel("Finals", _draw_scores(runs, shown, trials, metric, result, name), _note(result))
    head = ["trial", "search", "mean", "fresh seeds", "steps", "seconds", "parameters"]
    rows = [
        [
            f"{number} (winner)" if number == result.get("winner") else str(number),
            short(trials[number].value or 0.0),
            short(means[number][metric]),
            means[number]["len"],
            short(means[number]["steps"]),
            short(means[number]["seconds"]),
            ", ".join(
                f"{key.rpartition('.')[2]}={format_value(value)}" for key, value in trials[number].params.items()
            ),
        ]
        for number in shown
    ]
    return [Heading("Finals"), Grid([panel]), Table(head, rows, words=(0, 6))]


def _note(result: Mapping[str, Any]) -> str:
    marks = "filled: fresh seeds; hollow: the seed of the search; orange: held-out seeds of the winner"
    if not result.get("interval"):
        return marks
    low, high = result["interval"]
    return f"{marks}, IQM and 95 % interval {short(result['iqm'])} [{short(low)}, {short(high)}]"


def _draw_scores(
    runs: pl.DataFrame,
    shown: Sequence[int],
    trials: Sequence[FrozenTrial],
    metric: str,
    result: Mapping[str, Any],
    name: str,
) -> Picture:
    ax = axes(height_in=max(0.36 * len(shown) + 0.8, 1.8))
    series = []
    for k, number in enumerate(shown):
        ax.plot([trials[number].value or 0.0], [k], "o", markerfacecolor="none", color=GREY, markersize=6)
        for held_out, color, shift in ((False, BLUE, 0.0), (True, ORANGE, 0.25)):
            same = runs.filter(trial=number, held_out=held_out)
            heights = np.full(same.height, k + shift)
            ax.plot(same[metric], heights, "o", color=color, markersize=4, alpha=0.75, markeredgewidth=0)
            columns: dict[str, Column] = {"seed": same["seed"].to_list(), metric: same[metric].to_numpy()}
            series.append(Series({"trial": f"trial {number}"}, columns, metric, heights, color))
        if number == result.get("winner") and result.get("interval"):
            ax.plot(result["interval"], [k + 0.25] * 2, color=ORANGE, linewidth=7, alpha=0.25, solid_capstyle="butt")
            ax.plot(result["iqm"], k + 0.25, "|", color=INK, markersize=11, markeredgewidth=1.4)
    name_rows(ax, [f"trial {number}" for number in shown])
    ax.set_xlabel(metric)
    return picture(ax.figure, f"{name}-finals", "scores of the finalists", series)
