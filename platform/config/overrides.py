"""Overrides and commands as a person would write them."""

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from hydra.conf import HydraConf
from hydra.core.override_parser.types import Quote, QuotedString
from omegaconf import DictConfig

from .compose import hydra_overrides, parse_arguments
from .help import split_sources


def format_main_command(overrides: Sequence[str]) -> str:
    """Return the command that does what a call with these overrides does."""
    return shlex.join(["python", "-m", "paddock", *overrides])


def format_run_dir(path: Path) -> str:
    """Return the override that names a run's folder."""
    return format_override("run.dir", path)


def format_override(key: str, path: Path) -> str:
    """Return the override of a key by a path, in Hydra's quotes where it would read the path otherwise."""
    plain = re.fullmatch(r"[\w/.+%@-]+", str(path), re.ASCII)
    return f"{key}={path if plain else QuotedString(str(path), Quote.single).with_quotes()}"


def format_source_arguments(
    hydra: HydraConf | DictConfig, copy_of: Callable[[Path], Path | None] = lambda path: None
) -> list[str]:
    """Return the arguments of a job that say, as this process's own do, where its groups are, and its variables.

    Args:
        hydra: Hydra's own section, as the job has it in its sweep.
        copy_of: where a path of this machine lies for the job; None for the path itself.
    """

    def move(source: str) -> str:
        scheme, mark, folder = source.rpartition("://")
        copy = copy_of(Path(folder).absolute()) if scheme in ("", "file") else None
        return f"{scheme}{mark}{copy}" if copy else source

    flags = parse_arguments()
    path, folder = (given and move(given) for given in (flags.config_path, flags.config_dir))
    named = {"--config-path": path, "--config-name": flags.config_name, "--config-dir": folder}
    words = [word for pair in named.items() if pair[1] for word in pair]
    for item in hydra_overrides(hydra):
        key, _, value = item.partition("=")
        if key.lstrip("+") == "hydra.searchpath":
            quoted = (QuotedString(move(source), Quote.single).with_quotes() for source in split_sources(value))
            words.append(f"{key}=[{','.join(quoted)}]")
        elif key.lstrip("+").startswith("hydra.job.env_set"):
            words.append(item)
    return words
