"""Check that an environment or an algorithm gives reproducible results.

python -m paddock.check env=bipedal
python -m paddock.check algo=es
"""

import logging
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from paddock.algos.protocol import TakesFamily
from paddock.envs.errors import require, resolve
from paddock.envs.spec import EnvSpec

from .config.build import build
from .config.command import Readers, parse_overrides, read_count, run_command
from .config.compose import compose_sections, composed
from .config.experiment import read_plain
from .config.niche import resolve_niche
from .health.algo_checks import Findings, check_algo
from .health.env_checks import check_env
from .health.installed import print_findings

STEPS: Readers = {"steps": (read_count, "an integer, at least 1")}
ITERATIONS: Readers = {"iterations": (int, "an integer, at least 3")}
SECTIONS = ("algo", "env", "vec", "seed", "hydra")  # sections that may be overridden
MIN_ITERATIONS = 3  # to resume from the second with another one before it

# Small settings of Paddock's algorithms, with which a few iterations run all of their code.
SMALL: dict[str, Any] = {
    **{
        "population": 8,
        "pairs_per_task": 1,
        "episode_cap": 100,
        "hidden_sizes": [8],
        "num_steps": 16,
        "minibatch_size": 32,
    },
    **{"epochs": 2, "members": 3, "interval": 1, "eval_every_iterations": 2, "eval_episodes": 2, "eval_max_steps": 200},
    **{"transfer_every": 2, "reproduce_every": 2, "reproduce_score": 0, "max_niches": 2, "max_children": 2},
    **{"criterion_low": 0, "criterion_high": 1000, "sequence_length": 16},
}


def main() -> int:
    """Run the command `paddock.check`; return 1 if a check fails."""
    return run_command("check", _command)


def _command(arguments: Sequence[str]) -> int:
    if not any(argument.startswith("algo=") for argument in arguments):
        return print_findings(check_env(*read(arguments)))
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)  # else every run of the checks would repeat the warnings
    try:
        return print_findings(check_run(*read_run(arguments)))
    finally:
        logging.disable(before)


def read(arguments: Sequence[str]) -> tuple[EnvSpec, int]:
    """Return the environment that the arguments name, and the number of steps; raise ConfigError for bad input."""
    overrides, options = parse_overrides("check", arguments, STEPS, ("algo", "env", "hydra"))
    given = any(override.startswith("env=") for override in overrides)
    require(given, "no environment or algorithm given; add env=NAME or algo=NAME")
    recipe: Any = build("env", resolve_niche(compose_sections(["env"], overrides)["env"]))
    what = f"env: {type(recipe).__name__} is a family of environments"
    require(isinstance(recipe, EnvSpec), f"{what}; choose a single one, such as env=terrain")
    return recipe, options.get("steps", 1000)


def read_run(arguments: Sequence[str]) -> tuple[list[str], int]:
    """Return overrides of a small run and its number of iterations; raise ConfigError for bad input."""
    overrides, options = parse_overrides("check", arguments, ITERATIONS, SECTIONS)
    iterations = options.get("iterations", 4)
    require(iterations >= MIN_ITERATIONS, f"iterations={iterations} must be an integer, at least {MIN_ITERATIONS}")
    require("vec=auto" not in overrides, "vec=auto depends on timing; use vec=serial or another")
    named = {override.partition("=")[0].lstrip("+~") for override in overrides}
    algo = compose_sections(["algo"], overrides)["algo"]
    made = resolve(algo["_target_"], "algo._target_")
    small = _shrink("algo", algo, named)
    if "env" not in named:
        small += ["env=poles"] if isinstance(made, TakesFamily) else ["env=cartpole", "env.max_episode_steps=100"]
    small += [word for word in ("vec=serial", "vec.num_envs=4") if word.partition("=")[0] not in named]
    return [*overrides, *small], iterations


def _shrink(path: str, section: Mapping[str, Any], named: set[str]) -> list[str]:
    """Return small settings of one of Paddock's algorithms and its members, except those in `named`."""
    if not str(section.get("_target_")).startswith("paddock.algos."):
        return []
    keys = [key for key in SMALL if key in section and f"{path}.{key}" not in named]
    words = [f"{path}.{key}={str(SMALL[key]).replace(' ', '')}" for key in keys]
    member = section.get("member")
    return words + (_shrink(f"{path}.member", member, named) if isinstance(member, Mapping) else [])


def check_run(overrides: Sequence[str], iterations: int) -> Findings:
    """Check the algorithm of a run; return the name and finding of each check."""
    with composed([*overrides, "compute=serial", "track=none", f"budget.iterations={iterations}"]) as composition:
        config = read_plain(composition)
    compute = compose_sections(["compute"], ["compute=local", "compute.workers=2"])["compute"]
    return check_algo(config, compute, iterations)


if __name__ == "__main__":
    sys.exit(main())
