"""Terrain of a POET run's niches, for environments with a ground to walk on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from paddock.envs.errors import ConfigError

from ...runs.identity import short_name
from ..drawing import new_figure
from ..lineage import History, Life

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from paddock.envs.bipedal.ground import Ground

Array = NDArray[np.float64]

MOST = 30  # grounds in a picture
SEED = 0  # used if the ground differs between episodes
EARTH, FORMER_EARTH, STONE = "#66994c", "#b5b8a8", "#555555"


@runtime_checkable
class HasGround(Protocol):
    """Environment whose ground can be drawn after a reset."""

    ground: Ground


def draw_grounds(history: History, title: str) -> Figure:
    """Draw the ground of each niche to one scale, in order of creation."""
    every = list(history.lives.values())
    chosen = [every[k] for k in spread(len(every), MOST)]
    shapes = [_ground(life) for life in chosen]
    low = min(y.min() for _, y, _ in shapes) - 1.0
    high = max(np.concatenate([y, boxes[:, :, 1].ravel()]).max() for _, y, boxes in shapes) + 0.5
    length = max(float(x[-1] - x[0]) for x, _, _ in shapes)

    columns = 1 if len(chosen) <= 4 else 2 if len(chosen) <= 12 else 3
    rows = -(-len(chosen) // columns)
    width = (9.0 if columns == 1 else 12.0) / columns
    true_height = width * (high - low) / length
    stretch = min(max(round(2 * 0.6 / true_height) / 2, 1.0), 4.0)
    figure = new_figure(width * columns, rows * (stretch * true_height + 0.32) + 1.0)
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for ax in panels.flat[len(chosen) :]:
        ax.remove()
    for ax, life, (x, y, boxes) in zip(panels.flat, chosen, shapes, strict=False):
        for corners in boxes:
            ax.fill(*corners.T, facecolor=STONE, edgecolor=STONE, linewidth=0.5, zorder=2)
        earth = EARTH if life.retired is None else FORMER_EARTH
        ax.fill_between(x, y, low, facecolor=earth, linewidth=0, zorder=3)
        ax.plot(x, y, label=f"niche {life.number}", color="black", linewidth=0.4, zorder=3)
        ax.set_title(_describe(life), fontsize=7.5, loc="left", pad=2)
        ax.set_aspect(stretch)
        ax.set_xlim(x[0], x[0] + length)
        ax.set_ylim(low, high)
        ax.set_yticks([])
        ax.tick_params(labelsize=7)
        ax.spines[["top", "right", "left"]].set_visible(False)
    for ax in panels.flat[max(len(chosen) - columns, 0) : len(chosen)]:
        ax.tick_params(labelbottom=True)
    figure.supxlabel("distance (m)", fontsize="small")
    figure.suptitle("\n".join([f"{title}: grounds", *_notes(chosen, len(every), stretch)]), fontsize="medium")
    return figure


def spread(count: int, most: int) -> list[int]:
    """Return at most `most` evenly spaced numbers below `count`, including the first and the last."""
    return [int(k) for k in np.unique(np.linspace(0, count - 1, min(count, most)).round())]


def _ground(life: Life) -> tuple[Array, Array, Array]:
    """Return x [L], y [L] and the corners of boxes [K, 4, 2], in metres."""
    env = life.env.make()
    try:
        env.reset(seed=SEED)
        walked: object = env.unwrapped
    finally:
        env.close()
    if not isinstance(walked, HasGround):
        raise ConfigError(f"{short_name(life.env.id)} has no ground to draw; use env=terrains or env=terrains_cppn")
    return walked.ground.x, walked.ground.y, walked.ground.boxes


def _describe(life: Life) -> str:
    span = f"from {life.born}" if life.retired is None else f"{life.born} to {life.retired}"
    facts = [f"niche {life.number}: {span}"] + ([] if life.score is None else [f"score {life.score:.4g}"])
    facts += ["not solved" if life.solved is None else f"solved in {life.solved}"]
    return ", ".join(facts)


def _notes(chosen: Sequence[Life], total: int, stretch: float) -> list[str]:
    lines = ["niche: iterations of its lifetime, last score, and the iteration that solved it"]
    notes = [f"{len(chosen)} of {total} niches"] if len(chosen) < total else []
    notes += [f"heights × {stretch:g}"] if stretch != 1 else []
    notes += ["grey: retired"] if any(life.retired is not None for life in chosen) else []
    lines += ["; ".join(notes)] if notes else []
    arguments = [life.env.arguments for life in chosen]
    if any(given.get("ground") is None and given.get("cppn") is None for given in arguments):
        lines.append(f"drawn with seed {SEED}; in training, every episode generates a new ground")
    return lines
