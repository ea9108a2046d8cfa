"""Test the sanity of an algorithm: it learns small tasks of known values, which tell what is broken in it.

python -m paddock.sanity algo=ppo
"""

import sys
from collections.abc import Sequence
from contextlib import closing

from paddock.algos.pool.lazy import LazyPool
from paddock.envs.errors import require

from .config.build import build
from .config.command import Readers, parse_overrides, read_count, read_names, run_command
from .config.compose import compose_sections
from .health.sanity import prepare_tasks, print_results, run_tasks

SECTIONS = ("algo", "vec", "compute", "hydra")
READERS: Readers = {
    "tasks": (read_names, "names of tasks, with commas between"),
    "seeds": (read_count, "a whole number, at least 1"),
}

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


def main() -> int:
    """The command `paddock.sanity`; see `run_command` for the exit codes, and 1 where a task failed."""
    return run_command(HELP, _command)


def _command(arguments: Sequence[str]) -> int:
    overrides, options = parse_overrides("sanity", arguments, READERS, SECTIONS)
    named = any(override.startswith("algo=") for override in overrides)
    require(named, "no algorithm is named; give algo=NAME, such as algo=ppo")
    learning = [word for word in overrides if not word.startswith("compute")]
    seeds = options.get("seeds", 3)
    prepared = prepare_tasks(learning, options.get("tasks", ()), range(1, seeds + 1))
    compute = [word for word in overrides if word.startswith(("compute", "hydra"))]
    pool = LazyPool(build("compute", compose_sections(["compute"], compute)["compute"]))
    packages = {trial.algorithm.target.__module__.partition(".")[0] for task in prepared for trial in task.trials}
    with closing(pool):
        pool.open({"paddock", *packages})
        return print_results(run_tasks(prepared, pool), seeds)


if __name__ == "__main__":
    sys.exit(main())
