"""Sanity suite of algorithms: small tasks with known optima that localise bugs.

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
    "tasks": (read_names, "comma-separated names of tasks"),
    "seeds": (read_count, "an integer, at least 1"),
}

HELP = """\
Train an algorithm on small tasks with known optima, in a few minutes; prints `ok` or `FAIL` and likely causes for each
task. A task passes if every seed does.

    python -m paddock.sanity algo=NAME [key=value ...]

    algo=NAME         an option of conf/algo with a file in conf/algo/sanity
    algo.KEY=VALUE    a key of it, set for all tasks, such as algo.lstm=true
    tasks=[A,B]       run only these tasks; includes the optional roles and relay
    seeds=3           number of seeds per task: 1, 2, ...
    vec=NAME          an option of conf/vec; default: serial
    compute=NAME      an option of conf/compute, which runs tasks in parallel; default: local

The columns `chance`, `without` and `best` are the scores of random actions, of the best policy without the ability under
test, and of the optimal policy. Exit codes: 0 all passed, 1 a task FAILs, 2 bad input.
"""


def main() -> int:
    """Run the command `paddock.sanity`; return 1 if a task fails."""
    return run_command(HELP, _command)


def _command(arguments: Sequence[str]) -> int:
    overrides, options = parse_overrides("sanity", arguments, READERS, SECTIONS)
    named = any(override.startswith("algo=") for override in overrides)
    require(named, "no algorithm given; add algo=NAME, such as algo=ppo")
    learning = [word for word in overrides if not word.startswith("compute")]
    seeds = options.get("seeds", 3)
    prepared = prepare_tasks(learning, options.get("tasks", ()), range(1, seeds + 1))
    compute = [word for word in overrides if word.startswith(("compute", "hydra", "--config-dir"))]
    pool = LazyPool(build("compute", compose_sections(["compute"], compute)["compute"]))
    packages = {trial.algorithm.target.__module__.partition(".")[0] for task in prepared for trial in task.trials}
    with closing(pool):
        pool.open({"paddock", *packages})
        return print_results(run_tasks(prepared, pool), seeds)


if __name__ == "__main__":
    sys.exit(main())
