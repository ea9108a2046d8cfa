"""Sanity of an algorithm: it learns small tasks of known values, and what it fails tells what to suspect."""

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
from paddock.envs.sanity.suite import SUITE, WORLDS
from paddock.envs.sanity.task import Bar, Kind, SanityTask
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Vec

from ..config.build import build, call_checked, prepare
from ..config.compose import compose_sections
from ..config.experiment import prepare_member

TASKS = {task.name: task for task in (*SUITE, *WORLDS)}
OWN = ("steps", "algo")  # what an option of conf/algo/sanity may say of one task


@dataclass(frozen=True, kw_only=True)
class SuiteSettings:
    """How an algorithm takes the suite, as an option of conf/algo/sanity says it."""

    draws: bool  # its policy draws actions from a distribution
    stepwise: bool  # it learns from single steps, and not from returns alone
    remembers: bool  # its policy has a memory
    num_envs: int
    algo: Mapping[str, Any]  # its keys, for all tasks; member.KEY is one of a member
    tasks: Mapping[
        str, Mapping[str, Any]
    ]  # of single tasks: `steps` in place of the task's, and further keys as `algo`

    def __post_init__(self) -> None:
        for name, own in self.tasks.items():
            require(name in TASKS, f"tasks.{name} is not a task; {nearest(name, TASKS)}")
            for key in own:
                require(key in OWN, f"tasks.{name}.{key} is not a key of a task; {nearest(key, OWN)}")

    @property
    def kind(self) -> Kind:
        """What kind of policy it is."""
        if self.remembers and self.stepwise:
            return "recurrent"
        if not self.draws:
            return "greedy" if self.stepwise else "deterministic"
        return "memoryless"


@dataclass(frozen=True)
class Exam:
    """A task that an algorithm takes, or why it does not."""

    task: SanityTask
    bar: Bar | None
    trials: tuple[SanityTrial, ...]  # one for each seed
    reason: str  # why there is none


@dataclass(frozen=True)
class SanityVerdict:
    """What came of a task."""

    task: SanityTask
    bar: Bar | None
    scores: tuple[float, ...]  # of each seed; NaN where learning raised
    level: Literal["ok", "FAIL", "skip"]
    remark: str  # what raised, or why it was skipped


def prepare_exams(overrides: Sequence[str], names: Sequence[str], seeds: Sequence[int]) -> list[Exam]:
    """Return the tasks of these names, from simple to complex, made ready for an algorithm.

    Args:
        overrides: `algo=NAME`, `algo.KEY=VALUE`, and of vec.
        names: none: those of the suite.

    Raises:
        ConfigError: an override or a name is wrong, or nothing tells how the algorithm takes the suite.
    """
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
    exams = []
    for task in tasks:
        bar = task.bar(settings.kind)
        if bar is None:
            exams.append(Exam(task, None, (), f"not for policies that are {settings.kind}"))
            continue
        own = settings.tasks.get(task.name, {})
        keys = {**settings.algo, **own.get("algo", {})}
        algo = copy.deepcopy(sections["algo"])
        for key, value in keys.items():
            if key not in given:
                *path, last = key.split(".")
                functools.reduce(operator.getitem, path, algo)[last] = value
        task = replace(task, steps=int(own.get("steps", task.steps)), drawn=task.drawn and settings.draws)
        exams.append(_prepare(task, bar, algo, sections["env"], sections["vec"], seeds))
    reasons = [exam.reason for exam in exams if exam.bar is not None]
    if reasons and all(reasons):  # which are the algorithm's then, and not the tasks'
        raise ConfigError(reasons[0])
    return exams


def _prepare(
    task: SanityTask,
    bar: Bar,
    algo: Mapping[str, Any],
    env_section: Mapping[str, Any],
    vec_section: Mapping[str, Any],
    seeds: Sequence[int],
) -> Exam:
    section = {key: value for key, value in algo.items() if key != "name"}
    try:
        env: EnvSpec = build("env", {**env_section, "id": task.id})
        vec: Vec = build("vec", vec_section)
        parts = {"env": env, "vec": vec, "pool": SerialPool(), "seed": seeds[0], "folder": None}
        if "member" in section:
            section["member"] = prepare_member(section["member"], **parts)
        algorithm = prepare("algo", section, **parts)
    except ConfigError as error:
        return Exam(task, bar, (), str(error))
    files = isinstance(algorithm.target, KeepsFiles)
    trials = (SanityTrial(algorithm, env, vec, seed, task.steps, task.episodes, files, task.drawn) for seed in seeds)
    return Exam(task, bar, tuple(trials), "")


def judge(exams: Iterable[Exam], pool: Pool) -> Iterator[SanityVerdict]:
    """Run all trials and yield the verdicts in task order, each as soon as it is known."""
    exams = list(exams)
    trials = [(k, trial) for k, exam in enumerate(exams) for trial in exam.trials]
    ends: list[list[Done]] = [[] for _ in exams]
    reported = 0
    for done in pool.imap_unordered(train_and_evaluate, [trial for _, trial in trials]):
        ends[trials[done.index][0]].append(done)
        while reported < len(exams) and len(ends[reported]) == len(exams[reported].trials):
            yield _verdict(exams[reported], sorted(ends[reported], key=lambda end: end.index))
            reported += 1
    for exam in exams[reported:]:
        yield _verdict(exam, [])


def _verdict(exam: Exam, ends: Sequence[Done]) -> SanityVerdict:
    if exam.bar is None or not ends:
        return SanityVerdict(exam.task, exam.bar, (), "skip", exam.reason)
    scores = tuple(float("nan") if end.error is not None else exam.task.score(end.value.each) for end in ends)
    errors = [f"{type(end.error).__name__}: {split_details(end.error)[0]}" for end in ends if end.error is not None]
    level: Literal["ok", "FAIL"] = "ok" if all(map(exam.bar.passes, scores)) else "FAIL"
    return SanityVerdict(exam.task, exam.bar, scores, level, errors[0] if errors else "")


def print_verdicts(verdicts: Iterable[SanityVerdict], seeds: int) -> int:
    """Print a line for each task as its verdict comes, and what to suspect first; returns 1 where one failed."""
    scores = max(7 * seeds, len("scores"))
    print(f"{'':4} {'task':15} {'scores':{scores}} {'chance':>7} {'without':>7} {'best':>7}  passes", flush=True)
    failed: list[SanityTask] = []
    passed = 0
    for verdict in verdicts:
        task = verdict.task
        if verdict.level == "skip":
            print(f"skip {task.name:15} {verdict.remark}", flush=True)
            continue
        got = " ".join(f"{score:6.3f}" for score in verdict.scores)
        values = " ".join(f"{value:7.3f}" for value in (task.chance, task.blind, task.best))
        why = "" if verdict.level == "ok" else f"  suspect {task.suspect}"
        why += f" ({verdict.remark})" if verdict.remark else ""
        print(f"{verdict.level:4} {task.name:15} {got:{scores}} {values}  {verdict.bar!s:12}{why}".rstrip(), flush=True)
        passed += verdict.level == "ok"
        failed += [task] if verdict.level == "FAIL" else []
    print(f"{passed} of {passed + len(failed)} tasks passed")
    if failed:
        print(f"suspect first what {failed[0].name} shows: {failed[0].suspect}")
    return int(bool(failed))
