"""Scores of every agent of a POET run in each of its environments, as numbers, a table and a heat map."""

import csv
import io
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.evolution.niche import Niche
from paddock.algos.learning.policy_episodes import FULL_BATCH, EvaluationSpec, evaluate_share, runs_natively
from paddock.algos.pool.protocol import Pool
from paddock.algos.protocol import KeepsNiches
from paddock.envs.errors import require

from ..compute.recipes import Local
from ..config.command import check_output, write_output
from ..reports.drawing import draw_cells, encode_picture
from ..runs.lazy_imports import matplotlib
from ..tracking.console import LiveLine

log = logging.getLogger(__name__)

FORMATS = (".csv", ".png", ".pdf", ".svg")


@dataclass(frozen=True, eq=False)
class Matrix:
    """Scores of agents in each other's environments; niche k has row k and column k."""

    niches: tuple[Niche, ...]  # active and archived, by number
    scores: NDArray[np.float64]  # [agents, environments], mean return; NaN where the task was lost
    steps: int
    seconds: float

    @property
    def numbers(self) -> list[int]:
        """Return the niches' numbers."""
        return [niche.number for niche in self.niches]

    def rank(self, k: int) -> int | None:
        """Return the rank of environment k's own agent there, from 1; None if its score was lost."""
        own = self.scores[k, k]
        return None if np.isnan(own) else 1 + int((self.scores[:, k] > own).sum())

    def best(self, k: int) -> int | None:
        """Return the row of the best agent in environment k; ties prefer its own, then the first; None: all lost."""
        column = self.scores[:, k]
        if np.isnan(column).all():
            return None
        return k if self.rank(k) == 1 else int(np.nanargmax(column))

    def table(self) -> Iterator[str]:
        """Yield lines of text: each environment with its best agent and its own."""
        yield f"{'niche':>5}  {'':8}  {'best agent':>10} {'score':>9}  {'own score':>9}  {'own rank':>8}"
        for k, niche in enumerate(self.niches):
            best, rank = self.best(k), self.rank(k)
            agent, score = ("-", "-") if best is None else (self.niches[best].number, _show(self.scores[best, k]))
            state = "active" if niche.retired is None else "archived"
            own = "-" if rank is None else _show(self.scores[k, k])
            yield f"{niche.number:5}  {state:8}  {agent:>10} {score:>9}  {own:>9}  {rank or '-':>8}"

    def encode(self, suffix: str) -> bytes:
        """Return the content of a file with this suffix, one of `FORMATS`."""
        return self._csv() if suffix == ".csv" else self._picture(suffix)

    def _csv(self) -> bytes:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["agent", *self.numbers])
        writer.writerows([number, *map(float, row)] for number, row in zip(self.numbers, self.scores, strict=True))
        return text.getvalue().encode()

    def _picture(self, suffix: str) -> bytes:
        ax = draw_cells(self.scores, list(map(str, self.numbers)), "viridis", "mean return")
        for k in range(len(self.niches)):
            edge: dict[str, Any] = {"edgecolor": "red", "linewidth": min(2, 60 / len(self.niches))}
            ax.add_patch(matplotlib.patches.Rectangle((k - 0.5, k - 0.5), 1, 1, fill=False, **edge))
        ax.set_xlabel("environment of niche")
        ax.set_ylabel("agent of niche")
        ax.set_title("red: each niche's own agent; grey: lost", fontsize="medium")
        assert isinstance(ax.figure, matplotlib.figure.Figure)
        return encode_picture(ax.figure, suffix)


def write_matrix(
    run: Path, algorithm: Any, seeds: Sequence[int], out: Path, workers: int | None, max_steps: int
) -> Matrix:
    """Evaluate every agent in every environment on this machine, and write their scores.

    Raises:
        PaddockError: the algorithm has no niches, the file cannot be written, or an argument is out of range.
    """
    out = check_output("matrix", out, FORMATS)
    recipe = Local(workers=workers, retries=3, task_timeout_s=None)
    kind = f"is a run of {type(algorithm).__name__}, which has no niches"
    require(isinstance(algorithm, KeepsNiches), f"matrix={out}: {run} {kind}; use the folder of a POET run")
    with closing(recipe.open({"paddock"})) as pool:
        matrix = play_matrix(algorithm, pool, seeds, max_steps)
    write_output("matrix", out, matrix.encode(out.suffix))
    return matrix


def play_matrix(algorithm: Any, pool: Pool, seeds: Sequence[int], max_steps: int) -> Matrix:
    """Evaluate every agent of a POET run in each of its environments, active or archived."""
    started = time.perf_counter()
    known = algorithm.archive | algorithm.niches
    niches = tuple(known[number] for number in sorted(known))
    agents = [algorithm.policy(niche.number) for niche in niches]
    columns: list[Sequence[EvaluationSpec]] = [
        [EvaluationSpec(niche.problem.env, agent, max_steps, stochastic=False) for agent in agents] for niche in niches
    ]
    sizes = [max(1, FULL_BATCH // len(seeds)) if runs_natively(column[0]) else 1 for column in columns]
    shares = [
        (env, slice(first, first + size)) for env, size in enumerate(sizes) for first in range(0, len(agents), size)
    ]
    scores, steps, lost, count = np.full((len(niches), len(niches)), np.nan), 0, [], 0
    tasks = [(pool.broadcast(columns[env][some]), seeds) for env, some in shares]
    with closing(LiveLine(sys.stderr)) as line:
        for done in pool.imap_unordered(evaluate_share, tasks):
            env, some = shares[done.index]
            if done.error is None:
                scores[some, env] = [played.returns.mean() for played in done.value]
                steps += sum(int(played.lengths.sum()) for played in done.value)
            else:
                lost.append(done)
            count += len(columns[env][some])
            line.show(f"played {count:,} of {scores.size:,}")
    if lost:
        first = min(lost, key=lambda done: done.index).error
        message = "%d of %d scores are NaN because their tasks were lost; first error: %s: %s"
        cells = sum(len(columns[env][some]) for env, some in (shares[done.index] for done in lost))
        log.warning(message, cells, scores.size, type(first).__name__, first)
    return Matrix(niches, scores, steps, time.perf_counter() - started)


def _show(score: float) -> str:
    return f"{score:.2f}"
