"""What Paddock adds to Hydra's composition: config folders of installed packages, and errors in one line."""

import importlib.metadata
import re
import sys
from typing import Any

from hydra import compose, initialize_config_dir
from hydra._internal.utils import get_args_parser
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException, OverrideParseException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from envs.errors import ConfigError, nearest

from . import CONF

ENTRY_POINTS = "paddock.conf"  # a package's entry point in this group names its own folder of configuration groups


class InstalledGroups(SearchPathPlugin):
    """Adds the config folders that installed packages announce by entry point."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Append each announced folder, as `pkg://package.folder`."""
        for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
            search_path.append(provider=entry.name, path=f"pkg://{entry.value}")


def register_search_path() -> None:
    """Make the groups of installed packages known to Hydra in this process."""
    Plugins.instance().register(InstalledGroups)


def compose_alone(overrides: list[str]) -> DictConfig:
    """Compose a configuration outside a run, as notebooks and tests do."""
    register_search_path()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("config", overrides)


def composition_error(error: BaseException) -> ConfigError | None:
    """A composition error of Hydra or OmegaConf as one line with the nearest valid name; None for any other error."""
    if isinstance(error, MissingConfigException):
        wanted = str(error.missing_cfg_file)
        group, _, option = wanted.rpartition("/")
        if error.options is not None:
            return ConfigError(f"{group}={option} is not an option of {group}; {nearest(option, error.options)}")
        return ConfigError(_first_line(error))
    if isinstance(error, OverrideParseException):
        return ConfigError(f"cannot read the argument '{error.override}': {_first_line(error)}; write key=value")
    if not isinstance(error, HydraException | OmegaConfBaseException):
        return None
    unknown = re.search(r"Could not (?:override|append to config|delete from config)[^']*'([^'@=]+)", str(error))
    if isinstance(error, ConfigCompositionException) and unknown and "not in struct" in str(error.__cause__ or error):
        key = unknown.group(1).lstrip("+~")
        return ConfigError(f"{key} is not a key of the configuration; {nearest(key, _known_keys(key))}")
    if unknown and "No match in the defaults list" in str(error):
        key = unknown.group(1)
        return ConfigError(f"{key} is not a group of the configuration; {nearest(key, _known_keys(key))}")
    return ConfigError(_first_line(error))


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _known_keys(key: str) -> list[str]:
    """The keys that were possible where `key` stands, with the groups chosen on the command line."""
    choices = [
        override
        for override in get_args_parser().parse_known_args(sys.argv[1:])[0].overrides
        if "." not in override.partition("=")[0]
    ]
    try:
        composed = compose_alone([choice for choice in choices if not choice.startswith((f"{key}=", "+", "~"))])
    except (HydraException, OmegaConfBaseException):
        composed = compose_alone([])
    keys = _paths(OmegaConf.to_container(composed), "")
    depth = key.count(".")
    return [known for known in keys if known.count(".") == depth] + (["experiment"] if depth == 0 else [])


def _paths(node: Any, path: str) -> list[str]:
    if not isinstance(node, dict):
        return []
    return [name for key, value in node.items() for name in (f"{path}{key}", *_paths(value, f"{path}{key}."))]
