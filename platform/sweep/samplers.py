"""Optuna samplers and pruners, by their names in conf/hydra/sweeper/optuna.yaml."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from paddock.envs.errors import ConfigError, nearest, one_line, require

from ..runs.lazy_imports import optuna

SAMPLERS = {
    "tpe": "TPESampler",
    "cmaes": "CmaEsSampler",
    "gp": "GPSampler",
    "nsga2": "NSGAIISampler",
    "qmc": "QMCSampler",
    "random": "RandomSampler",
}
PRUNERS = {
    "median": "MedianPruner",
    "percentile": "PercentilePruner",
    "successive_halving": "SuccessiveHalvingPruner",
    "hyperband": "HyperbandPruner",
    "none": "NopPruner",
}


def make_sampler(name: str, options: Mapping[str, Any], seed: int, number: int) -> optuna.samplers.BaseSampler:
    """Make the sampler of a trial, with a seed per trial so that a resumed sweep repeats no sample.

    A quasi-random sequence has one seed for all points; a random sampler draws the parameters outside of it.
    """
    require(name in SAMPLERS, f"sampler={name} is not an option; {nearest(name, SAMPLERS)}")
    trial_seed = (seed * 1_000_003 + number) % 2**32
    fixed: dict[str, Any] = {"seed": trial_seed}
    if name == "qmc":
        fixed = {"seed": seed, "independent_sampler": optuna.samplers.RandomSampler(trial_seed)}
    return _make(name, getattr(optuna.samplers, SAMPLERS[name]), dict(options), fixed)


def make_pruner(name: str, options: Mapping[str, Any]) -> optuna.pruners.BasePruner:
    """Make a pruner; raise ConfigError for an unknown name or invalid options."""
    require(name in PRUNERS, f"pruner={name} is not an option; {nearest(name, PRUNERS)}")
    return _make(name, getattr(optuna.pruners, PRUNERS[name]), dict(options), {})


def _make(name: str, target: Any, options: dict[str, Any], fixed: Mapping[str, Any]) -> Any:
    taken = [key for key in inspect.signature(target.__init__).parameters if key not in ("self", *fixed)]
    for key in options:
        require(key in taken, f"options.{name}.{key} is not an option of Optuna's {name}; {nearest(key, taken)}")
    try:
        return target(**options, **fixed)
    except (TypeError, ValueError, ImportError) as error:
        raise ConfigError(f"options.{name}: {one_line(error)}; see Optuna's documentation") from error
