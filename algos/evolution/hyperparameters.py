"""Search space of hyperparameters that change during training: sampling and perturbation.

Values are numbers. A range is sampled uniformly or log-uniformly and perturbed by factors (Jaderberg et al. 2017,
arXiv:1711.09846); a list of choices is sampled uniformly and perturbed to a neighbour in the list.
"""

import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any, Union

import numpy as np

from paddock.envs.errors import nearest, require

Value = int | float

# Integer settings that may change: those of an update. Others determine environments, networks or rollout sizes.
WHOLE = ("epochs", "minibatch_size")
COUNTED = ("updates_per_step",)  # float settings that may not change, since they define a count from the first step on


@dataclass(frozen=True)
class RangeDimension:
    """Range of all numbers, or all integers, from low to high."""

    low: Value
    high: Value
    log: bool
    whole: bool

    @property
    def extremes(self) -> Sequence[Value]:
        """Values to validate; if they are valid, all values are."""
        return self.low, self.high

    def sample(self, generator: np.random.Generator) -> Value:
        """Sample a value independent of earlier ones."""
        if self.log:
            return self._fit(math.exp(generator.uniform(math.log(self.low), math.log(self.high))))
        if self.whole:
            return int(generator.integers(int(self.low), int(self.high) + 1))
        return generator.uniform(self.low, self.high)

    def perturb(self, value: Value, factors: Sequence[float], generator: np.random.Generator) -> Value:
        """Multiply by a random factor, within the range; integers change by at least 1, unless the factor is 1."""
        factor = factors[int(generator.integers(len(factors)))]
        moved = value * factor
        if self.whole and factor != 1:
            moved = max(round(moved), value + 1) if factor > 1 else min(round(moved), value - 1)
        return self._fit(moved)

    def _fit(self, value: float) -> Value:
        value = min(max(value, self.low), self.high)
        return round(value) if self.whole else value


@dataclass(frozen=True)
class ChoiceDimension:
    """List of numbers, ordered so that neighbours are similar."""

    choices: tuple[Value, ...]

    @property
    def extremes(self) -> Sequence[Value]:
        """Values to validate: all."""
        return self.choices

    def sample(self, generator: np.random.Generator) -> Value:
        """Sample a value independent of earlier ones."""
        return self.choices[generator.integers(len(self.choices))]

    def perturb(self, value: Value, factors: Sequence[float], generator: np.random.Generator) -> Value:
        """Return the choice before or after this one."""
        index = self.choices.index(value)
        neighbours = [k for k in (index - 1, index + 1) if 0 <= k < len(self.choices)]
        return self.choices[neighbours[generator.integers(len(neighbours))]]


Dimension = RangeDimension | ChoiceDimension


def read_space(
    explore: Mapping[str, Any], target: Callable[..., Any], settings: Mapping[str, Any]
) -> dict[str, Dimension]:
    """Return the domain of each explored setting of an algorithm, sorted by name.

    `explore` maps names to a mapping with `low`, `high` and `log`, or with `choices`. The type of a setting is that in
    the signature of the algorithm `target`, or that of its value in `settings`. A setting of a component, such as an
    evolution strategy, is named `strategy.sigma`.
    """
    kinds = _kinds(target, settings)
    components = [name for name in explore if is_dataclass(settings.get(name)) and isinstance(explore[name], Mapping)]
    inner = {f"{name}.{key}": domain for name in components for key, domain in explore[name].items()}
    explore = {name: domain for name, domain in explore.items() if name not in components} | inner
    changes = (name for name, kind in kinds.items() if kind is float or (kind is int and name in WHOLE))
    allowed = [name for name in changes if name not in COUNTED]
    space: dict[str, Dimension] = {}
    for name in sorted(explore):
        what = f"explore: {name} is not a number that may change during training"
        hint = f"allowed: {', '.join(allowed)}" if name in kinds else nearest(name, allowed)
        require(name in allowed, f"{what}; {hint}")
        require(isinstance(explore[name], Mapping), f"explore: {name}={explore[name]!r} is not a mapping; {FORM}")
        space[name] = _read(name, explore[name], whole=kinds[name] is int)
    return space


def _kinds(target: Callable[..., Any], settings: Mapping[str, Any]) -> dict[str, type | None]:
    try:
        hints = typing.get_type_hints(target.__init__ if inspect.isclass(target) else target)
    except (NameError, TypeError):  # names that its module imports for type checkers only
        hints = {}
    kinds = {name: _kind(hints.get(name, type(value))) for name, value in settings.items()}
    for name, value in settings.items():
        if is_dataclass(value) and not isinstance(value, type):
            kinds |= {f"{name}.{key}": kind for key, kind in _kinds(type(value), vars(value)).items()}
    return kinds


FORM = "set low, high and log, or choices"


def _read(name: str, section: Mapping[str, Any], whole: bool) -> Dimension:
    path = f"explore: {name}"
    keys = {"choices"} if "choices" in section else {"low", "high", "log"}
    require(section.keys() == keys, f"{path}={dict(section)} must have the keys {', '.join(sorted(keys))}; {FORM}")
    if "choices" in section:
        listed = section["choices"]
        values = listed if isinstance(listed, list | tuple) else ()
        choices = tuple(_number(f"{path}.choices", value, whole) for value in values)
        several = len(set(choices)) == len(choices) >= 2
        require(several, f"{path}.choices={listed!r} must list at least two distinct numbers")
        return ChoiceDimension(choices)
    low, high = (_number(f"{path}.{key}", section[key], whole) for key in ("low", "high"))
    log = section["log"]
    require(isinstance(log, bool), f"{path}.log={log!r} must be true or false")
    require(low < high, f"{path}.low={low} must be below {name}.high={high}")
    require(low > 0 or (low == 0 and not log), f"{path}.low={low} must be positive; 0 is allowed with log=false")
    return RangeDimension(low, high, log, whole)


def _number(path: str, value: Any, whole: bool) -> Value:
    """Return a value as an integer if `whole` (1e3 counts as one), else as a float."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    require(number, f"{path}={value!r} must be a number")
    if not whole:
        return float(value)
    require(float(value).is_integer(), f"{path}={value!r} must be an integer")
    return int(value)


def _kind(hint: Any) -> type | None:
    if typing.get_origin(hint) in (Union, types.UnionType):
        kinds = {_kind(choice) for choice in typing.get_args(hint) if choice is not type(None)}
        return kinds.pop() if len(kinds) == 1 else None
    return hint if hint in (int, float) else None
