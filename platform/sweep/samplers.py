"""Who draws a study's values, and who gives up on its trials: Optuna's samplers and pruners, by their names here."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Annotated, Any

from paddock.envs.errors import ConfigError, nearest, require
from paddock.envs.ranges import PositiveInt, Range, check_range

from ..runs.late import optuna

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

# Of options that Optuna itself takes any number for.
Percent = Annotated[int, Range("must be between 0 and 100 percent", low=0, high=100)]
RANGES: Mapping[str, Any] = {
    "tpe.n_startup_trials": PositiveInt,
    "median.n_warmup_steps": Percent,
    "percentile.n_warmup_steps": Percent,
    "hyperband.min_resource": PositiveInt,
    "hyperband.reduction_factor": Annotated[int, Range("must be at least 2", low=2)],
}


def make_sampler(name: str, options: Mapping[str, Any], seed: int, number: int) -> optuna.samplers.BaseSampler:
    """The sampler of a trial, by its name here, with a seed of its own: a resumed sweep draws no value again.

    A quasi-random sequence has one seed for all of its points, and another sampler draws what has no place in it yet.

    Raises:
        ConfigError: the name or an option is unknown, or a value is out of range.
    """
    require(name in SAMPLERS, f"sampler={name} is unknown; {nearest(name, SAMPLERS)}")
    own = (seed * 1_000_003 + number) % 2**32
    ours: dict[str, Any] = {"seed": own}
    if name == "qmc":
        ours = {"seed": seed, "independent_sampler": optuna.samplers.RandomSampler(own)}
    return _make(name, getattr(optuna.samplers, SAMPLERS[name]), dict(options), ours)


def make_pruner(name: str, options: Mapping[str, Any]) -> optuna.pruners.BasePruner:
    """A pruner by its name here.

    Raises:
        ConfigError: the name or an option is unknown, or a value is out of range.
    """
    require(name in PRUNERS, f"pruner={name} is unknown; {nearest(name, PRUNERS)}")
    return _make(name, getattr(optuna.pruners, PRUNERS[name]), dict(options), {})


def _make(name: str, target: Any, options: dict[str, Any], ours: Mapping[str, Any]) -> Any:
    taken = [key for key in inspect.signature(target.__init__).parameters if key not in ("self", *ours)]
    for key, value in options.items():
        require(key in taken, f"options.{name}.{key} is not an option of Optuna's; {nearest(key, taken)}")
        check_range(f"options.{name}.{key}", value, RANGES.get(f"{name}.{key}"))
    try:
        return target(**options, **ours)
    except (TypeError, ValueError, ImportError) as error:
        raise ConfigError(f"options.{name}: {' '.join(str(error).split())}; see Optuna's documentation") from error
