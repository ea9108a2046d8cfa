"""Slow libraries, imported on first use."""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any


class LazyModule(ModuleType):
    """Module that imports itself, and its submodules, on first attribute access."""

    def __getattr__(self, name: str) -> Any:
        """Import the module and return its attribute or submodule."""
        if name.startswith("__"):
            raise AttributeError(name)
        module = importlib.import_module(self.__name__)
        try:
            value = getattr(module, name)
        except AttributeError:
            value = importlib.import_module(f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import av
    import matplotlib.axes
    import matplotlib.cm
    import matplotlib.colors
    import matplotlib.figure
    import matplotlib.lines
    import matplotlib.patches
    import matplotlib.patheffects
    import matplotlib.ticker
    import optuna.storages.journal
    import scipy.stats
    import wandb
else:
    av, matplotlib, optuna = LazyModule("av"), LazyModule("matplotlib"), LazyModule("optuna")
    scipy, wandb = LazyModule("scipy"), LazyModule("wandb")
