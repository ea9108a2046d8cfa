"""Wrappers of Hydra's private API; tests/config/test_private.py detects incompatible versions."""

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
    """Return a configuration search path with this folder first."""
    return create_config_search_path(str(folder))


def make_loader(path: ConfigSearchPath) -> ConfigLoader:
    """Return a configuration loader for a search path."""
    setup_globals()
    JobRuntime.instance().set("name", "paddock")
    return _Loader(path)


class _Loader(ConfigLoaderImpl):
    """Loader that composes the configuration of a sweep with the first option of each swept group.

    Hydra uses the default options instead, which may lack keys that all swept options have.
    """

    def load_configuration(
        self, config_name: str | None, overrides: list[str], run_mode: RunMode, *args: Any, **kwargs: Any
    ) -> DictConfig:
        """Return the configuration of a job or a sweep."""
        if run_mode != RunMode.MULTIRUN:
            return super().load_configuration(config_name, overrides, run_mode, *args, **kwargs)
        parsed = OverridesParser.create(self).parse_overrides(overrides)
        first_options = [self._use_first_option(override) for override in parsed]
        config = super().load_configuration(config_name, first_options, run_mode, *args, **kwargs)
        config.hydra.overrides.task = [item.input_line for item in parsed if not item.is_hydra_override()]
        return config

    def _process_config_searchpath(self, *args: Any, **kwargs: Any) -> None:
        """Add hydra.searchpath; suppress warnings about packages that lack __init__.py."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "provider=hydra.searchpath in command-line", UserWarning)
            super()._process_config_searchpath(*args, **kwargs)

    def _use_first_option(self, override: Override) -> str:
        key = override.get_key_element()
        is_swept = override.is_discrete_sweep() and not override.is_hydra_override()
        if is_swept and self.repository.group_exists(key):
            return next((f"{key}={option}" for option in override.sweep_string_iterator()), str(override.input_line))
        return str(override.input_line)


def make_launcher(loader: ConfigLoader, job: TaskFunction, sweep: DictConfig) -> Launcher:
    """Instantiate the launcher of a sweep without starting it."""
    context = HydraContext(config_loader=loader, callbacks=Callbacks())
    return Plugins.instance().instantiate_launcher(hydra_context=context, task_function=job, config=sweep)


def write_element(value: Any) -> str:
    """Format a sweep value as on the command line, including quotes."""
    return Override._get_value_element_as_str(value)
