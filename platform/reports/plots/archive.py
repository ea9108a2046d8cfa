"""Heat map of a quality diversity run's archive: the return of each cell's elite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.evolution.archive import EMPTY, Cells, Grid
from paddock.algos.evolution.descriptors import Descriptor, make_cells
from paddock.envs.errors import require

from ...runs.checkpoint import Checkpoints
from ...runs.lazy_imports import matplotlib
from ...runs.results import Columns
from ..drawing import COLORS, GREY, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PIXELS = 400  # along each axis, for cells around centroids
PROJECTED = 50  # cells along each axis of a CVT of more than two descriptors


@dataclass(frozen=True)
class ArchiveContent:
    """Elites of a run, as of its newest checkpoint."""

    names: Sequence[str]  # [D], of the descriptors
    cells: Cells
    objective: NDArray[np.float64]  # [C]; -inf in empty cells
    descriptors: NDArray[np.float64]  # [C, D]


def read_archive(run: Path, config: Mapping[str, Any], columns: Columns) -> ArchiveContent | None:
    """Return the archive of a run; None if it keeps none or has no checkpoint yet."""
    algo = config.get("algo", {})
    state = Checkpoints(run / "checkpoints", keep=1).load() if "descriptors" in algo else None
    if state is None or "archive" not in state["algorithm"]:
        return None
    archive = state["algorithm"]["archive"]
    dimensions = [Descriptor(one["of"], one["low"], one["high"], one.get("cells")) for one in algo["descriptors"]]
    cells = make_cells(dimensions, algo["cells"], 1, config["seed"])
    return ArchiveContent([one.of for one in dimensions], cells, archive["objective"], archive["descriptors"])


def draw_archive(content: ArchiveContent, title: str) -> Figure:
    """Draw the elites' returns over the first two descriptors, the best of each cell; over one as points."""
    objective, cells = content.objective, content.cells
    occupied = np.flatnonzero(objective > EMPTY)
    require(len(occupied) > 0, "the archive is empty; wait for an iteration")
    figure = new_figure(7.2 if len(content.names) > 1 else 9, 6)
    ax = figure.subplots()
    low, high = cells.low, cells.high
    places = np.clip(content.descriptors, low, high)  # elites outside the range are in the outermost cells
    if len(low) == 1:
        ax.scatter(places[occupied, 0], objective[occupied], color=COLORS[0])
        ax.set_ylabel("return of the elite")
    else:
        if len(low) > 2:
            cells = Grid(low[:2], high[:2], cells.shape[:2] if isinstance(cells, Grid) else (PROJECTED, PROJECTED))
            projected = np.full(cells.count, EMPTY)
            np.maximum.at(projected, cells.index_of(content.descriptors[occupied, :2]), objective[occupied])
            objective = projected
        width, height = cells.shape if isinstance(cells, Grid) else (PIXELS, PIXELS)
        x, y = (low[k] + (np.arange(n) + 0.5) / n * (high[k] - low[k]) for k, n in enumerate((width, height)))
        raster = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
        values = np.ma.masked_less_equal(objective[cells.index_of(raster)].reshape(height, width), EMPTY)
        colors = matplotlib.colormaps["viridis"].with_extremes(bad="0.9")
        extent = (low[0], high[0], low[1], high[1])
        image = ax.imshow(values, cmap=colors, origin="lower", extent=extent, aspect="auto", interpolation="nearest")
        figure.colorbar(image, label="return of the elite")
        best = places[np.argmax(content.objective), :2]
        ax.plot(*best, marker="*", markersize=14, color="white", markeredgecolor="black", clip_on=False)
        ax.set_ylabel(content.names[1])
    ax.set_xlabel(content.names[0])
    ax.spines[:].set_color(GREY)
    coverage = len(occupied) / len(content.objective)
    shown = f"{len(occupied):,} elites, coverage {coverage:.1%}, best return {content.objective.max():.4g}"
    shown += ", best over other descriptors" if len(low) > 2 else ""
    ax.set_title(f"{title}\n{shown}" if title else shown, fontsize="medium", pad=12)
    return figure


PICTURES: Mapping[str, Callable[[ArchiveContent, str], Figure]] = {"archive": draw_archive}
