"""Hydra's plugins of ours: launchers, sweepers, and the configuration groups of installed packages."""

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

ENTRY_POINTS = "paddock.conf"  # a package's entry point in this group names its own folder of configuration groups
PLUGINS = "hydra_plugins.paddock."  # names of the only package from which Hydra accepts launchers and sweepers


class InstalledGroups(SearchPathPlugin):
    """Adds the config folders that installed packages announce by entry point."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Append each announced folder, as `pkg://package.folder`."""
        for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
            search_path.append(provider=entry.name, path=f"pkg://{entry.value}")


def prepare_hydra() -> None:
    """Make Hydra behave as its version 1.3, and find the groups of installed packages."""
    version.setbase("1.3")
    Plugins.instance().register(InstalledGroups)


def register_plugin(plugin: type[Launcher] | type[Sweeper]) -> None:
    """Make a launcher or a sweeper known to Hydra in this process, as `hydra_plugins.paddock.NAME`."""
    # `Plugins.register` refuses all but search paths; what is found in installed packages is kept in this mapping.
    Plugins.instance().class_name_to_class[f"{PLUGINS}{plugin.__name__}"] = plugin


def check_runs_here() -> None:
    """Raise ConfigError if a launcher or a sweeper of ours is chosen without --multirun."""
    hydra = HydraConfig.get()
    for kind, target in (("sweeper", hydra.sweeper._target_), ("launcher", hydra.launcher._target_)):
        if hydra.mode == RunMode.RUN and str(target).startswith(PLUGINS):
            name = hydra.runtime.choices.get(f"hydra/{kind}", "")
            raise ConfigError(f"hydra/{kind}={name} is for sweeps, of one run too; add --multirun")
