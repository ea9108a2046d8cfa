"""The text of `--help`: the groups, their options in a line each, and the commands worth knowing."""

import argparse
import importlib.metadata
import importlib.util
from collections.abc import Iterator
from pathlib import Path

from paddock.envs.errors import require

from .. import CONF
from .plugins import ENTRY_POINTS

GROUPS = ("algo", "env", "vec", "compute", "track", "experiment", "sweep")  # in this order; those of packages follow

INTRODUCTION = """\
Paddock: experiments in reinforcement learning and population-based search, chosen by configuration.

    python -m platform algo=es env=bipedal compute=local

Choose one option of each group as group=option; set any key as path.key=value.
"""

COMMANDS = """\
Keys of every run
    seed=1                                   the run's numbers, on every backend
    budget.iterations=100 budget.steps=1e6 budget.minutes=30 budget.return=300
                                             ends at whichever comes first
    run.dir=FOLDER                           where it is kept; the same command goes on with the run that is there
    resume=last                              go on with the newest run
    init_from=RUN                            begin with the policy of another run, of any algorithm
    dry_run=true                             print what would be assembled

Commands
    python -m platform experiment=es_cartpole            a whole recipe
    python -m platform ... --multirun seed=1,2,3         one run for each value
    python -m platform ... -m hydra/launcher=local       several at once on this machine; dask: on Dask's workers
    python -m platform ... -m hydra/launcher=slurm       each run of a sweep as a Slurm job, submitted and left
    python -m platform ... -m sweep=ppo                  Optuna chooses the values, and bad runs stop early
    python -m platform ... --cfg job                     the composed configuration, every key with its value
    python -m platform ... --info                        where each value comes from
    python -m platform --hydra-help                      the other flags, such as --config-dir for your own groups
    python -m paddock.check env=NAME                     whether an environment's episodes depend on their seed alone
    python -m paddock.sanity algo=NAME                   whether an algorithm learns what it must, and what is broken
    python -m paddock.doctor [compute=NAME ...]          what is wrong with an installation or a cluster
    python -m paddock.status DIR                         how far runs are, who has failed, and who waits in the queue
    python -m paddock.evaluate RUN video=FILE.mp4        play the policy on fresh seeds
    python -m paddock.export RUN FILE.onnx               write the policy as a file that other programs run
    python -m paddock.rerun RUN                          repeat a run from its folder, and compare
    python -m paddock.report DIR...                      one page on runs and sweeps: curves, intervals, importances
    python -m paddock.upload RUN... track=wandb          make a mirror from a run's folder
    python -m paddock.plot DIR... out=FILE.png           draw learning curves; of algo=poet and algo=pbt, lineages too
    python -m paddock ...                                the same as `python -m platform`, in any folder
    eval "$(paddock -sc install=bash)"                   complete `paddock` with the Tab key (bash, zsh or fish)

Every key is explained beside its value, in the YAML of its group:"""


def print_help(arguments: argparse.Namespace) -> None:
    """Print the help page, with the options of every folder that these arguments would search."""
    folders = list(config_folders(arguments))
    print(INTRODUCTION)
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
    print(COMMANDS)
    for folder in folders:
        print(f"    {folder}")


def config_folders(arguments: argparse.Namespace) -> Iterator[Path]:
    """Yield the folders of configuration groups: ours, those named on the command line, those of installed packages."""
    named = [arguments.config_dir] if arguments.config_dir else []
    named += searched(arguments)
    yield CONF
    for path in [*named, *(f"pkg://{entry.value}" for entry in importlib.metadata.entry_points(group=ENTRY_POINTS))]:
        yield from folders_of(path)


def searched(arguments: argparse.Namespace) -> list[str]:
    """Return what hydra.searchpath names on the command line, as it is written."""
    pairs = (override.partition("=") for override in arguments.overrides)
    return [
        source for key, _, value in pairs if key.lstrip("+") == "hydra.searchpath" for source in split_sources(value)
    ]


def split_sources(value: str) -> list[str]:
    """Return the parts of a search path, as the command line has it."""
    parts = (part.strip(" '\"") for part in value.strip("[]").split(","))
    return [part for part in parts if part]


def check_sources(arguments: argparse.Namespace) -> None:
    """Raise ConfigError for a folder that does not exist; Hydra would pass over it."""
    given = arguments.config_path
    require(
        given is None or Path(given).is_dir(), f"--config-path={given} is not a folder; --config-dir=FOLDER adds one"
    )
    for source in searched(arguments):
        if "${" not in source and not source.startswith("structured://"):
            found = any(folder.is_dir() for folder in folders_of(source))
            allowed = "file:///a/folder and pkg://my_package.conf are allowed"
            require(found, f"hydra.searchpath={source} is not a folder or a package here; {allowed}")


def folders_of(path: str) -> list[Path]:
    """Return the folders that a part of the search path stands for; those of a package as far as there is one."""
    if not path.startswith("pkg://"):
        return [Path(path.removeprefix("file://"))]
    try:
        spec = importlib.util.find_spec(path.removeprefix("pkg://").replace("/", "."))
    except ModuleNotFoundError:
        return []
    return [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []


def summary(option: Path) -> str:
    """Return the first comment of an option's YAML, which says what it chooses."""
    comments = (line[1:].strip() for line in option.read_text().splitlines() if line.startswith("#"))
    return next((comment for comment in comments if not comment.startswith("@package")), "")
