"""Text of `--help`: configuration groups with their options, and the main commands."""

import argparse
import importlib.metadata
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

from paddock.envs.errors import require

from .. import CONF
from .command import main_command
from .plugins import ENTRY_POINTS

GROUPS = ("algo", "env", "vec", "compute", "track", "experiment", "sweep")  # groups of installed packages follow

INTRODUCTION = """\
Paddock: reinforcement-learning and evolutionary-search experiments, configured with Hydra.

    python -m platform algo=es env=bipedal compute=local

Choose one option of each group as group=option; set any key as path.key=value.
"""

COMMANDS = """\
Keys of every run
    seed=1                                   random seed; results do not depend on the backend
    budget.iterations=100 budget.steps=1e6 budget.minutes=30 budget.return=300
                                             end the run at the first limit reached
    run.dir=FOLDER                           folder of the run; resumes the run if there is one
    resume=last                              resume the newest run
    init_from=RUN                            warm-start from the policy of another run
    dry_run=true                             print a summary without running

Commands
    python -m platform experiment=es_cartpole            run a complete experiment
    python -m platform ... --multirun seed=1,2,3         run once for each value
    python -m platform ... -m hydra/launcher=local       run in parallel here; dask: on Dask workers
    python -m platform ... -m hydra/launcher=slurm       submit each run as a Slurm job
    python -m platform ... -m sweep=ppo                  search with Optuna, which stops bad runs early
    python -m platform ... --cfg job                     print the composed configuration
    python -m platform ... --info                        print where each value comes from
    python -m platform --hydra-help                      print Hydra's flags, such as --config-dir
    python -m paddock.check env=NAME                     check that episodes depend on their seed alone
    python -m paddock.sanity algo=NAME                   test an algorithm on small tasks with known optima
    python -m paddock.doctor [compute=NAME ...]          diagnose an installation or a cluster
    python -m paddock.status DIR                         show the progress and state of runs
    python -m paddock.evaluate RUN video=FILE.mp4        evaluate the policy on fresh episodes
    python -m paddock.export RUN FILE.onnx               export the policy to ONNX
    python -m paddock.rerun RUN                          repeat a run and compare the results
    python -m paddock.report DIR...                      write an HTML report on runs and sweeps
    python -m paddock.upload RUN... track=wandb          upload finished runs to a tracker
    python -m paddock.plot DIR... out=FILE.png           plot learning curves and lineages
    python -m paddock ...                                same as `python -m platform`, from any folder
    eval "$(paddock -sc install=bash)"                   enable Tab completion (bash, zsh or fish)

Every key is documented in the YAML file of its group:"""


def print_help(arguments: argparse.Namespace) -> None:
    """Print the help page, with the options of every config folder on the search path."""
    folders = list(config_folders(arguments))
    print(_as_started(INTRODUCTION))
    others = {option.parent.name for folder in folders for option in folder.glob("*/*.yaml")} - {*GROUPS, "hydra"}
    for group in (*GROUPS, *sorted(others)):
        options: dict[str, Path] = {}
        for folder in folders:
            for option in sorted((folder / group).glob("*.yaml")):
                options.setdefault(option.stem, option)
        print(f"{group}=")
        width = max(map(len, options), default=0)
        for name, option in sorted(options.items()):
            print(f"    {name:{width}}  {summary(option)}")
        print()
    print(_as_started(COMMANDS))
    for folder in folders:
        print(f"    {folder}")


def _as_started(text: str) -> str:
    """Replace `python -m platform` with the form in which this process was started; columns stay aligned."""
    pattern = re.compile(r"python -m platform( .*?)?(?=  |$)", re.M)
    return pattern.sub(lambda match: (main_command() + (match[1] or "")).ljust(len(match[0])), text)


def config_folders(arguments: argparse.Namespace) -> Iterator[Path]:
    """Yield the config folders: Paddock's own, those named on the command line, those of installed packages."""
    named = [arguments.config_dir] if arguments.config_dir else []
    named += searched(arguments)
    yield CONF
    for path in [*named, *(f"pkg://{entry.value}" for entry in importlib.metadata.entry_points(group=ENTRY_POINTS))]:
        yield from folders_of(path)


def searched(arguments: argparse.Namespace) -> list[str]:
    """Return the entries of hydra.searchpath on the command line, as written."""
    pairs = (override.partition("=") for override in arguments.overrides)
    return [
        source for key, _, value in pairs if key.lstrip("+") == "hydra.searchpath" for source in split_sources(value)
    ]


def split_sources(value: str) -> list[str]:
    """Split a search path as written on the command line into its entries."""
    entries = (entry.strip(" '\"") for entry in value.strip("[]").split(","))
    return [entry for entry in entries if entry]


def check_sources(arguments: argparse.Namespace) -> None:
    """Raise ConfigError for a config folder that does not exist, which Hydra would ignore."""
    given = arguments.config_path
    require(
        given is None or Path(given).is_dir(), f"--config-path={given} is not a folder; --config-dir=FOLDER adds one"
    )
    for source in searched(arguments):
        if "${" not in source and not source.startswith("structured://"):
            found = any(folder.is_dir() for folder in folders_of(source))
            allowed = "use file:///a/folder or pkg://my_package.conf"
            require(found, f"hydra.searchpath={source} is not a folder or an installed package: {allowed}")


def folders_of(path: str) -> list[Path]:
    """Return the folders of a search-path entry; empty for a package that is not installed."""
    if not path.startswith("pkg://"):
        return [Path(path.removeprefix("file://"))]
    try:
        spec = importlib.util.find_spec(path.removeprefix("pkg://").replace("/", "."))
    except ModuleNotFoundError:
        return []
    return [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []


def summary(option: Path) -> str:
    """Return the first comment of an option's YAML file."""
    comments = (line[1:].strip() for line in option.read_text().splitlines() if line.startswith("#"))
    return next((comment for comment in comments if not comment.startswith("@package")), "")
