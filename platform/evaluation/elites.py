"""Elites of a quality diversity run: the one that an evaluation chooses, and all of them replayed."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from paddock.algos.evolution.archive import Archive
from paddock.algos.pool.serial import SerialPool
from paddock.algos.protocol import KeepsElites
from paddock.envs.errors import ConfigError, require

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
            "training return": f"{self.objective:.2f}",
        }


def find_elite(
    algorithm: Any, run: Path, cell: int | None = None, near: Sequence[float] | float | None = None
) -> Elite | None:
    """Find the elite of a cell, or the one nearest to descriptors; by default the one with the highest return.

    Return None if the run keeps no elites; raise ConfigError if the cell is empty, or if there are no elites to choose.
    """
    if cell is None and near is None and not isinstance(algorithm, KeepsElites):
        return None
    near = [near] if isinstance(near, int | float) else near
    requested = f"cell={cell}" if near is None else f"near={list(near)}"
    require(cell is None or near is None, f"{requested}: choose cell= or near=, not both")
    archive, names = _archive_of(algorithm, run, requested)
    if near is not None:
        fits = len(near) == len(names) and bool(np.isfinite(near).all())
        require(fits, f"{requested} must have a finite value for each of: {', '.join(names)}")
        cell = archive.nearest(near)
    cell, count = archive.best if cell is None else cell, archive.cells.count
    require(0 <= cell < count, f"{requested} is not a cell of {run}; allowed: 0 to {count - 1}")
    require(cell in archive.occupied, f"{requested} is empty in {run}; Run.elites() lists the others, near= finds one")
    descriptors = dict(zip(names, archive.descriptors[cell].tolist(), strict=True))
    return Elite(cell, float(archive.objective[cell]), descriptors, int(archive.born[cell]))


def tabulate_elites(run: Path, archive: Archive | None = None) -> "pl.DataFrame":
    """Return a table of a run's elites, or of another archive's: cell, return, descriptors and iteration."""
    import polars  # slow to import

    stored, names = _archive_of(load(run)[0], run, "elites")
    archive = archive or stored
    cells = archive.occupied
    columns = {name: archive.descriptors[cells, k] for k, name in enumerate(names)}
    found = {"cell": cells, "return": archive.objective[cells], **columns, "iteration": archive.born[cells]}
    return polars.DataFrame(found)


def correct_archive(run: Path, episodes: int, seed: int, workers: int | None) -> tuple[dict[str, str], dict[str, Any]]:
    """Replay all elites of a run in fresh episodes; return the lines of a report, and the elites' results for JSON."""
    algorithm, _ = load(run)
    stored, _ = _archive_of(algorithm, run, "archive=corrected")
    local = Local(workers=workers or 1, retries=3, task_timeout_s=None)
    modules = {"paddock", algorithm.env.id.partition(":")[0]} if ":" in algorithm.env.id else {"paddock"}
    with closing(SerialPool() if workers is None else local.open(modules)) as pool:
        corrected = algorithm.replay(pool, episodes, seed)
    lines = {"elites": f"{len(stored.occupied):,}, {episodes} fresh episodes each, from seed {seed}"}
    data: dict[str, Any] = {"run": str(run), "episodes": episodes, "seed": seed}
    for name, archive in (("stored", stored), ("corrected", corrected)):
        score, coverage = archive.score(algorithm.objective_offset), len(archive.occupied) / archive.cells.count
        best = archive.objective[archive.best]
        lines[name] = f"QD score {score:,.1f}, coverage {coverage:.1%}, best return {best:.2f}"
        data[name] = {"score": score, "coverage": coverage, "elites": tabulate_elites(run, archive).to_dicts()}
    return lines, data


def _archive_of(algorithm: Any, run: Path, requested: str) -> tuple[Archive, list[str]]:
    """Return the archive of a run and the names of its descriptors; raise ConfigError without elites."""
    if not isinstance(algorithm, KeepsElites):
        kind = f"{run} is a run of {type(algorithm).__name__}, which has no archive"
        raise ConfigError(f"{requested}: {kind}; use a run of algo=map_elites, cma_me or cma_mae")
    require(len(algorithm.elites.occupied) > 0, f"{requested}: the archive of {run} is empty; wait for an iteration")
    return algorithm.elites, [one.of for one in algorithm.dimensions]
