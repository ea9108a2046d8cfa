"""What Paddock adds to Hydra's composition: groups of installed packages, and sweeps checked whole."""

import argparse
import contextlib
import copy
import importlib.metadata
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, cast

from hydra import compose, initialize_config_dir, version
from hydra.conf import HydraConf
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import ConfigSearchPath, SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.errors import HydraException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.types import RunMode, TaskFunction
from hydra.version import VersionBase
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from paddock.envs.errors import ConfigError, require

from .. import CONF
from ..runs.identity import flatten
from .help import ENTRY_POINTS
from .hydra_private import (
    BASIC_LAUNCHER,
    BASIC_SWEEPER,
    make_launcher,
    make_loader,
    make_parser,
    make_search_path,
    split_grid,
)
from .vocabulary import suggest_flag

_COMPOSING = threading.RLock()  # Hydra has one configuration for all threads of a process
SWEEP_FILE = "sweep="  # how the argument begins of which processes of jobs are not told: they would sweep, too
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
        raise ConfigError(f"{suggest_flag(message)}; see --help, and --hydra-help for Hydra's own flags")

    parser = make_parser()
    parser.error = refuse  # type: ignore[method-assign]
    return parser


def compose_alone(overrides: list[str]) -> DictConfig:
    """Compose a configuration outside a run, as notebooks and tests do."""
    with apart():
        register_search_path()
        GlobalHydra.instance().clear()
        with initialize_config_dir(str(CONF), version_base="1.3"):
            return compose("config", overrides)


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """Leave Hydra as it was in this process, whose own program may use it, when the block ends."""
    with _COMPOSING:
        whole, job, version = GlobalHydra.instance(), HydraConfig.instance(), VersionBase.instance()
        before = whole.hydra, job.cfg, version.version_base
        try:
            yield
        finally:
            # Hydra itself may have put copies in their places.
            own: dict[Any, Any] = {GlobalHydra: whole, HydraConfig: job, VersionBase: version}
            Singleton._instances.update(own)
            whole.hydra, job.cfg, version.version_base = before


def check_sweep(
    arguments: argparse.Namespace,
    check: Callable[[DictConfig], Path],
    show: TaskFunction,
    claim: Callable[[DictConfig], None],
) -> bool:
    """Compose and check every job of a multirun, before the first one runs and before anything is written in a folder.

    Args:
        check: raises what is wrong with one job; returns the folder that it would use.
        show: prints what a job would be, in a dry run.
        claim: takes the folder of a grid, given its configuration, Hydra's part included, and notes there if it is
            another; not called in a dry run.

    Returns:
        Whether it was a dry run, and is over.

    Raises:
        ConfigError: two jobs would use one folder.
    """
    with loading(arguments) as loader:
        overrides = [*arguments.overrides, "hydra.mode=MULTIRUN"]
        master = loader.load_configuration(arguments.config_name or "config", overrides, RunMode.MULTIRUN)
        sweeper = master.hydra.sweeper
        if sweeper._target_ != BASIC_SWEEPER:
            return False  # it chooses values as it goes
        if master.dry_run is not True:
            claim(master)
        swept = [f"{key}={values}" for key, values in (sweeper.params or {}).items()]
        parsed = OverridesParser.create(loader).parse_overrides([*swept, *master.hydra.overrides.task])
        for item in parsed:
            remedy = "list some, as KEY=1,2, or have them chosen by hydra/sweeper=optuna"
            listed = item.is_discrete_sweep() or not item.is_sweep_override()
            if listed and item.is_sweep_override():
                listed = next(iter(item.sweep_iterator()), None) is not None  # range(3,3) lists none
            require(listed, f"{item.input_line} lists no values, of which a grid is made; {remedy}")
        in_processes = master.hydra.launcher._target_ != BASIC_LAUNCHER
        jobs = split_grid(parsed)
        met: set[str] = set()
        users: dict[Path, int] = {}
        for number, job in enumerate(jobs):
            if len(jobs) > CHECKED_JOBS and met.issuperset(job):
                continue
            if in_processes and not met.issuperset(item for item in job if item.startswith(SWEEP_FILE)):
                check_sweep_file(loader, master, job)
            met.update(job)
            config = load_job(loader, master, job, number)
            folder = check(job_config(config))
            what = "hydra.output_subdir and hydra/job_logging would have Hydra put files where each run is to be made"
            remedy = "leave them out, as a run's folder has config.yaml and log.txt"
            require(in_processes or not _puts_files(config, folder), f"{what}; {remedy}")
            other = users.setdefault(folder, number)
            remedy = "leave run.dir and resume out of a sweep"
            require(other == number, f"jobs {other} and {number} of the sweep would share {folder}; {remedy}")
        if master.dry_run is True:
            _rehearse(loader, master, jobs, show)
        return master.dry_run is True


def _puts_files(config: DictConfig, run: Path) -> bool:
    """Whether Hydra itself would put files in the folder of a run, given its configuration with Hydra's part."""
    logging = flatten(OmegaConf.to_container(config.hydra.job_logging, resolve=True))
    names = [value for key, value in logging.items() if key.endswith(".filename") and isinstance(value, str)]
    start = run if config.hydra.job.chdir else Path()
    logs = [Path(os.path.realpath(start / name)) for name in names]
    return config.hydra.output_subdir is not None or any(log.is_relative_to(os.path.realpath(run)) for log in logs)


def check_sweep_file(loader: ConfigLoader, sweep: DictConfig, job: Sequence[str]) -> None:
    """Raise ConfigError if the file of `sweep=` sets something that the process of a job, started without it, lacks."""
    files = [item for item in job if item.startswith(SWEEP_FILE)]
    if not files:
        return
    rest = [item for item in job if item not in files]
    try:
        alone = loader.load_configuration(sweep.hydra.job.config_name, rest, RunMode.RUN)
    except (HydraException, OmegaConfBaseException) as error:
        raise JobError(rest) from error
    configs = (load_job(loader, sweep, job, 0), alone)
    had, has = (flatten(OmegaConf.to_container(config, resolve=False)) for config in configs)
    keys = sorted(key for key in had.keys() | has.keys() if had.get(key) != has.get(key))
    lost = ", ".join(key for key in keys if not key.startswith("hydra."))
    remedy = "say it on the command line or in an experiment"
    require(not lost, f"{files[-1]} sets {lost}, which no process of the sweep would have; {remedy}")


def _rehearse(loader: ConfigLoader, sweep: DictConfig, jobs: Sequence[Sequence[str]], show: TaskFunction) -> None:
    """Show the jobs of a sweep. Hydra itself would make their folders."""
    if sweep.hydra.launcher._target_ != BASIC_LAUNCHER:
        launcher = make_launcher(Plugins.instance(), loader, show, sweep)
        launcher.launch([list(job) for job in jobs], 0)
        return
    for number, job in enumerate(jobs):
        show(job_config(load_job(loader, sweep, job, number)))


class JobError(Exception):
    """A job of a sweep cannot be composed, for the reason that is the cause.

    Attributes:
        overrides: the job's.
    """

    def __init__(self, overrides: Sequence[str]) -> None:
        super().__init__(" ".join(overrides))
        self.overrides = overrides


def load_job(loader: ConfigLoader, sweep: DictConfig, overrides: Sequence[str], number: int) -> DictConfig:
    """The configuration of one job of a sweep, Hydra's part included; JobError if there is none."""
    try:
        config = loader.load_sweep_config(sweep, list(overrides))
    except (HydraException, OmegaConfBaseException) as error:
        raise JobError([*hydra_overrides(sweep.hydra), *overrides]) from error
    with open_dict(config):
        config.hydra.job.num, config.hydra.job.id = number, str(number)
        # The sweep's folder is told once, for all jobs: its name may be the time.
        config.hydra.sweep.dir = sweep.hydra.sweep.dir
        config.hydra.runtime.output_dir = f"{config.hydra.sweep.dir}/{config.hydra.sweep.subdir}"
    return config


@contextlib.contextmanager
def loading(arguments: argparse.Namespace) -> Iterator[ConfigLoader]:
    """Hydra's loader, on the search path that the command line asks for."""
    version.setbase("1.3")
    register_search_path()
    path = make_search_path(arguments.config_path or CONF)
    if arguments.config_dir is not None:
        folder = f"file://{Path(arguments.config_dir).absolute()}"
        path.prepend(provider="command-line", path=folder, anchor=SearchPathQuery(provider="schema"))
    GlobalHydra.instance().clear()
    try:
        yield make_loader(path)
    finally:
        GlobalHydra.instance().clear()


def hydra_overrides(hydra: HydraConf | DictConfig) -> list[str]:
    """Return the overrides of Hydra's own keys as they are written; only a job may have what they refer to."""
    return cast(list[str], OmegaConf.to_container(cast(DictConfig, hydra.overrides.hydra), resolve=False))


def job_config(config: DictConfig) -> DictConfig:
    """What a job is given, with Hydra's own part where `HydraConfig` has it."""
    HydraConfig.instance().set_config(config)
    job = copy.deepcopy(config)
    with open_dict(job):
        del job["hydra"]
    return job
