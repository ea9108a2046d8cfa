"""Finals of a sweep: its best trials race on fresh seeds, and the winner is measured on held-out seeds.

A search compares trials by one seed, so its best value is partly luck. In round r, all remaining finalists
run on 2^r fresh seeds, and the better half by the mean over all fresh seeds advances. The winner then runs on seeds that
had no part in the choice. The next runs are a function of the study and of the ended runs, so a killed sweep resumes
with the same result.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..runs.folder import has_ended, read_config
from ..runs.state import last_metrics
from .study import StudySettings

if TYPE_CHECKING:
    import polars as pl
    from optuna.trial import FrozenTrial

FOLDER, RESULT = "finals", "finals.json"  # in the sweep's folder
HELD_OUT = 1000  # offset of the held-out seeds, beyond any seed of a round

Final = tuple[int, int]  # trial, seed
Scores = Mapping[Final, float]  # of ended runs; the greater the better, -inf for a failed one


@dataclass(frozen=True)
class Round:
    """Decided round: means over all fresh seeds so far, and the trials that advance."""

    seeds: list[int]
    means: dict[int, float]
    stay: list[int]  # the best first


@dataclass(frozen=True)
class Standing:
    """State of the finals, derived from the scores of ended runs."""

    rounds: list[Round] = field(default_factory=list)
    winner: int | None = None
    missing: list[Final] = field(default_factory=list)  # runs of the current round, or held-out ones, not yet ended


def pick_finalists(trials: Sequence[FrozenTrial], maximize: bool, limit: int) -> list[int]:
    """Return the best complete trials of a search, as many as the largest power of two up to a limit.

    Of trials with equal values, the one with the better mean of its reports comes first, since it learned sooner.
    """
    sign = 1 if maximize else -1

    def rank(trial: FrozenTrial) -> tuple[float, float, int]:
        reports = [value for value in trial.intermediate_values.values() if math.isfinite(value)]
        assert trial.value is not None
        return -sign * trial.value, -sign * float(np.mean(reports)) if reports else math.inf, trial.number

    complete = [trial for trial in trials if trial.state.name == "COMPLETE"]
    different = {repr(sorted(trial.params.items())): trial for trial in sorted(complete, key=rank, reverse=True)}
    ranked = sorted(different.values(), key=rank)
    count = 1 << min(limit, len(ranked)).bit_length() >> 1
    return [trial.number for trial in ranked[:count]]


def compute_standing(finalists: Sequence[int], scores: Scores, seed: int, held_out: int) -> Standing:
    """Derive the decided rounds, the winner and the missing runs.

    Args:
        finalists: a power of two of trials, at least one, the best of the search first.
        scores: of ended runs.
        seed: of the search; finals use the following ones.
        held_out: number of held-out seeds.
    """
    rounds: list[Round] = []
    remaining = list(finalists)
    while len(remaining) > 1:
        first = 1 << len(rounds)
        seeds = list(range(seed + first, seed + 2 * first))
        missing = [(trial, one) for one in seeds for trial in remaining if (trial, one) not in scores]
        if missing:
            return Standing(rounds, None, missing)
        fresh = range(seed + 1, seeds[-1] + 1)
        means = {trial: float(np.mean([scores[trial, one] for one in fresh])) for trial in remaining}
        ranked = sorted(remaining, key=lambda trial: -means[trial])  # stable: equal means keep the order
        remaining = ranked[: len(ranked) // 2]
        rounds.append(Round(seeds, {trial: means[trial] for trial in ranked}, remaining))
    [winner] = remaining
    measured = range(seed + HELD_OUT, seed + HELD_OUT + held_out)
    return Standing(rounds, winner, [(winner, one) for one in measured if (winner, one) not in scores])


def read_finals(folder: str | os.PathLike[str]) -> pl.DataFrame:
    """Read the runs of a sweep's finals.

    Args:
        folder: the sweep's folder.

    Returns:
        A row per run with `trial`, `seed`, `held_out` (whether the seed had no part in the choice), the sweep's
        objective, `steps`, `seconds` and `run`.

    Raises:
        ConfigError: the folder holds no sweep.
    """
    import polars as pl

    metric = next(iter(StudySettings.read(Path(folder)).objectives))
    rows = []
    for run in sorted((Path(folder) / FOLDER).glob("*_seed*")):
        if has_ended(run):
            trial, seed = map(int, run.name.split("_seed"))
            metrics = last_metrics(run)[0]
            values = {
                metric: metrics.get(metric),
                "steps": metrics.get("step"),
                "seconds": metrics.get("system/seconds"),
            }
            held_out = seed >= read_config(Path(folder) / str(trial))["seed"] + HELD_OUT
            rows.append({"trial": trial, "seed": seed, "held_out": held_out, **values, "run": str(run)})
    schema = {"trial": pl.Int64, "seed": pl.Int64, "held_out": pl.Boolean, metric: pl.Float64}
    schema |= {"steps": pl.Float64, "seconds": pl.Float64, "run": pl.String}
    return pl.DataFrame(rows, schema=schema).sort("trial", "seed")
