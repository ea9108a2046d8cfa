"""Pictures of matches: Elo ratings with intervals, and who took how many of the points of whom."""

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

MATCHES = "matches.json"  # in a run's folder, as `python -m paddock.evaluate RUN matrix=RUN/matches.json` writes it


def read_matches(run: Path, config: Mapping[str, Any], columns: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what `paddock.evaluate` has written of matches into a run's folder, if it has."""
    path = run / MATCHES
    return json.loads(path.read_text()) if path.is_file() else None


def draw_elo(matches: Mapping[str, Any], title: str) -> Figure:
    """Ratings with 95 % intervals: of a run's own policies over its iterations, of others as lines across.

    Of a league each policy has a curve of its own.

    Raises:
        ConfigError: they are of one player against each of the others alone, which rates nobody.
    """
    rated = all(set(RATING) <= player.keys() for player in matches["players"])
    remedy = f"write it by paddock.evaluate RUN matrix=RUN/{MATCHES}"
    require(rated, f"{MATCHES} rates nobody, as not all played all; {remedy}")
    figure = new_figure(9, 4.5)
    ax = figure.subplots()
    own, others = _own(matches), [k for k, player in enumerate(matches["players"]) if player["iteration"] is None]
    styles: dict[str, Any] = {"markersize": 4, "linewidth": 1.6, "elinewidth": 0.9}
    for number, (population, which) in enumerate(own.items()):
        x, elo, low, high = (np.array([matches["players"][k][name] for k in which]) for name in ("iteration", *RATING))
        ax.errorbar(
            x, elo, (elo - low, high - elo), fmt="o-", color=COLORS[number % len(COLORS)], label=population, **styles
        )
    if len(own) > 1:
        ax.legend(frameon=False, fontsize="small")
    ours = {k for which in own.values() for k in which}
    strangers = [k for k in range(len(matches["players"])) if k not in ours and k not in others]
    for number, k in enumerate([*others, *strangers]):
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
            parse_math=False,  # a run's folder may be called anything
        )
    open_axes(ax)
    mark_whole(ax.xaxis)
    ax.set_xlabel("iteration")
    ax.set_ylabel("Elo, the mean of all is 0")
    ax.set_title(f"{title}: rating over its own history, 95 %" if title else "Ratings over a run's history, 95 %")
    return figure


def draw_points(matches: Mapping[str, Any], title: str) -> Figure:
    """A cell for each two players: the share of points that the row's took of the column's, in percent."""
    names = [player["name"] for player in matches["players"]]
    points = np.array([[np.nan if share is None else share for share in row] for row in matches["points"]])
    ax = draw_cells(100 * points, names, "RdBu", "% of points: a win 1, a draw 1/2", vmin=0, vmax=100)
    ax.set_xlabel("against")
    ax.set_ylabel("points of")
    ax.set_title(title, fontsize="medium")
    figure = ax.figure
    assert isinstance(figure, matplotlib.figure.Figure)
    return figure


def _own(matches: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the players that are the run's own, in the order of their iterations, by their policies' names."""
    own: dict[str, list[int]] = {}
    for k, player in enumerate(matches["players"]):
        population = player.get("population", "")
        if player["name"] == f"{population}@{player['iteration']}":
            own.setdefault(population, []).append(k)
    return own


RATING = ("elo", "low", "high")
PICTURES: dict[str, Callable[[Any, str], Figure]] = {"elo": draw_elo, "points": draw_points}
