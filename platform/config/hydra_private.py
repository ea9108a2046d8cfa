"""All uses of Hydra's private interface; tests/config/test_private.py checks them."""

import argparse
import warnings
from pathlib import Path
from typing import Any

from hydra._internal import hydra as hydra_module
from hydra._internal.callbacks import Callbacks
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import _run_hydra, create_config_search_path, get_args_parser
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.core.utils import JobRuntime, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, RunMode, TaskFunction
from omegaconf import DictConfig

from .. import CONF
from .plugins import prepare_hydra

BASIC_LAUNCHER = "hydra._internal.core_plugins.basic_launcher.BasicLauncher"
BASIC_SWEEPER = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"


def make_parser() -> argparse.ArgumentParser:
    """Return Hydra's command-line parser."""
    return get_args_parser()


def run_hydra(arguments: argparse.Namespace, parser: argparse.ArgumentParser, job: TaskFunction) -> None:
    """Run a sweep, or execute a Hydra flag such as --cfg."""
    prepare_hydra()
    GlobalHydra.instance().clear()
    setattr(hydra_module, "ConfigLoaderImpl", _Loader)  # noqa: B010
    try:
        _run_hydra(arguments, parser, job, config_path=str(CONF), config_name="config")
    finally:
        setattr(hydra_module, "ConfigLoaderImpl", ConfigLoaderImpl)  # noqa: B010


def make_search_path(folder: str | Path) -> ConfigSearchPath:
    """Return the search path that begins with a folder."""
    return create_config_search_path(str(folder))


def make_loader(path: ConfigSearchPath) -> ConfigLoader:
    """Return a loader on a search path."""
    setup_globals()
    JobRuntime.instance().set("name", "paddock")
    return _Loader(path)


class _Loader(ConfigLoaderImpl):
    """Loader that composes what the jobs of a sweep share with the first option of each group that varies.

    Hydra itself leaves these groups at their defaults, which may lack a key that all of the options have.
    """

    def load_configuration(
        self, config_name: str | None, overrides: list[str], run_mode: RunMode, *rest: Any, **named: Any
    ) -> DictConfig:
        """Return the configuration of a job or a sweep."""
        if run_mode != RunMode.MULTIRUN:
            return super().load_configuration(config_name, overrides, run_mode, *rest, **named)
        parsed = OverridesParser.create(self).parse_overrides(overrides)
        firsts = [self._first(override) for override in parsed]
        config = super().load_configuration(config_name, firsts, run_mode, *rest, **named)
        config.hydra.overrides.task = [item.input_line for item in parsed if not item.is_hydra_override()]
        return config

    def _process_config_searchpath(self, *given: Any, **named: Any) -> None:
        """Add the entries of hydra.searchpath, without warnings about packages without __init__.py."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "provider=hydra.searchpath in command-line", UserWarning)
            super()._process_config_searchpath(*given, **named)

    def _first(self, override: Override) -> str:
        key = override.get_key_element()
        varies = override.is_discrete_sweep() and not override.is_hydra_override()
        if varies and self.repository.group_exists(key):
            return next((f"{key}={option}" for option in override.sweep_string_iterator()), str(override.input_line))
        return str(override.input_line)


def make_launcher(loader: ConfigLoader, job: TaskFunction, sweep: DictConfig) -> Launcher:
    """Return the launcher of a sweep without starting it."""
    context = HydraContext(config_loader=loader, callbacks=Callbacks())
    return Plugins.instance().instantiate_launcher(hydra_context=context, task_function=job, config=sweep)


def write_element(value: Any) -> str:
    """Format an element of a sweep as on the command line, including quotes."""
    return Override._get_value_element_as_str(value)
