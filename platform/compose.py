"""What Paddock adds to Hydra's composition: groups of installed packages, sweeps checked whole, errors in one line."""

import argparse
import contextlib
import copy
import importlib.metadata
import re
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import yaml
from hydra import compose, initialize_config_dir, version
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper, BasicSweeperConf
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path, get_args_parser
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import ConfigSearchPath, SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from envs.errors import ConfigError, nearest, require

from . import CONF
from .guide import ENTRY_POINTS

CHECKED_JOBS = 256  # of a larger sweep, enough jobs are checked to meet every single value


class InstalledGroups(SearchPathPlugin):
    """Adds the config folders that installed packages announce by entry point."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Append each announced folder, as `pkg://package.folder`."""
        for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
            search_path.append(provider=entry.name, path=f"pkg://{entry.value}")


def register_search_path() -> None:
    """Make the groups of installed packages known to Hydra in this process."""
    Plugins.instance().register(InstalledGroups)


def hydra_parser() -> argparse.ArgumentParser:
    """Hydra's parser of the command line, which raises ConfigError for a flag that is unknown or lacks its value."""

    def refuse(message: str) -> NoReturn:
        raise ConfigError(f"{message}; see --help, and --hydra-help for Hydra's own flags")

    parser = get_args_parser()
    parser.error = refuse  # type: ignore[method-assign]
    return parser


def compose_alone(overrides: list[str]) -> DictConfig:
    """Compose a configuration outside a run, as notebooks and tests do."""
    register_search_path()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("config", overrides)


def check_sweep(arguments: argparse.Namespace, check: Callable[[DictConfig], Path]) -> None:
    """Compose and check every job of a multirun, before the first one runs and before anything is written.

    Args:
        check: raises what is wrong with one job; returns the folder that it would use.

    Raises:
        ConfigError: two jobs would use one folder.
    """
    with _loading(arguments) as loader:
        overrides = [*arguments.overrides, "hydra.mode=MULTIRUN"]
        master = loader.load_configuration(arguments.config_name or "config", overrides, RunMode.MULTIRUN)
        sweeper = master.hydra.sweeper
        if sweeper._target_ != BasicSweeperConf._target_:
            return  # it chooses values as it goes
        swept = [f"{key}={values}" for key, values in (sweeper.params or {}).items()]
        parsed = OverridesParser.create(loader).parse_overrides([*swept, *master.hydra.overrides.task])
        [jobs] = BasicSweeper.split_arguments(parsed, None)
        met: set[str] = set()
        users: dict[Path, int] = {}
        for number, job in enumerate(jobs):
            if len(jobs) > CHECKED_JOBS and met.issuperset(job):
                continue
            met.update(job)
            folder = check(job_config(load_job(loader, master, job, number)))
            other = users.setdefault(folder, number)
            remedy = "leave run.dir and resume out of a sweep"
            require(other == number, f"jobs {other} and {number} of the sweep would share {folder}; {remedy}")


def load_job(loader: ConfigLoader, sweep: DictConfig, overrides: Sequence[str], number: int) -> DictConfig:
    """The configuration of one job of a sweep, Hydra's part included."""
    config = loader.load_sweep_config(sweep, list(overrides))
    with open_dict(config):
        config.hydra.job.num, config.hydra.job.id = number, str(number)
        # The sweep's folder is told once, for all jobs: its name may be the time.
        config.hydra.runtime.output_dir = f"{sweep.hydra.sweep.dir}/{config.hydra.sweep.subdir}"
    return config


def composition_error(error: BaseException, arguments: argparse.Namespace) -> ConfigError | None:
    """A composition error of Hydra or OmegaConf as one line with the nearest valid name; None for any other error."""
    if isinstance(error, MissingConfigException) and error.options is not None:
        group, _, option = str(error.missing_cfg_file).rpartition("/")
        return ConfigError(f"{group}={option} is not an option of {group}; {nearest(option, error.options)}")
    if isinstance(error, OverrideParseException):
        return ConfigError(f"cannot read the argument '{error.override}': {_one_line(error)}; write key=value")
    if isinstance(error, yaml.YAMLError | UnicodeDecodeError):
        mark = getattr(error, "problem_mark", None)
        where = f" {mark.name}, line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        return ConfigError(f"cannot read the YAML{where}: {getattr(error, 'problem', None) or _one_line(error)}")
    if not isinstance(error, HydraException | OmegaConfBaseException):
        # Hydra answers some mistakes, such as flags that do not go together, with exceptions of Python's own.
        return ConfigError(_one_line(error)) if _raised_in(error).startswith(("hydra.", "omegaconf.")) else None
    text = f"{error} {error.__cause__ or ''}"
    unknown = re.search(r"Could not (?:override|append to config|delete from config)[^']*'([^'@=]+)", text)
    if unknown and "already at" in text:
        return ConfigError(f"{unknown.group(1)} has a value already; change it without the +")
    if unknown:
        key = unknown.group(1).lstrip("+~")
        what = "group" if "No match in the defaults list" in text else "key"
        known = _known_keys(key, arguments)
        inner = re.search(r"Key '([^']+)' is not in struct", text)
        if key in known and inner:
            added = f"{key}.{inner.group(1)}"
            return ConfigError(f"{added} is not there yet; add it with a +: +{added}=...")
        hint = nearest(key, known) if known else f"+{key}=... would add it"
        return ConfigError(f"{key} is not a {what} of the configuration; {hint}")
    return ConfigError(_one_line(error))


@contextlib.contextmanager
def _loading(arguments: argparse.Namespace) -> Iterator[ConfigLoader]:
    """Hydra's loader, on the search path that the command line asks for."""
    version.setbase("1.3")
    register_search_path()
    path = create_config_search_path(arguments.config_path or str(CONF))
    if arguments.config_dir is not None:
        folder = f"file://{Path(arguments.config_dir).absolute()}"
        path.prepend(provider="command-line", path=folder, anchor=SearchPathQuery(provider="schema"))
    GlobalHydra.instance().clear()
    try:
        yield Hydra.create_main_hydra2("paddock", path).config_loader
    finally:
        GlobalHydra.instance().clear()


def job_config(config: DictConfig) -> DictConfig:
    """What a job is given, with Hydra's own part where `HydraConfig` has it."""
    HydraConfig.instance().set_config(config)
    job = copy.deepcopy(config)
    with open_dict(job):
        del job["hydra"]
    return job


def _known_keys(key: str, arguments: argparse.Namespace) -> list[str]:
    """Keys that were possible where `key` stands, or the same name elsewhere, for the groups that were chosen."""
    choices = [choice for choice in arguments.overrides if re.match(r"[\w/]+=", choice)]
    mode = RunMode.MULTIRUN if arguments.multirun else RunMode.RUN
    with _loading(arguments) as loader:
        for overrides in ([choice for choice in choices if not choice.startswith(f"{key}=")], []):
            with contextlib.suppress(HydraException, OmegaConfBaseException):
                composed = loader.load_configuration("config", overrides, mode)
                break
    keys = ["experiment", *_paths(OmegaConf.to_container(composed), "")]
    parent, _, name = key.rpartition(".")
    if parent in keys or not parent:
        return [known for known in keys if known.rpartition(".")[0] == parent or known.endswith(f".{key}")]
    return [known for known in keys if known.rpartition(".")[2] == name or known.count(".") == key.count(".")]


def _paths(node: Any, path: str) -> list[str]:
    if not isinstance(node, dict):
        return []
    return [name for key, value in node.items() for name in (f"{path}{key}", *_paths(value, f"{path}{key}."))]


def _raised_in(error: BaseException) -> str:
    return [frame.f_globals["__name__"] for frame, _ in traceback.walk_tb(error.__traceback__)][-1]


def _one_line(error: BaseException) -> str:
    """The first paragraph of a message, or of its cause's where it has none; search paths are left out."""
    text = str(error) if str(error).strip() else str(error.__cause__ or type(error).__name__)
    return " ".join(text.strip().partition("\n\n")[0].partition("full_key:")[0].split())
