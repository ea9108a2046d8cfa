"""Elites of a quality diversity run: the one that an evaluation chooses, and all of them replayed."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.algos.evolution.archive import Archive
from paddock.algos.pool.serial import SerialPool
from paddock.algos.protocol import KeepsElites
from paddock.envs.errors import require

from ..compute.recipes import Local
from .load import load

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Elite:
    """Elite of a cell."""

    cell: int
    objective: float  # return when it was found
    descriptors: dict[str, float]  # by their source
    born: int  # iteration in which it was found

    def describe(self) -> dict[str, str]:
        """Return facts about the elite by name."""
        return {
            "cell": f"{self.cell}, found in iteration {self.born:,}",
            "descriptors": ", ".join(f"{name} {value:.3g}" for name, value in self.descriptors.items()),
            "run's return": f"{self.objective:.2f}",
        }


def find_elite(algorithm: Any, run: Path, cell: int | None = None, near: Sequence[float] | None = None) -> Elite | None:
    """Find the elite of a cell, or the one nearest to descriptors; by default the one with the highest return.

    Returns:
        None if the run keeps no elites.

    Raises:
        ConfigError: the cell is empty, or the run keeps no elites although one is requested.
    """
    requested = f"cell={cell}" if near is None else f"near={list(near)}"
    if not isinstance(algorithm, KeepsElites):
        kind = f"{run} is a run of {type(algorithm).__name__}, which has no archive"
        require(cell is None and near is None, f"{requested}: {kind}; use a run of algo=map_elites, cma_me or cma_mae")
        return None
    archive, names = algorithm.elites, [one.of for one in algorithm.dimensions]
    occupied = archive.occupied
    require(cell is None or near is None, f"{requested}: choose cell= or near=, not both")
    require(len(occupied) > 0, f"the archive of {run} is empty; wait for an iteration")
    if near is not None:
        require(len(near) == len(names), f"{requested} must have {len(names)} values: {', '.join(names)}")
        cell = archive.nearest(near)
    cell = archive.best if cell is None else cell
    nearest = int(occupied[abs(occupied - cell).argmin()])
    require(nearest == cell, f"{requested} is empty in {run}; the nearest number of an occupied one is cell={nearest}")
    descriptors = dict(zip(names, archive.descriptors[cell].tolist(), strict=True))
    return Elite(cell, float(archive.objective[cell]), descriptors, int(archive.born[cell]))


def tabulate_elites(run: Path) -> "pl.DataFrame":
    """Return a table of a run's elites: cell, return, descriptors, and iteration in which each was found."""
    import polars  # slow to import

    algorithm, _ = load(run)
    find_elite(algorithm, run)  # checks that there are elites
    archive: Archive = algorithm.elites
    cells = archive.occupied
    columns = {one.of: archive.descriptors[cells, k] for k, one in enumerate(algorithm.dimensions)}
    found = {"cell": cells, "return": archive.objective[cells], **columns, "iteration": archive.born[cells]}
    return polars.DataFrame(found)


def correct_archive(run: Path, episodes: int, seed: int, workers: int | None) -> tuple[dict[str, str], dict[str, Any]]:
    """Replay all elites of a run in fresh episodes; return the lines of a report, and its data for JSON."""
    algorithm, _ = load(run)
    find_elite(algorithm, run)  # checks that there are elites
    local, modules = (
        Local(workers=workers or 1, retries=3, task_timeout_s=None),
        {"paddock", algorithm.env.id.partition(":")[0]},
    )
    with closing(SerialPool() if workers is None else local.open(modules)) as pool:
        corrected = algorithm.replay(pool, episodes, seed)
    offset, lines = algorithm.objective_offset, {}
    data: dict[str, Any] = {"run": str(run), "episodes": episodes, "seed": seed}
    for name, archive in (("stored", algorithm.elites), ("corrected", corrected)):
        elites, cells = archive.occupied, archive.cells.count
        score, best = archive.score(offset), float(archive.objective[elites].max(initial=float("-inf")))
        coverage = len(elites) / cells
        lines[name] = f"QD score {score:,.1f}, coverage {coverage:.1%}, best return {best:.2f}"
        data[name] = {
            **{"score": score, "coverage": coverage, "cells": elites.tolist()},
            **{"returns": archive.objective[elites].tolist(), "descriptors": archive.descriptors[elites].tolist()},
        }
    return {
        "elites": f"{len(algorithm.elites.occupied):,}, {episodes} fresh episodes each, from seed {seed}",
        **lines,
    }, data
