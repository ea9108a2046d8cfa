"""Comparison of two sets of runs over tasks: scores, probability of improvement, and a verdict.

Intervals come from a stratified bootstrap over seeds (Agarwal et al. 2021, arXiv:2108.13264).
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import yaml
from numpy.typing import NDArray

from paddock.envs.errors import ConfigError, nearest, require

from ..runs.folder import read_json
from ..runs.identity import format_value, short_name
from ..runs.results import read_columns
from ..runs.state import find_runs, has_ended
from . import statistics
from .data import ReportedRun, choose_metric, find_repeats, group_by_seed, read_settings

Array = NDArray[np.float64]

MIN_SEEDS = 3  # per side; fewer have no useful interval
REFERENCE = "reference:"
REFERENCES = Path(__file__).parent / "references.yaml"
FORMAT = 1  # of stored results


@dataclass(frozen=True)
class SeedResult:
    """Curve of a metric in one run."""

    seed: int
    steps: list[int]
    values: list[float]
    digest: str  # of metrics.jsonl

    def at(self, step: int | None) -> tuple[int, float]:
        """Return how far the run is known and its last value, both up to a step if one is given."""
        points = [k for k, known in enumerate(self.steps) if step is None or known <= step]
        require(bool(points), f"at={step}: the first value of seed {self.seed} is at step {self.steps[0]}")
        return self.steps[-1] if step is None else min(step, self.steps[-1]), self.values[points[-1]]


@dataclass(frozen=True)
class TaskResult:
    """Results of one experiment on one task, for all its seeds."""

    task: str
    settings: dict[str, Any]  # that affect results, except the seed
    metric: str
    mujoco: str | None  # its version, if the task uses it
    seeds: list[SeedResult]


@dataclass(frozen=True)
class Reference:
    """Published score of an algorithm on one task."""

    steps: int
    mean: float
    source: str


@dataclass(frozen=True, eq=False)
class TaskComparison:
    """Scores of A and B on a task; `b` is a single published mean for a reference."""

    task: str
    a: Array  # [R]
    b: Array  # [S]
    differences: list[str]  # settings in which A and B differ
    same: bool  # equal seeds with equal metrics

    @property
    def probability(self) -> float:
        """Return the probability that a run of A scores above one of B."""
        return float(statistics.improvement(self.a[:, None], self.b[:, None]))


@dataclass(frozen=True, eq=False)
class Comparison:
    """Comparison over all common tasks."""

    tasks: list[TaskComparison]  # sorted by name
    reference: bool  # B is a table of published means, so that no probability of improvement exists

    @property
    def same(self) -> bool:
        """Return whether both sides hold the same runs, bit for bit."""
        return all(task.same for task in self.tasks)

    @property
    def probability(self) -> float:
        """Return the probability that a run of A scores above one of B, averaged over tasks."""
        return float(np.mean([task.probability for task in self.tasks]))

    @cached_property
    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval of `probability`."""
        return statistics.mean_improvement_interval([(task.a, task.b) for task in self.tasks])

    def passes(self, gate: str) -> bool:
        """Return whether A is `better` than B, or `no_worse`, in one decision over all tasks.

        Runs: the interval of the probability of improvement lies above 0.5, or not below it. References: on every
        task, the interval of A's interquartile mean lies above the published mean, or not below it.
        """
        if self.same:
            return gate == "no_worse"
        bounds: list[tuple[Any, Any, float]]  # low, high, threshold
        if self.reference:
            bounds = [(*statistics.interval(task.a[:, None]), task.b[0]) for task in self.tasks]
        else:
            bounds = [(*self.interval, 0.5)]
        return all(low > threshold if gate == "better" else high >= threshold for low, high, threshold in bounds)


def compare(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    *,
    score: str | None = None,
    at: int | None = None,
    versions: str = "same",
) -> Comparison:
    """Compare the scores of two sets of runs, task by task.

    Args:
        a: a folder of runs or a file of stored results, usually the new one.
        b: the same for the other side, or `reference:NAME` for published scores.
        score: the metric whose last value is a run's score; None for the evaluation return.
        at: compare at this number of environment steps; None at the end.
        versions: `any` compares results of different MuJoCo versions.

    Raises:
        ConfigError: a side has no ended run or fewer than three seeds, or nothing is comparable.
    """
    ours = read_results(a, score)
    if str(b).startswith(REFERENCE):
        references = read_references(str(b).removeprefix(REFERENCE))
        tasks = [
            _compare_reference(result, references[result.task], at) for result in ours if result.task in references
        ]
        require(bool(tasks), f"{b} has no score for {_list(ours)}; it has {', '.join(references)}")
        return Comparison(tasks, True)
    theirs = read_results(b, score)
    pairs = [pair for result in ours if (pair := _find_pair(result, ours, theirs, b))]
    require(bool(pairs), f"no common task: {a} has {_list(ours)}, and {b} has {_list(theirs)}")
    counts = Counter(one.task for one, _ in pairs)
    tasks = [_compare_task(one, other, at, versions) for one, other in pairs]
    named = [
        replace(task, task=f"{task.task}, {one.settings.get('algo.name')}") if counts[task.task] > 1 else task
        for task, (one, _) in zip(tasks, pairs, strict=True)
    ]
    return Comparison(named, False)


def read_results(source: str | os.PathLike[str], score: str | None = None) -> list[TaskResult]:
    """Read the results of runs below a folder, or from a file that `store_results` wrote; sorted by task."""
    path = Path(source)
    if path.suffix == ".json":
        return _read_stored(path, score)
    runs = [ReportedRun(run, read_settings(run), read_columns(run)) for run in find_runs(path)]
    repeats = find_repeats(runs)
    runs = [run for run in runs if run not in repeats]
    unfinished = [str(run.path) for run in runs if not has_ended(run.path)]
    require(not unfinished, f"{len(unfinished)} runs have not ended ({', '.join(unfinished[:3])}); resume them first")
    metric = choose_metric(runs, score)
    return sorted((_collect(group, metric) for group in group_by_seed(runs)), key=lambda result: result.task)


def store_results(results: Sequence[TaskResult]) -> bytes:
    """Return results as JSON, for later comparisons without the run folders."""
    return json.dumps({"format": FORMAT, "results": [asdict(result) for result in results]}, indent=1).encode()


def read_references(name: str) -> dict[str, Reference]:
    """Read published scores by task."""
    known = yaml.safe_load(REFERENCES.read_text())
    require(name in known, f"{REFERENCE}{name} is unknown; {nearest(name, known)}")
    table = known[name]
    return {task: Reference(steps, mean, table["source"]) for task, (steps, mean) in table["scores"].items()}


def _read_stored(path: Path, score: str | None) -> list[TaskResult]:
    try:
        stored = json.loads(path.read_text())
        require(stored["format"] == FORMAT, f"{path} has format {stored['format']}; this version reads {FORMAT}")
        results = [
            TaskResult(**result | {"seeds": [SeedResult(**seed) for seed in result["seeds"]]})
            for result in stored["results"]
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is not a file of results ({error}); write one with json=") from error
    for result in results:
        wrong = f"score={score}: {path} holds {result.metric}; compare the run folders instead"
        require(score in (None, result.metric), wrong)
    return results


def _collect(group: Sequence[ReportedRun], metric: str) -> TaskResult:
    seeds = []
    for run in sorted(group, key=lambda run: int(run.config.get("seed", 0))):
        columns = run.columns
        finite = np.isfinite(columns.get(metric, np.empty(0)))
        require(bool(finite.any()), f"{run.path} has no {metric}; choose another score=")
        digest = hashlib.sha256((run.path / "metrics.jsonl").read_bytes()).hexdigest()
        steps, values = columns["step"][finite].astype(int).tolist(), columns[metric][finite].tolist()
        seeds.append(SeedResult(int(run.config.get("seed", 0)), steps, values, digest))
    first = group[0]
    registered = gymnasium.registry.get(short_name(str(first.settings.get("env.id"))))
    robot = registered is not None and "mujoco" in str(registered.entry_point)
    packages = read_json(first.path / "provenance.json").get("packages") or {}
    return TaskResult(first.env, first.settings, metric, packages.get("mujoco") if robot else None, seeds)


def _find_pair(
    result: TaskResult, ours: Sequence[TaskResult], theirs: Sequence[TaskResult], b: str | os.PathLike[str]
) -> tuple[TaskResult, TaskResult] | None:
    """Find the result of B to compare with: of equal settings, else the only one on the task."""
    candidates = [other for other in theirs if other.task == result.task]
    equal = [other for other in candidates if other.settings == result.settings]
    rivals = sum(other.task == result.task for other in ours)
    if equal or not candidates:
        return (result, equal[0]) if equal else None
    several = f"{rivals} and {len(candidates)} experiments on {result.task} differ in settings besides the seed"
    require(rivals == 1 and len(candidates) == 1, f"{several}; compare folders with one experiment per task")
    return result, candidates[0]


def _compare_task(a: TaskResult, b: TaskResult, at: int | None, versions: str) -> TaskComparison:
    other_metric = f"{a.task} has {a.metric} in A and {b.metric} in B; choose a metric of both with score="
    require(a.metric == b.metric, other_metric)
    different = f"{a.task} was run with MuJoCo {a.mujoco} and {b.mujoco}; to allow this, set versions=any"
    require(versions == "any" or a.mujoco == b.mujoco, different)
    (scores_a, steps_a), (scores_b, steps_b) = (_scores(result, at) for result in (a, b))
    # Rounds of different sizes end a few steps apart.
    apart = f"{a.task} has {steps_a:,} steps in A and {steps_b:,} in B; compare at a common length with at=STEPS"
    require(abs(steps_a - steps_b) <= 0.02 * max(steps_a, steps_b), apart)
    other = a.settings.get("algo.name") != b.settings.get("algo.name")  # whose keys have nothing in common
    keys = sorted(
        key
        for key in a.settings.keys() | b.settings.keys()
        if not (other and key.startswith("algo.") and key != "algo.name")
    )
    differences = [
        f"{key}: {format_value(a.settings.get(key))} and {format_value(b.settings.get(key))}"
        for key in keys
        if a.settings.get(key) != b.settings.get(key)
    ]
    same = [(seed.seed, seed.digest) for seed in a.seeds] == [(seed.seed, seed.digest) for seed in b.seeds]
    return TaskComparison(a.task, scores_a, scores_b, differences, same)


def _compare_reference(a: TaskResult, reference: Reference, at: int | None) -> TaskComparison:
    scores, steps = _scores(a, at)
    length = f"{a.task} was trained for {steps:,} steps, and the reference for {reference.steps:,}"
    require(abs(steps - reference.steps) <= 0.02 * reference.steps, f"{length}; use the same length, or at=STEPS")
    return TaskComparison(a.task, scores, np.array([reference.mean]), [reference.source], False)


def _scores(result: TaskResult, at: int | None) -> tuple[Array, int]:
    """Return the scores [R] of all seeds, and their median number of steps."""
    few = f"{result.task} has too few seeds on one side ({len(result.seeds)} of at least {MIN_SEEDS})"
    require(len(result.seeds) >= MIN_SEEDS, f"{few}; run more with --multirun seed=1,2,3")
    steps, values = zip(*(seed.at(at) for seed in result.seeds), strict=True)
    return np.array(values, np.float64), int(np.median(steps))


def _list(results: Sequence[TaskResult]) -> str:
    return ", ".join(dict.fromkeys(result.task for result in results)) or "no result"
