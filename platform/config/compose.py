"""Parse command lines and compose configurations."""

import argparse
import contextlib
import copy
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, cast

from hydra.conf import HydraConf
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from hydra.version import VersionBase
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from paddock.envs.errors import ConfigError, require

from .. import COMMANDS, CONF
from .help import check_sources
from .hydra_private import make_loader, make_parser, make_search_path
from .mistakes import explain
from .plugins import prepare_hydra
from .vocabulary import suggest_command, suggest_flag

_COMPOSING = threading.RLock()  # Hydra's configuration is global to the process
ACTIONS = ("cfg", "info", "hydra_help", "shell_completion", "multirun")  # flags that Hydra executes
OF_RUNS = ("overrides", "config_path", "config_name", "config_dir")  # arguments of a single run


def make_argument_parser() -> argparse.ArgumentParser:
    """Return Hydra's command-line parser, which raises ConfigError for unknown flags."""

    def refuse(message: str) -> NoReturn:
        raise ConfigError(f"{suggest_flag(message)}; see --help, and --hydra-help for Hydra's own flags")

    parser = make_parser()
    parser.error = refuse  # type: ignore[method-assign]
    return parser


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse a command line, by default that of this process."""
    arguments = make_argument_parser().parse_intermixed_args(words)
    actions = [name for name in ACTIONS if getattr(arguments, name)]
    require(len(actions) < 2, f"--{' and --'.join(actions)} are mutually exclusive; remove one")
    require(not arguments.resolve or arguments.cfg, "--resolve belongs to --cfg, as in --cfg job --resolve")
    require(not arguments.experimental_rerun, "--experimental-rerun is not supported; use python -m paddock.rerun RUN")
    check_sources(arguments)
    written = " ".join(arguments.overrides)
    for argument in arguments.overrides:
        key, equals, value = argument.partition("=")
        if not equals and key.isalpha() and (key in COMMANDS or not arguments.help):
            hint = suggest_command(key) if key in COMMANDS else "such as algo=es env=cartpole"
            raise ConfigError(f"cannot read the argument '{key}'; write key=value, {hint}")
        require(key != "hydra.run.dir", f"{argument} would be ignored; a run is kept in run.dir={value}")
        kept = not arguments.multirun or key not in ("run.root", "run.name") or f"${{{key}}}" in written
        require(kept, f"{argument} would be ignored; the runs of a sweep are kept in hydra.sweep.dir=FOLDER")
    return arguments


@contextlib.contextmanager
def composed(words: Sequence[str] | argparse.Namespace) -> Iterator[DictConfig]:
    """Compose a run's configuration; within the block, `HydraConfig` belongs to the run."""
    arguments = words
    if not isinstance(arguments, argparse.Namespace):
        require("--version" not in arguments, "--version is for the command line: python -m paddock --version")
        arguments = parse_arguments(list(arguments))
        for name, value in vars(arguments).items():
            flag = f"--{name.replace('_', '-')}"
            require(name in OF_RUNS or not value, f"{flag} is for the command line; for a sweep call run() repeatedly")
    with _isolated():
        loader = open_loader(arguments)
        try:
            name = arguments.config_name or "config"
            config = loader.load_configuration(name, arguments.overrides, RunMode.RUN)
        except Exception as error:  # of Hydra
            raise explain(error, arguments, loader) from error
        require(config.hydra.mode != RunMode.MULTIRUN, "hydra.mode=MULTIRUN sweeps; use --multirun")
        with open_dict(config):
            config.hydra.mode, config.hydra.runtime.output_dir = RunMode.RUN, os.path.abspath(".")
        yield job_config(config)


def compose_alone(words: Sequence[str]) -> DictConfig:
    """Compose a configuration outside a run, for notebooks and tests."""
    with composed(words) as config:
        return config


def compose_sections(names: Sequence[str], words: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Compose sections of the configuration, such as `compute`, as plain data."""
    with composed(words) as config:
        for name in names:
            section = config[name]
            require(OmegaConf.is_config(section), f"{name}={section!r} is not a mapping; set its keys: {name}.KEY=")
        sections: Any = {name: OmegaConf.to_container(config[name], resolve=True) for name in names}
    return sections


@contextlib.contextmanager
def _isolated() -> Iterator[None]:
    """Restore Hydra's state after the block, since the calling program may use Hydra too."""
    with _COMPOSING:
        job, base = HydraConfig.instance(), VersionBase.instance()
        before = job.cfg, base.version_base
        try:
            yield
        finally:
            job.cfg, base.version_base = before


def open_loader(arguments: argparse.Namespace) -> ConfigLoader:
    """Return Hydra's config loader for the search path of a command line."""
    prepare_hydra()
    path = make_search_path(arguments.config_path or CONF)
    if arguments.config_dir is not None:
        folder = f"file://{Path(arguments.config_dir).absolute()}"
        path.prepend(provider="command-line", path=folder, anchor=SearchPathQuery(provider="schema"))
    return make_loader(path)


@contextlib.contextmanager
def explained(arguments: argparse.Namespace, loader: ConfigLoader | None = None) -> Iterator[None]:
    """Convert Hydra's errors in the block into ConfigErrors."""
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise explain(error, arguments, loader or open_loader(arguments)) from error


def load_job(loader: ConfigLoader, sweep: DictConfig, overrides: Sequence[str], number: int) -> DictConfig:
    """Return the configuration of one job of a sweep, with the `hydra` section."""
    words = [*hydra_overrides(sweep.hydra), *overrides]
    with explained(argparse.Namespace(overrides=words, config_name=sweep.hydra.job.config_name), loader):
        config = loader.load_sweep_config(sweep, list(overrides))
    with open_dict(config):
        config.hydra.job.num, config.hydra.job.id = number, str(number)
        # The sweep's folder is resolved once, since its name may contain the time.
        config.hydra.sweep.dir = sweep.hydra.sweep.dir
        config.hydra.runtime.output_dir = f"{config.hydra.sweep.dir}/{config.hydra.sweep.subdir}"
    return config


def hydra_overrides(hydra: HydraConf | DictConfig) -> list[str]:
    """Return the overrides of Hydra's keys unresolved, since only a job may define what they refer to."""
    return cast(list[str], OmegaConf.to_container(cast(DictConfig, hydra.overrides.hydra), resolve=False))


def job_config(config: DictConfig) -> DictConfig:
    """Return a job's configuration, with the `hydra` section moved to `HydraConfig`."""
    HydraConfig.instance().set_config(config)
    job = copy.deepcopy(config)
    with open_dict(job):
        del job["hydra"]
    return job
