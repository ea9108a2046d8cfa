"""Finals of a sweep: its best trials race on fresh seeds, and the winner is measured on held-out seeds.

A search compares trials by one seed, so its best value is partly luck. In each round, all remaining finalists run on
one more fresh seed than they have run on before, and the better half by the mean over all fresh seeds stays. The
winner then runs on seeds that had no part in the choice. Runs are in `finals/<trial>_seed<seed>`; what runs next is a
function of the study and of the ended runs, so a killed sweep resumes with the same result.
"""

import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.trial import FrozenTrial, TrialState

from ..reports.statistics import interquartile_mean, interval
from ..runs.checkpoint import write_atomically
from ..runs.folder import has_ended, read_json
from ..runs.loop import RunFailed
from ..runs.state import last_metrics, read_run_states
from .placement import End, LaunchTarget, Plan, Running, supervise
from .study import Constraint, StudySettings, SweepSettings, parse_objectives
from .trial import SHARED_FAILURES
from .trials import STOPPED

if TYPE_CHECKING:
    import polars as pl

FOLDER, RESULT = "finals", "finals.json"  # in the sweep's folder
HELD_OUT = 1000  # offset of the held-out seeds, beyond any seed of a round
RETRY_S = 5.0  # between attempts to start a run that another process is running

Final = tuple[int, int]  # trial, seed
Scores = Mapping[Final, float]  # of ended runs; the greater the better, -inf for a failed one


@dataclass(frozen=True)
class Round:
    """Decided round: means over all fresh seeds so far, of the trials that stay and of those that leave."""

    seeds: list[int]
    means: dict[int, float]
    stay: list[int]  # the best first


@dataclass(frozen=True)
class Standing:
    """State of the finals, derived from the scores of ended runs."""

    rounds: list[Round] = field(default_factory=list)
    winner: int | None = None
    missing: list[Final] = field(default_factory=list)  # runs of the current round, or held-out ones, not yet ended


def pick_finalists(trials: Sequence[FrozenTrial], maximize: bool, limit: int, cost: str | None = None) -> list[int]:
    """Return the best complete and feasible trials of a search, as many as the largest power of two up to a limit.

    Of trials with equal values, the one with the better mean of its reports comes first, since it learned sooner.

    Args:
        trials: of the search.
        maximize: the direction of the objective.
        limit: most finalists.
        cost: attribute of trials, `steps` or `seconds`. Half of the finalists are then the best ones among trials than
            which no better one is cheaper.
    """
    sign = 1 if maximize else -1

    def rank(trial: FrozenTrial) -> tuple[float, float, int]:
        reports = [value for value in trial.intermediate_values.values() if math.isfinite(value)]
        assert trial.value is not None
        return -sign * trial.value, -sign * float(np.mean(reports)) if reports else math.inf, trial.number

    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE and _is_feasible(trial)]
    different = {repr(sorted(trial.params.items())): trial for trial in sorted(complete, key=rank, reverse=True)}
    ranked = sorted(different.values(), key=rank)
    count = 1 << min(limit, len(ranked)).bit_length() >> 1
    if cost is not None:
        front: list[FrozenTrial] = []
        for trial in ranked[count // 2 :]:
            if all(trial.user_attrs[cost] < other.user_attrs[cost] for other in (*ranked[: count // 2], *front)):
                front.append(trial)
        ranked = [*ranked[: count // 2], *front[: count // 2], *ranked[count // 2 :]]
    return list(dict.fromkeys(trial.number for trial in ranked))[:count]


def stand(
    finalists: Sequence[int], scores: Scores, seed: int, held_out: int, costs: Mapping[int, float] | None = None
) -> Standing:
    """Derive the decided rounds, the winner and the missing runs.

    Args:
        finalists: a power of two of trials, at least one, the best of the search first.
        scores: of ended runs.
        seed: of the search; finals use the following ones.
        held_out: number of held-out seeds.
        costs: of the finalists. All of them then run on as many seeds as there would be rounds, in one round.
    """
    rounds: list[Round] = []
    remaining = sorted(finalists, key=lambda trial: costs[trial]) if costs else list(finalists)
    while len(remaining) > 1:
        first = 1 << len(rounds)
        seeds = list(range(seed + first, seed + (len(finalists).bit_length() if costs else 2 * first)))
        missing = [(trial, one) for one in seeds for trial in remaining if (trial, one) not in scores]
        if missing:
            return Standing(rounds, None, missing)
        fresh = range(seed + 1, seeds[-1] + 1)
        means = {trial: float(np.mean([scores[trial, one] for one in fresh])) for trial in remaining}
        ranked = sorted(remaining, key=lambda trial: -means[trial])  # stable: equal means keep the order
        remaining = ranked[: 1 if costs else len(ranked) // 2]
        rounds.append(Round(seeds, {trial: means[trial] for trial in ranked}, remaining))
    [winner] = remaining
    seeds = range(seed + HELD_OUT, seed + HELD_OUT + held_out)
    return Standing(rounds, winner, [(winner, one) for one in seeds if (winner, one) not in scores])


class FinalsSession:
    """Run the finals of a sweep, or one process's share of them.

    Args:
        folder: the sweep's folder.
        settings: keys of the sweeper.
        target: where runs are started.
        plan: returns how to start a run of a trial's parameters with a seed.
        finalists: the trials, the best first.
        seed: of the search.
        costs: of the finalists, if cheaper ones are of interest.
    """

    def __init__(
        self,
        folder: Path,
        settings: SweepSettings,
        target: LaunchTarget,
        plan: Callable[[int, int, Path], Plan],
        finalists: Sequence[int],
        seed: int,
        costs: Mapping[int, float] | None,
    ) -> None:
        """Read the runs that have ended; nothing is started before `run`."""
        self._folder, self._settings, self._target, self._plan = folder, settings, target, plan
        self._finalists, self._seed, self._costs = list(finalists), seed, costs
        [(self._metric, direction)] = parse_objectives(settings.objectives).items()
        self._sign = 1 if direction == "maximize" else -1
        self._scores: dict[Final, float] = {}
        self._running: dict[Final, Running] = {}
        self._lost: dict[Final, int] = {}
        self._next_try: dict[Final, float] = {}
        self._failure: str | None = None  # that ends the sweep
        self._announced = 0

    def run(self) -> int | None:
        """Run until the winner is measured; return the signal that stopped this, if any.

        Raises:
            RunFailed: every finalist failed, or a failure that all runs would share.
        """
        caught = supervise(
            "finals",
            self._target,
            self._running,
            self._fill,
            self._conclude,
            lambda: not self._standing().missing,
            lambda: self._failure is not None,
        )
        if self._failure is not None:
            raise RunFailed(self._failure)
        if caught is None:
            self._announce()
            write_atomically(self._folder / RESULT, json.dumps(self.result(), indent=2).encode())
        return caught

    def result(self) -> dict[str, Any]:
        """Return the content of `finals.json`."""
        standing, seed = self._standing(), self._seed + HELD_OUT
        rounds = [
            {"seeds": one.seeds, "means": {k: self._value(mean) for k, mean in one.means.items()}, "stay": one.stay}
            for one in standing.rounds
        ]
        assert standing.winner is not None
        held_out = {
            one: self._value(self._scores[standing.winner, one])
            for one in range(seed, seed + self._settings.count_held_out())
        }
        values = np.array([value for value in held_out.values() if value is not None])[:, None]
        return {
            "metric": self._metric,
            "finalists": self._finalists,
            "rounds": rounds,
            "winner": standing.winner,
            "held_out": held_out,
            "iqm": float(interquartile_mean(values)) if len(values) else None,
            "interval": [float(bound) for bound in interval(values)] if len(values) > 1 else None,
        }

    def _standing(self) -> Standing:
        return stand(self._finalists, self._scores, self._seed, self._settings.count_held_out(), self._costs)

    def _value(self, score: float) -> float | None:
        """Return a score as a value of the metric; None for a failed run."""
        return self._sign * score if math.isfinite(score) else None

    def _path(self, final: Final) -> Path:
        return self._folder / FOLDER / "{}_seed{}".format(*final)

    def _fill(self) -> None:
        """Start missing runs while slots are free; record those that another process or command has ended."""
        self._announce()
        slots = self._settings.parallel or self._target.slots
        for final in self._standing().missing:
            if final in self._running:
                continue
            if has_ended(run := self._path(final)):
                self._record(final)
            elif len(self._running) < slots and time.monotonic() >= self._next_try.get(final, 0):
                [state] = read_run_states([run]) if (run / "config.yaml").exists() else [None]
                if state is not None and state.state == "failed":
                    self._fail(final, state.why)
                elif (running := self._target.start(self._plan(*final, run))) is not None:
                    self._running[final] = running
                else:
                    self._next_try[final] = time.monotonic() + RETRY_S

    def _conclude(self, final: Final, end: End, stopping: bool) -> None:
        if has_ended(self._path(final)):
            self._record(final)
            rounds = len(self._finalists).bit_length() - 1
            total = len(self._finalists) * rounds + self._settings.count_held_out()
            value, count = self._sign * self._scores[final], f"{len(self._scores)} of {total}"
            if math.isfinite(value):
                print(f"trial {final[0]} with seed {final[1]}: {self._metric} {value:.6g}  ({count})", flush=True)
        elif stopping and end.code in STOPPED:
            return
        elif end.code in SHARED_FAILURES:
            remedy = "fix this, then run the same command to resume"
            self._failure = f"{SHARED_FAILURES[end.code].format(final[0])}; {remedy}"
        elif end.code == 75:  # another process runs it
            self._next_try[final] = time.monotonic() + RETRY_S
        elif end.code > 0 or self._lost.get(final, 0) >= self._settings.retries:
            self._fail(final, f"exit code {end.code}", end.output)
        else:
            self._lost[final] = self._lost.get(final, 0) + 1

    def _record(self, final: Final) -> None:
        metrics = last_metrics(self._path(final))[0]
        value = metrics.get(self._metric, math.nan)
        constraints = [Constraint.parse(text) for text in self._settings.constraints]
        broken = [one for one in constraints if not one.excess(metrics.get(one.metric, math.nan)) <= 0]
        if math.isnan(value) or broken:
            self._fail(final, f"it breaks {broken[0]}" if broken else f"it ended without {self._metric}")
        else:
            self._scores[final] = self._sign * value

    def _fail(self, final: Final, why: str, output: Sequence[str] = ()) -> None:
        """Rank a run last."""
        self._scores[final] = -math.inf
        lines = "".join(f"\n    | {line}" for line in output)
        print(f"trial {final[0]} with seed {final[1]} failed: {why}{lines}", file=sys.stderr, flush=True)
        first = self._standing().rounds[:1]
        if first and not any(math.isfinite(mean) for mean in first[0].means.values()):
            self._failure = f"every finalist failed: {why}"

    def _announce(self) -> None:
        """Print the rounds decided since the last call."""
        standing = self._standing()
        total = 1 if self._costs else len(self._finalists).bit_length() - 1
        for number, one in enumerate(standing.rounds[self._announced :], self._announced + 1):
            shown = {trial: f"{trial} ({self._sign * mean:.6g})" for trial, mean in one.means.items()}
            stay = ", ".join(shown[trial] for trial in one.stay)
            leave = ", ".join(text for trial, text in shown.items() if trial not in one.stay)
            print(f"finals, round {number} of {total}: {stay} advance; {leave} out", flush=True)
        self._announced = len(standing.rounds)


def read_finals(folder: str | os.PathLike[str]) -> "pl.DataFrame":
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
    winner = read_json(Path(folder) / RESULT)
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
            held_out = str(seed) in winner.get("held_out", {})
            rows.append({"trial": trial, "seed": seed, "held_out": held_out, **values, "run": str(run)})
    schema = {"trial": pl.Int64, "seed": pl.Int64, "held_out": pl.Boolean, metric: pl.Float64}
    schema |= {"steps": pl.Float64, "seconds": pl.Float64, "run": pl.String}
    return pl.DataFrame(rows, schema=schema).sort("trial", "seed")


def _is_feasible(trial: FrozenTrial) -> bool:
    return all(value <= 0 for value in trial.constraints.values())
