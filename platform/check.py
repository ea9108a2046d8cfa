"""Check that an environment or an algorithm gives reproducible results.

python -m paddock.check env=bipedal
python -m paddock.check algo=es
"""

import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from paddock.algos.protocol import TakesFamily
from paddock.envs.errors import PaddockError, require, resolve
from paddock.envs.process import describe_exit, start_python
from paddock.envs.spec import EnvSpec

from .config.build import build
from .config.command import Readers, parse_overrides, read_count, run_command
from .config.compose import compose_sections, composed
from .config.experiment import read_plain
from .config.niche import resolve_niche
from .health.algo_checks import Findings, check_algo, first_difference
from .health.env_checks import check_env
from .health.installed import Finding, format_error, last_line, print_findings
from .launch import prepare
from .rerun import compare
from .runs.checkpoint import Checkpoints
from .session import run_session

STEPS: Readers = {"steps": (read_count, "an integer, at least 1")}
ITERATIONS: Readers = {"iterations": (int, "an integer, at least 3")}
SECTIONS = ("algo", "env", "vec", "seed", "hydra")  # sections that may be overridden
MIN_ITERATIONS = 3  # before, at and after a checkpoint

# Small settings of Paddock's own algorithms, with which a few iterations run all of their code.
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
    """Check the algorithm of a run; yield the name and finding of each check."""
    words = [*overrides, "compute=serial", "track=none", f"budget.iterations={iterations}", "checkpoint.every_s=0"]
    with composed(words) as composition:
        config = read_plain(composition)
    compute = compose_sections(["compute"], ["compute=local", "compute.workers=2"])["compute"]
    sound = True
    for name, finding in check_algo(config, compute, iterations):
        yield name, finding
        sound &= finding.level != "FAIL" or name not in ("plan", "metrics", "repeated")
    if not sound:
        return
    with tempfile.TemporaryDirectory() as folder:
        whole, killed = Path(folder, "whole"), Path(folder, "killed")
        try:
            yield "killed", _check_killed(words, iterations, whole, killed)
        except PaddockError as error:
            yield "run", Finding("FAIL", format_error(error), "fix this error")


def _check_killed(words: list[str], iterations: int, whole: Path, killed: Path) -> Finding:
    """Check that a run killed during an iteration and resumed ends with the same bytes as an uninterrupted one."""
    _play([*words, f"run.dir={whole}"])
    after = iterations // 2
    code = "import sys; from paddock.check import run_until_killed; run_until_killed(int(sys.argv[1]), sys.argv[2:])"
    child = start_python(code, str(after), *words, f"run.dir={killed}", stderr=subprocess.PIPE)
    _, errors = child.communicate()
    if child.returncode != -signal.SIGKILL:
        ended = f"the run that should have been killed {describe_exit(child.returncode)}"
        return Finding("FAIL", f"{ended}: {last_line(errors.decode(errors='replace'))}", "fix this error")
    _play([*words, f"run.dir={killed}"])
    if found := compare(whole, killed, iterations):
        where = found.journal if found.iteration is None else f"iteration {found.iteration}"
        return Finding("FAIL", f"killed after iteration {after} and resumed: {where}: {found.what}", "see `state`")
    one, other = (Checkpoints(path / "checkpoints", 1).load() for path in (whole, killed))
    assert one is not None and other is not None
    if leaf := first_difference(one["algorithm"], other["algorithm"]):
        return Finding("FAIL", f"killed after iteration {after} and resumed: the last state differs at {leaf}")
    return Finding("ok", f"a run killed after iteration {after} and resumed ends with the same bytes")


def _play(words: Sequence[str]) -> None:
    outcome, _ = run_session(prepare(words), progress=False)
    if outcome.signal is not None:
        raise KeyboardInterrupt


def run_until_killed(iteration: int, words: Sequence[str]) -> None:
    """Run an experiment in this process, and kill it during the iteration after this one."""
    experiment = prepare(words)
    plan = experiment.algorithm.plan

    def plan_then_die() -> Generator[Mapping[str, float], None, None]:
        with closing(plan()) as rows:
            for row in rows:
                if row["iteration"] > iteration:
                    os.kill(os.getpid(), signal.SIGKILL)
                yield row

    experiment.algorithm.plan = plan_then_die
    run_session(experiment, progress=False)


if __name__ == "__main__":
    sys.exit(main())
