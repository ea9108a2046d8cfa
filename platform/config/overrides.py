"""Overrides in a call, as the command line has them, composed apart from what else in this process uses Hydra."""

import argparse
import contextlib
import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from hydra.conf import HydraConf
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from envs.errors import ConfigError, PaddockError, require

from .compose import apart, hydra_parser, job_config, loading
from .help import split_sources
from .mistakes import check_arguments, composition_error

# What a job does not know, which is no sweep's; what the shell has may be nobody's to read, and is left to it.
OF_SWEEP = re.compile(r"\$\{hydra([.:])(?!job\.env_set)([\w.]+)\}")
ALLOWED = ("overrides", "config_path", "config_name", "config_dir")  # of the command line's arguments


def spell_overrides(overrides: Sequence[str]) -> str:
    """Return the command that does what a call with these overrides does."""
    return shlex.join(["python", "-m", "paddock", *overrides])


def spell_run_dir(path: Path) -> str:
    """Return the override that names a run's folder."""
    return spell_override("run.dir", path)


def spell_override(key: str, path: Path) -> str:
    """Return the override of a key by a path, in Hydra's quotes where it would read the path otherwise."""
    plain = re.fullmatch(r"[\w/.+%@-]+", str(path), re.ASCII)
    return f"{key}={path if plain else QuotedString(str(path), Quote.single).with_quotes()}"


def spell_sources(
    hydra: HydraConf | DictConfig, copy_of: Callable[[Path], Path | None] = lambda path: None
) -> list[str]:
    """Return the arguments of a job that say, as this process's own do, where its groups are, and what it has set.

    Args:
        hydra: Hydra's own section, of the sweep that the job is one of.
        copy_of: where a path of this machine lies for the job; None for the path itself.
    """

    def move(source: str) -> str:
        scheme, mark, folder = source.rpartition("://")
        copy = copy_of(Path(folder).absolute()) if scheme in ("", "file") else None
        return f"{scheme}{mark}{copy}" if copy else source

    flags = hydra_parser().parse_intermixed_args()
    path, folder = (given and move(given) for given in (flags.config_path, flags.config_dir))
    named = {"--config-path": path, "--config-name": flags.config_name, "--config-dir": folder}
    words = [word for pair in named.items() if pair[1] for word in pair]
    written = cast(list[str], OmegaConf.to_container(hydra.overrides.hydra, resolve=False))
    for item, raw in zip(hydra.overrides.hydra, written, strict=True):
        key, _, value = item.partition("=")
        if key.lstrip("+") == "hydra.searchpath":
            old = split_sources(value)
            new = [move(source) for source in old]
            quoted = (QuotedString(source, Quote.single).with_quotes() for source in new)
            words.append(item if new == old else f"{key}=[{','.join(quoted)}]")
        elif key.lstrip("+").startswith("hydra.job.env_set"):  # which Hydra would set in this process alone
            words.append(OF_SWEEP.sub(lambda found: _value_of(found, hydra), raw))
    return words


def _value_of(reference: re.Match[str], hydra: HydraConf | DictConfig) -> str:
    """Return what a reference to Hydra's section comes to in a sweep; where that is nothing itself, for the job."""
    section = HydraConfig.get() if reference[1] == ":" and HydraConfig.initialized() else hydra
    value = OmegaConf.select(cast(DictConfig, section), reference[2])
    return reference[0] if value is None else str(value)


@contextlib.contextmanager
def composed(overrides: Sequence[str]) -> Iterator[DictConfig]:
    """Compose a run's configuration; within the block Hydra knows of it, and afterwards of what it knew before.

    Raises:
        ConfigError: a mistake in the overrides, or a flag that only a command can follow; also those of the block.
    """
    arguments = _parse(overrides)
    with apart():
        try:
            with loading(arguments) as loader:
                name = arguments.config_name or "config"
                config = loader.load_configuration(name, arguments.overrides, RunMode.RUN)
                remedy = f"{spell_overrides(overrides)}, or call run() for each value"
                sweep = config.hydra.mode == RunMode.MULTIRUN
                require(not sweep, f"hydra.mode=MULTIRUN sweeps, which a command does: {remedy}")
                with open_dict(config):
                    config.hydra.mode, config.hydra.runtime.output_dir = RunMode.RUN, os.path.abspath(".")
                job = job_config(config)
            yield job
        except PaddockError:
            raise
        except Exception as error:
            explained = composition_error(error, arguments)
            if explained is None:
                raise
            raise explained from error


def compose_sections(names: Sequence[str], overrides: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Compose sections of the configuration as plain data, such as `compute`, for what is not a run.

    Raises:
        ConfigError: an override names no option or key.
    """
    with composed(overrides) as config:
        for name in names:
            section = config[name]
            require(OmegaConf.is_config(section), f"{name}={section!r} is not a mapping; set its keys: {name}.KEY=")
        sections: Any = {name: OmegaConf.to_container(config[name], resolve=True) for name in names}
    return sections


def _parse(overrides: Sequence[str]) -> argparse.Namespace:
    for word in overrides:
        what = f"overrides are text, such as 'algo=es'; got {word!r}"
        require(isinstance(word, str), f"{what} ({type(word).__name__})")
    if "--version" in overrides:  # which the parser answers by itself
        raise ConfigError("--version prints, which a command does: python -m paddock --version")
    arguments = hydra_parser().parse_intermixed_args(list(overrides))
    command = spell_overrides(overrides)
    require(not arguments.multirun, f"--multirun sweeps, which a command does: {command}; or call run() for each value")
    for name, value in vars(arguments).items():
        flag = f"--{name.replace('_', '-')}"
        require(name in ALLOWED or not value, f"{flag} is for the command line: {command}")
    check_arguments(arguments)
    return arguments
