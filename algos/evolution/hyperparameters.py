"""Hyperparameters that change while they are used: what they may be, where they begin, how they go on from others'.

Values are numbers. A range is drawn from evenly, or evenly in its logarithm, and moves by factors (Jaderberg et al.
2017, arXiv:1711.09846, "perturb"); a list of choices is drawn from evenly, and moves to a neighbour in the list.
"""

import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Union

import numpy as np

from paddock.envs.errors import nearest, require

Value = int | float

# Of whole numbers, those that say how an update is made. Others say how much is played, where, or by what network.
WHOLE = ("epochs", "minibatch_size")
COUNTED = ("updates_per_step",)  # of the others, those by which all that was done from the first step on is counted


class Dimension(Protocol):
    """What one hyperparameter may be."""

    @property
    def extremes(self) -> Sequence[Value]:
        """Values that are allowed if all others are."""
        ...

    def draw(self, generator: np.random.Generator) -> Value:
        """A first value, or one that has nothing to do with any before."""
        ...

    def perturb(self, value: Value, factors: Sequence[float], generator: np.random.Generator) -> Value:
        """A value near this one."""
        ...


@dataclass(frozen=True)
class RangeDimension:
    """All numbers, or all whole numbers, from low to high."""

    low: Value
    high: Value
    log: bool
    whole: bool

    @property
    def extremes(self) -> Sequence[Value]:
        """See `Dimension.extremes`."""
        return self.low, self.high

    def draw(self, generator: np.random.Generator) -> Value:
        """See `Dimension.draw`."""
        if self.log:
            return self._fit(math.exp(generator.uniform(math.log(self.low), math.log(self.high))))
        if self.whole:
            return int(generator.integers(int(self.low), int(self.high) + 1))
        return generator.uniform(self.low, self.high)

    def perturb(self, value: Value, factors: Sequence[float], generator: np.random.Generator) -> Value:
        """Multiply by one of the factors, within the range; whole numbers move by 1 at least, but for a factor of 1."""
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
    """Some numbers, in an order in which neighbours are alike."""

    choices: tuple[Value, ...]

    @property
    def extremes(self) -> Sequence[Value]:
        """See `Dimension.extremes`."""
        return self.choices

    def draw(self, generator: np.random.Generator) -> Value:
        """See `Dimension.draw`."""
        return self.choices[generator.integers(len(self.choices))]

    def perturb(self, value: Value, factors: Sequence[float], generator: np.random.Generator) -> Value:
        """The choice before or after this one."""
        place = self.choices.index(value)
        neighbours = [k for k in (place - 1, place + 1) if 0 <= k < len(self.choices)]
        return self.choices[neighbours[generator.integers(len(neighbours))]]


def read_space(
    explore: Mapping[str, Any], target: Callable[..., Any], settings: Mapping[str, Any]
) -> dict[str, Dimension]:
    """What every explored setting of an algorithm may be, in the order of their names.

    Args:
        explore: by name, a mapping with `low`, `high` and `log`, or with `choices`.
        target: the algorithm's class, whose signature says which settings are numbers.
        settings: its settings, whose values say it where the signature does not.

    Raises:
        ConfigError: a name is no such setting, or what is said of it makes no sense.
    """
    try:
        hints = typing.get_type_hints(target.__init__ if inspect.isclass(target) else target)
    except (NameError, TypeError):  # names that its module imports for type checkers only
        hints = {}
    kinds = {name: _kind(hints.get(name, type(value))) for name, value in settings.items()}
    changes = (name for name, kind in kinds.items() if kind is float or (kind is int and name in WHOLE))
    allowed = [name for name in changes if name not in COUNTED]
    space: dict[str, Dimension] = {}
    for name in sorted(explore):
        what = f"explore: {name} is not a number that may change while a member learns"
        hint = f"allowed: {', '.join(allowed)}" if name in kinds else nearest(name, allowed)
        require(name in allowed, f"{what}; {hint}")
        require(isinstance(explore[name], Mapping), f"explore: {name}={explore[name]!r} is not a mapping; {FORM}")
        space[name] = _read(name, explore[name], whole=kinds[name] is int)
    return space


FORM = "give it low, high and log, or choices"


def _read(name: str, section: Mapping[str, Any], whole: bool) -> Dimension:
    path = f"explore: {name}"
    keys = {"choices"} if "choices" in section else {"low", "high", "log"}
    require(section.keys() == keys, f"{path}={dict(section)} has other keys than {', '.join(sorted(keys))}; {FORM}")
    if "choices" in section:
        listed = section["choices"]
        values = listed if isinstance(listed, list | tuple) else ()
        choices = tuple(_number(f"{path}.choices", value, whole) for value in values)
        several = len(set(choices)) == len(choices) >= 2
        require(several, f"{path}.choices={listed!r} must list two numbers or more, each once")
        return ChoiceDimension(choices)
    low, high = (_number(f"{path}.{key}", section[key], whole) for key in ("low", "high"))
    log = section["log"]
    require(isinstance(log, bool), f"{path}.log={log!r} must be true or false")
    require(low < high, f"{path}.low={low} must be below {name}.high={high}")
    require(low > 0 or (low == 0 and not log), f"{path}.low={low} must be positive; 0 is allowed with log=false")
    return RangeDimension(low, high, log, whole)


def _number(path: str, value: Any, whole: bool) -> Value:
    """The value, if it is a number of the right kind: 1e3 is whole."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    require(number, f"{path}={value!r} must be a number")
    if not whole:
        return float(value)
    require(float(value).is_integer(), f"{path}={value!r} must be a whole number")
    return int(value)


def _kind(hint: Any) -> type | None:
    """The kind of number that a type hint allows; None: another thing."""
    if typing.get_origin(hint) in (Union, types.UnionType):
        kinds = {_kind(choice) for choice in typing.get_args(hint) if choice is not type(None)}
        return kinds.pop() if len(kinds) == 1 else None
    return hint if hint in (int, float) else None
