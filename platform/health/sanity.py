"""Sanity suite of an algorithm: small tasks with known optimal scores, whose failures localize faults."""

import copy
import functools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from paddock.algos.learning.sanity import SanityTrial, train_and_evaluate
from paddock.algos.pool.protocol import Done, Pool
from paddock.algos.pool.serial import SerialPool
from paddock.algos.protocol import KeepsFiles
from paddock.envs.errors import ConfigError, nearest, require, split_details
from paddock.envs.sanity.suite import MULTIAGENT, SUITE
from paddock.envs.sanity.task import Bar, Kind, SanityTask
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Vec

from ..config.build import build, call_checked, prepare
from ..config.compose import compose_sections
from ..config.experiment import prepare_member

TASKS = {task.name: task for task in (*SUITE, *MULTIAGENT)}
TASK_KEYS = ("steps", "algo", "skip")  # allowed for a single task in conf/algo/sanity


@dataclass(frozen=True, kw_only=True)
class SuiteSettings:
    """Settings of an algorithm in the suite, from an option of conf/algo/sanity."""

    draws: bool  # the policy samples actions from a distribution
    stepwise: bool  # it learns from single steps, not from returns alone
    remembers: bool  # the policy is recurrent
    num_envs: int
    algo: Mapping[str, Any]  # overrides for all tasks; member.KEY addresses a population's members
    tasks: Mapping[
        str, Mapping[str, Any]
    ]  # overrides of single tasks: `steps` and further keys of `algo`, or the reason to `skip` it

    def __post_init__(self) -> None:
        for name, own in self.tasks.items():
            require(name in TASKS, f"tasks.{name} is not a task; {nearest(name, TASKS)}")
            for key in own:
                require(key in TASK_KEYS, f"tasks.{name}.{key} is not a key of a task; {nearest(key, TASK_KEYS)}")

    @property
    def kind(self) -> Kind:
        """Return the kind of policy."""
        if self.remembers:
            return "recurrent" if self.stepwise else "deterministic with memory"
        if not self.draws:
            return "greedy" if self.stepwise else "deterministic"
        return "memoryless"


@dataclass(frozen=True)
class PreparedTask:
    """Task prepared for an algorithm, or the reason why it is skipped."""

    task: SanityTask
    bar: Bar | None
    trials: tuple[SanityTrial, ...]  # one per seed
    reason: str  # why there are none


@dataclass(frozen=True)
class SanityResult:
    """Result of a task."""

    task: SanityTask
    bar: Bar | None
    scores: tuple[float, ...]  # of each seed; NaN if learning raised an error
    level: Literal["ok", "FAIL", "skip"]
    remark: str  # the error, or why it was skipped


def prepare_tasks(overrides: Sequence[str], names: Sequence[str], seeds: Sequence[int]) -> list[PreparedTask]:
    """Prepare tasks for an algorithm, from simple to complex; without names, the whole suite."""
    for name in names:
        require(name in TASKS, f"tasks={name} is not a task of the suite; {nearest(name, TASKS)}")
    tasks = [task for name, task in TASKS.items() if (name in names if names else task in SUITE)]
    name = next(word.partition("=")[2] for word in reversed(overrides) if word.startswith("algo="))
    sections = compose_sections(
        ["algo", "env", "vec", "sanity"], ["env=sanity", "vec=serial", *overrides, f"+algo/sanity@sanity={name}"]
    )
    settings: SuiteSettings = call_checked("sanity", SuiteSettings, sections["sanity"])
    if not any(word.startswith("vec.num_envs=") for word in overrides):
        sections["vec"]["num_envs"] = settings.num_envs
    given = {word.partition("=")[0].removeprefix("algo.") for word in overrides}
    prepared = []
    for task in tasks:
        bar = task.bar(settings.kind)
        own = settings.tasks.get(task.name, {})
        if bar is None or "skip" in own:
            reason = own.get("skip", f"not for {settings.kind} policies")
            prepared.append(PreparedTask(task, None, (), reason))
            continue
        keys = {**settings.algo, **own.get("algo", {})}
        algo = copy.deepcopy(sections["algo"])
        for key, value in keys.items():
            group = key.partition(".")[0]
            if not any(word in (key, f"algo/{group}") or word.startswith(f"{key}.") for word in given):
                *path, last = key.split(".")
                functools.reduce(operator.getitem, path, algo)[last] = value
        task = replace(task, steps=int(own.get("steps", task.steps)), stochastic=task.stochastic and settings.draws)
        prepared.append(_prepare(task, bar, algo, sections["env"], sections["vec"], seeds))
    reasons = [one.reason for one in prepared if one.bar is not None]
    if reasons and all(reasons):  # the fault is the algorithm's, not a task's
        raise ConfigError(reasons[0])
    return prepared


def _prepare(
    task: SanityTask,
    bar: Bar,
    algo: Mapping[str, Any],
    env_section: Mapping[str, Any],
    vec_section: Mapping[str, Any],
    seeds: Sequence[int],
) -> PreparedTask:
    section = {key: value for key, value in algo.items() if key != "name"}
    try:
        env: EnvSpec = build("env", {**env_section, "id": task.id})
        vec: Vec = build("vec", vec_section)
        arguments = {
            "env": env,
            "vec": vec,
            "pool": SerialPool(),
            "seed": seeds[0],
            "folder": None,
            "total_steps": None,
        }
        if "member" in section:
            section["member"] = prepare_member(section["member"], **arguments)
        algorithm = prepare("algo", section, **arguments)
    except ConfigError as error:
        return PreparedTask(task, bar, (), str(error))
    files = isinstance(algorithm.target, KeepsFiles)
    trials = (
        SanityTrial(algorithm, env, vec, seed, task.steps, task.episodes, files, task.stochastic) for seed in seeds
    )
    return PreparedTask(task, bar, tuple(trials), "")


def run_tasks(prepared: Iterable[PreparedTask], pool: Pool) -> Iterator[SanityResult]:
    """Run all trials, and yield the results in the order of the tasks, each as soon as it is known."""
    prepared = list(prepared)
    trials = [(k, trial) for k, one in enumerate(prepared) for trial in one.trials]
    ends: list[list[Done]] = [[] for _ in prepared]
    reported = 0
    for done in pool.imap_unordered(train_and_evaluate, [trial for _, trial in trials]):
        ends[trials[done.index][0]].append(done)
        while reported < len(prepared) and len(ends[reported]) == len(prepared[reported].trials):
            yield _grade(prepared[reported], sorted(ends[reported], key=lambda end: end.index))
            reported += 1
    for one in prepared[reported:]:
        yield _grade(one, [])


def _grade(prepared: PreparedTask, ends: Sequence[Done]) -> SanityResult:
    task, bar = prepared.task, prepared.bar
    if bar is None or not ends:
        return SanityResult(task, bar, (), "skip", prepared.reason)
    scores = tuple(float("nan") if end.error is not None else task.score(end.value.each) for end in ends)
    errors = [f"{type(end.error).__name__}: {split_details(end.error)[0]}" for end in ends if end.error is not None]
    level: Literal["ok", "FAIL"] = "ok" if all(map(bar.passes, scores)) else "FAIL"
    return SanityResult(task, bar, scores, level, errors[0] if errors else "")


def print_results(results: Iterable[SanityResult], seeds: int) -> int:
    """Print a line for each task and a summary, and return the exit code: 1 if any task failed."""
    scores = max(7 * seeds, len("scores"))
    print(f"{'':4} {'task':15} {'scores':{scores}} {'chance':>7} {'without':>7} {'best':>7}  passes", flush=True)
    failed: list[SanityTask] = []
    passed = 0
    for result in results:
        task = result.task
        if result.level == "skip":
            print(f"skip {task.name:15} {result.remark}", flush=True)
            continue
        got = " ".join(f"{score:6.3f}" for score in result.scores)
        values = " ".join(f"{value:7.3f}" for value in (task.chance, task.blind, task.best))
        note = "" if result.level == "ok" else f"  suspect {task.suspect}"
        note += f" ({result.remark})" if result.remark else ""
        print(f"{result.level:4} {task.name:15} {got:{scores}} {values}  {result.bar!s:12}{note}".rstrip(), flush=True)
        passed += result.level == "ok"
        failed += [task] if result.level == "FAIL" else []
    print(f"{passed} of {passed + len(failed)} tasks passed")
    if failed:
        print(f"first suspect, from {failed[0].name}: {failed[0].suspect}")
    return int(bool(failed))
