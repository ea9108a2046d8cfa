"""Figures of matches: Elo ratings with intervals, and shares of points between players."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from paddock.envs.errors import require

from ...runs.lazy_imports import matplotlib
from ..drawing import COLORS, draw_cells, mark_whole, new_figure, open_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MATCHES = "matches.json"  # in a run's folder, written by `python -m paddock.evaluate RUN matrix=RUN/matches.json`


def read_matches(run: Path, config: Mapping[str, Any], columns: Mapping[str, Any]) -> dict[str, Any] | None:
    """Read the matches that `paddock.evaluate` wrote into a run's folder; None if there are none."""
    path = run / MATCHES
    return json.loads(path.read_text()) if path.is_file() else None


def draw_elo(matches: Mapping[str, Any], title: str) -> Figure:
    """Draw ratings with 95 % intervals: a curve over iterations for each population of the run, lines for others."""
    rated = all(set(RATING) <= player.keys() for player in matches["players"])
    remedy = f"write it by paddock.evaluate RUN matrix=RUN/{MATCHES}"
    require(rated, f"{MATCHES} has no ratings, since it is not a round robin; {remedy}")
    figure = new_figure(9, 4.5)
    ax = figure.subplots()
    own, others = _own(matches), [k for k, player in enumerate(matches["players"]) if player["iteration"] is None]
    for number, (population, which) in enumerate(own.items()):
        x, elo, low, high = (np.array([matches["players"][k][name] for k in which]) for name in ("iteration", *RATING))
        color = COLORS[number % len(COLORS)]
        ax.plot(x, elo, "o-", color=color, label=population, markersize=4, linewidth=1.6)
        ax.errorbar(x, elo, (elo - low, high - elo), fmt="none", ecolor=color, elinewidth=0.9)
    if len(own) > 1:
        ax.legend(frameon=False, fontsize="small")
    ours = {k for which in own.values() for k in which}
    external = [k for k in range(len(matches["players"])) if k not in ours and k not in others]
    for number, k in enumerate([*others, *external]):
        player, color = matches["players"][k], COLORS[(len(own) + number) % len(COLORS)]
        ax.axhspan(player["low"], player["high"], color=color, alpha=0.08, linewidth=0)
        ax.axhline(player["elo"], color=color, linewidth=1.2, linestyle="--")
        ax.annotate(
            player["name"],
            (1, player["elo"]),
            xycoords=("axes fraction", "data"),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize="small",
            color=color,
            annotation_clip=False,
            parse_math=False,  # a folder's name may contain a dollar sign
        )
    open_axes(ax)
    mark_whole(ax.xaxis)
    ax.set_xlabel("iteration")
    ax.set_ylabel("Elo (mean of all players: 0)")
    ax.set_title(f"{title}: ratings over the run, 95 % intervals" if title else "Ratings over a run, 95 % intervals")
    return figure


def draw_points(matches: Mapping[str, Any], title: str) -> Figure:
    """Draw a cell for each pair of players: the row player's share of points in percent."""
    names = [player["name"] for player in matches["players"]]
    points = np.array([[np.nan if share is None else share for share in row] for row in matches["points"]])
    ax = draw_cells(100 * points, names, "RdBu", "% of points (win 1, draw 1/2)", vmin=0, vmax=100)
    ax.set_xlabel("against")
    ax.set_ylabel("player")
    ax.set_title(title, fontsize="medium")
    figure = ax.figure
    assert isinstance(figure, matplotlib.figure.Figure)
    return figure


def _own(matches: Mapping[str, Any]) -> dict[str, list[int]]:
    own: dict[str, list[int]] = {}
    for k, player in enumerate(matches["players"]):
        population = player.get("population", "")
        if player["name"] == f"{population}@{player['iteration']}":
            own.setdefault(population, []).append(k)
    return own


RATING = ("elo", "low", "high")
PICTURES: dict[str, Callable[[Any, str], Figure]] = {"elo": draw_elo, "points": draw_points}
