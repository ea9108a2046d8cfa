"""Format overrides and commands as a user would type them."""

import re
from collections.abc import Callable
from pathlib import Path

from hydra.conf import HydraConf
from hydra.core.override_parser.types import Quote, QuotedString
from omegaconf import DictConfig

from .compose import hydra_overrides, parse_arguments
from .help import split_sources


def format_run_dir(path: Path) -> str:
    """Return the override `run.dir=PATH`."""
    return format_override("run.dir", path)


def format_override(key: str, path: Path) -> str:
    """Return the override that sets a key to a path, in Hydra's quotes if necessary."""
    plain = re.fullmatch(r"[\w/.+%@-]+", str(path), re.ASCII)
    return f"{key}={path if plain else QuotedString(str(path), Quote.single).with_quotes()}"


def format_source_arguments(
    hydra: HydraConf | DictConfig, copy_of: Callable[[Path], Path | None] = lambda path: None
) -> list[str]:
    """Return this process's arguments that set a job's config sources and environment variables.

    `copy_of` maps a local path to the job's copy of it; None if the job uses the path itself.
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
