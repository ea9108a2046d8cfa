"""Paddock's Hydra plugins: launchers, sweepers, and config groups of installed packages."""

import importlib.metadata

from hydra import version
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.plugins.sweeper import Sweeper
from hydra.types import RunMode

from paddock.envs.errors import ConfigError

ENTRY_POINTS = "paddock.conf"  # entry points in this group name a package's config folder
PLUGINS = "hydra_plugins.paddock."  # Hydra accepts launchers and sweepers from `hydra_plugins` only


class InstalledGroups(SearchPathPlugin):
    """Search path with the config folders that installed packages declare by entry point."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Append each declared folder as `pkg://package.folder`."""
        for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
            search_path.append(provider=entry.name, path=f"pkg://{entry.value}")


def prepare_hydra() -> None:
    """Set Hydra's version base to 1.3, and register the config groups of installed packages."""
    version.setbase("1.3")
    Plugins.instance().register(InstalledGroups)


def register_plugin(plugin: type[Launcher] | type[Sweeper]) -> None:
    """Register a launcher or sweeper with Hydra in this process, as `hydra_plugins.paddock.NAME`."""
    # `Plugins.register` accepts search paths only, so add to its mapping of discovered classes.
    Plugins.instance().class_name_to_class[f"{PLUGINS}{plugin.__name__}"] = plugin


def check_runs_here() -> None:
    """Raise ConfigError if one of Paddock's launchers or sweepers is chosen without --multirun."""
    hydra = HydraConfig.get()
    for kind, target in (("sweeper", hydra.sweeper._target_), ("launcher", hydra.launcher._target_)):
        if hydra.mode == RunMode.RUN and str(target).startswith(PLUGINS):
            name = hydra.runtime.choices.get(f"hydra/{kind}", "")
            raise ConfigError(f"hydra/{kind}={name} is for sweeps; add --multirun")
