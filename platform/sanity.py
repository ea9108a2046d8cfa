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


def main() -> int:
    """Run the command `paddock.sanity`; return 1 if a task fails."""
    return run_command("sanity", _command)


def _command(arguments: Sequence[str]) -> int:
    overrides, options = parse_overrides("sanity", arguments, READERS, SECTIONS)
    named = any(override.startswith("algo=") for override in overrides)
    require(named, "no algorithm given; add algo=NAME, such as algo=ppo")
    for word in overrides:
        if word.startswith("algo/"):
            print(f"{word}: its own defaults apply, not the suite's settings for the default option")
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
