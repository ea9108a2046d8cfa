"""Ranges of settings, declared where their types are: `epochs: PositiveInt`, `sigma: Annotated[float, Range(...)]`."""

from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from envs.errors import require


@dataclass(frozen=True)
class Range:
    """The numbers that a setting allows.

    Attributes:
        words: what they are, and what suits, for the message behind the value that was given.
        low: the lowest.
        high: the highest.
        above: itself not allowed.
    """

    words: str
    low: float = float("-inf")
    high: float = float("inf")
    above: float = float("-inf")


AT_LEAST_ONE = Range("must be at least 1", low=1)
AT_LEAST_ZERO = Range("must be at least 0", low=0)
POSITIVE = Range("must be positive", above=0)

PositiveInt = Annotated[int, AT_LEAST_ONE]
NonNegativeInt = Annotated[int, Range("must not be negative", low=0)]
PositiveFloat = Annotated[float, POSITIVE]
NonNegativeFloat = Annotated[float, Range("must not be negative", low=0)]
UnitFloat = Annotated[float, Range("must lie in [0, 1]", low=0, high=1)]


def check_fields(settings: Any) -> None:
    """Check the fields of a dataclass that declare a range or choices; None, where the type allows it, is in any range.

    Raises:
        ConfigError: a value is out of its range, NaN, or none of the choices.
    """
    hints = get_type_hints(type(settings), include_extras=True)  # of modules too that postpone annotations
    for name in (field.name for field in fields(settings)):
        value, hint = getattr(settings, name, None), hints[name]
        for mark in getattr(hint, "__metadata__", ()) if value is not None else ():
            within = mark.low <= value <= mark.high and value > mark.above
            require(within, f"{name}={value} {mark.words}")
        if get_origin(hint) is Literal:
            choices = get_args(hint)
            require(value in choices, f"{name}={value} must be one of {', '.join(map(str, choices))}")
