"""Hydra's plugins of ours: launchers and sweepers, each made known where it is needed."""

from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import RunMode

from paddock.envs.errors import ConfigError

PLUGINS = "hydra_plugins.paddock."  # names of the only package from which Hydra accepts launchers and sweepers


def register_plugin(plugin: type[Launcher] | type[Sweeper]) -> None:
    """Make a launcher or a sweeper known to Hydra in this process, as `hydra_plugins.paddock.NAME`."""
    # `Plugins.register` refuses all but search paths; what is found in installed packages is kept in this mapping.
    Plugins.instance().class_name_to_class[f"{PLUGINS}{plugin.__name__}"] = plugin


def check_runs_here() -> None:
    """Raise if a run is about to start here that was meant to be one of a sweep.

    Raises:
        ConfigError: a launcher or a sweeper of ours is chosen without --multirun.
    """
    hydra = HydraConfig.get()
    chosen = {"sweeper": hydra.sweeper._target_, "launcher": hydra.launcher._target_}
    ours = [kind for kind, target in chosen.items() if str(target).startswith(PLUGINS)]
    for kind in ours if hydra.mode == RunMode.RUN else ():
        name = hydra.runtime.choices.get(f"hydra/{kind}", "")
        raise ConfigError(f"hydra/{kind}={name} is for sweeps, of one run too; add --multirun")
