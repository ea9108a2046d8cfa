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
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from paddock.envs.errors import ConfigError, PaddockError, require

from .compose import apart, hydra_overrides, hydra_parser, job_config, loading
from .help import split_sources
from .hydra_private import write_element
from .mistakes import check_arguments, composition_error

# What a job does not know, which is no sweep's; what the shell has may be nobody's to read, and is left to it.
OF_SWEEP = re.compile(
    r"""(?<!\\)((?:\\\\)*)\$\{\s*hydra(?:\.|:\s*["']?|(?=\[))(?![^}]*env_set)([^\s${}"']+)["']?\s*\}"""
)
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
        hydra: Hydra's own section, as the job has it in its sweep.
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
    for item in hydra_overrides(hydra):
        key, _, value = item.partition("=")
        if key.lstrip("+") == "hydra.searchpath":
            old = split_sources(value)
            new = [move(source) for source in old]
            quoted = (QuotedString(source, Quote.single).with_quotes() for source in new)
            words.append(item if new == old else f"{key}=[{','.join(quoted)}]")
        elif key.lstrip("+").startswith("hydra.job.env_set"):  # which Hydra would set in this process alone
            words.append(_spell_variables(item, hydra) if OF_SWEEP.search(item) else item)
    return words


def _spell_variables(override: str, hydra: HydraConf | DictConfig) -> str:
    """Return an override of variables with what its references to Hydra's section come to in their places."""

    def put(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: put(each) for name, each in value.items()}
        text = OF_SWEEP.sub(lambda found: _value_of(found, hydra), str(value))
        return QuotedString(text, Quote.double)

    value = OverridesParser.create().parse_override(override).value()
    return f"{override.partition('=')[0]}={write_element(put(value))}"


def _value_of(reference: re.Match[str], hydra: HydraConf | DictConfig) -> str:
    """Return what a reference to Hydra's section comes to; itself, for the job, where that is no value."""
    slashes, key = reference.groups()
    value = OmegaConf.select(cast(DictConfig, hydra), key, throw_on_resolution_failure=False)
    if value is None or OmegaConf.is_config(value):
        return reference[0]
    before = reference.string[: reference.start()]
    within = before.count("${") > before.count("}")  # another reference, whose signs it may have
    return slashes + (write_element(str(value)) if within else str(value))


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
