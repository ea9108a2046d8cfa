"""Value ranges in type annotations: `epochs: PositiveInt`, `sigma: Annotated[float, Range(...)]`."""

from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import numpy as np

from paddock.envs.errors import require


@dataclass(frozen=True)
class Range:
    """Allowed range of a number."""

    words: str  # for messages, such as "must be positive"
    low: float = float("-inf")
    high: float = float("inf")
    above: float = float("-inf")  # exclusive lower bound


AT_LEAST_ONE = Range("must be at least 1", low=1)
AT_LEAST_ZERO = Range("must be at least 0", low=0)
POSITIVE = Range("must be positive", above=0)

PositiveInt = Annotated[int, AT_LEAST_ONE]
NonNegativeInt = Annotated[int, Range("must be at least 0", low=0)]
PositiveFloat = Annotated[float, POSITIVE]
NonNegativeFloat = Annotated[float, Range("must be at least 0", low=0)]
UnitFloat = Annotated[float, Range("must be in [0, 1]", low=0, high=1)]


def check_fields(settings: Any) -> None:
    """Check the fields of a dataclass that declare a range or choices; optional fields may be None.

    Raises:
        ConfigError: a value has another type, is out of range or NaN, or is not among the choices.
    """
    hints = get_type_hints(type(settings), include_extras=True)  # resolves postponed annotations
    for name in (field.name for field in fields(settings) if hasattr(settings, field.name)):
        value, hint = getattr(settings, name), hints[name]
        check_range(name, value, hint)
        if get_origin(hint) is Literal:
            choices = get_args(hint)
            require(value in choices, f"{name}={value} must be one of {', '.join(map(str, choices))}")


def check_range(name: str, value: Any, hint: Any) -> None:
    """Raise ConfigError unless a value has the type and range of a hint such as `PositiveInt`."""
    for mark in getattr(hint, "__metadata__", ()):
        kinds = get_args(hint.__origin__) or (hint.__origin__,)
        if value is None and type(None) in kinds:
            continue
        fits, kind = (_is_number(value), "a number") if float in kinds else (_is_whole(value), "an integer")
        require(fits, f"{name}={value!r} must be {kind}; it {mark.words}")
        within = mark.low <= value <= mark.high and value > mark.above
        require(within, f"{name}={value} {mark.words}")


def check_whole_numbers(**arguments: Any) -> None:
    """Raise ConfigError unless each argument is an integer; True and 1.0 are not."""
    for name, value in arguments.items():
        require(_is_whole(value), f"{name}={value!r} must be an integer")


def check_numbers(**arguments: Any) -> None:
    """Raise ConfigError unless each argument is a number; True is not."""
    for name, value in arguments.items():
        require(_is_number(value), f"{name}={value!r} must be a number")


def check_bool(**arguments: Any) -> None:
    """Raise ConfigError unless each argument is true or false."""
    for name, value in arguments.items():
        require(isinstance(value, bool | np.bool_), f"{name}={value!r} must be true or false")


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
