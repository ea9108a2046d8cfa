"""Test the sanity of an algorithm: it learns small tasks of known values, which tell what is broken in it.

python -m paddock.sanity algo=ppo
"""

import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from paddock.algos.pool.late import LatePool
from paddock.envs.errors import ConfigError, nearest, require

from .config.build import build
from .config.command import run_command
from .config.compose import compose_sections
from .health.sanity import judge, prepare_exams, print_verdicts

GROUPS = ("algo", "vec", "compute")
KEYS = (*GROUPS, "tasks", "seeds", "hydra.searchpath")

HELP = """\
Test the sanity of an algorithm: it learns small tasks of known values, some minutes in all, a line for each, `ok` or
`FAIL` with what to suspect. A score passes if that of every seed does.

    python -m paddock.sanity algo=NAME [key=value ...]

    algo=NAME         an option of conf/algo that has one in conf/algo/sanity, too
    algo.KEY=VALUE    a key of it, for all tasks, such as algo.lstm=true
    tasks=[A,B]       tasks of these names alone, roles and relay too
    seeds=3           learn each with seeds 1, 2, ... to this one
    vec=NAME          an option of conf/vec: serial if nothing is said
    compute=NAME      an option of conf/compute, where tasks are learned side by side: local if nothing is said

The columns `chance`, `without` and `best` are the scores of random actions, of the best policy without what the task is
about, and of the best of all. Exit codes: 0 all passed, 1 a task FAILs, 2 bad input.
"""


@dataclass(frozen=True)
class Request:
    """What the arguments ask for."""

    overrides: tuple[str, ...]  # of algo and vec
    compute: tuple[str, ...]  # overrides of compute
    tasks: tuple[str, ...]  # names; none: the suite
    seeds: int


def main() -> int:
    """The command `paddock.sanity`; see `run_command` for the exit codes, and 1 where a task failed."""
    return run_command(HELP, lambda arguments: examine(read(arguments)))


def examine(request: Request) -> int:
    """Have an algorithm learn the tasks, and print how it went; returns 1 where one failed, else 0."""
    seeds = range(1, request.seeds + 1)
    exams = prepare_exams(request.overrides, request.tasks, seeds)
    pool = LatePool(build("compute", compose_sections(["compute"], request.compute)["compute"]))
    packages = {lesson.algorithm.target.__module__.partition(".")[0] for exam in exams for lesson in exam.lessons}
    with closing(pool):
        pool.open({"paddock", *packages})
        return print_verdicts(judge(exams, pool), request.seeds)


def read(arguments: Sequence[str]) -> Request:
    """Return what the arguments ask for.

    Raises:
        ConfigError: an argument is unknown or out of range, or names no algorithm.
    """
    overrides, compute, tasks, seeds = list[str](), list[str](), tuple[str, ...](), 3
    for argument in arguments:
        key, equals, value = argument.partition("=")
        require(bool(equals) or key not in KEYS, f"{argument} has no value; write {argument}=... (see --help)")
        if not equals or not (key in KEYS or key.partition(".")[0] in GROUPS):
            raise ConfigError(f"{argument} is not an argument of sanity; {nearest(key, KEYS)} (see --help)")
        if key == "tasks":
            tasks = tuple(name.strip() for name in value.strip("[]").split(",") if name.strip())
            require(bool(tasks), f"{argument} names no task; leave it out for all of them")
        elif key == "seeds":
            require(value.isdecimal() and int(value) >= 1, f"{argument} must be a whole number, at least 1")
            seeds = int(value)
        elif key.partition(".")[0] == "compute":
            compute.append(argument)
        else:
            overrides.append(argument)
    named = any(override.startswith("algo=") for override in overrides)
    require(named, "no algorithm is named; give algo=NAME, such as algo=ppo")
    return Request(tuple(overrides), tuple(compute), tasks, seeds)


if __name__ == "__main__":
    sys.exit(main())
