"""Conversion of Gymnasium's spaces to plain data and back, with bounds as arrays and ordered keys."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from paddock.envs.errors import ConfigError
from paddock.envs.remote.values import DecodeError

REFUSALS = (TypeError, ValueError, AssertionError, LookupError, AttributeError, OverflowError, NotImplementedError)
ARGUMENTS: dict[type[Space], dict[str, str]] = {  # constructor arguments and their attributes
    spaces.Box: {"low": "low", "high": "high", "shape": "shape", "dtype": "dtype"},
    spaces.Discrete: {"n": "n", "start": "start", "dtype": "dtype"},
    spaces.MultiDiscrete: {"nvec": "nvec", "start": "start", "dtype": "dtype"},
    spaces.MultiBinary: {"n": "n"},
    spaces.Text: {"max_length": "max_length", "min_length": "min_length", "charset": "characters"},
    spaces.Tuple: {"spaces": "spaces"},
    spaces.Dict: {"spaces": "spaces"},
    spaces.Sequence: {"space": "feature_space", "stack": "stack"},
}
KINDS = {kind.__name__: kind for kind in ARGUMENTS}


def describe_space(space: Space) -> dict[str, Any]:
    """Return a space's class and constructor arguments as plain data; raise ConfigError for a custom class."""
    kind = type(space)
    if kind not in ARGUMENTS:
        fix = "exclude it with env.without=, or wrap the environment"
        raise ConfigError(f"{kind.__name__} is a custom space, which clients do not support; {fix}")
    given = {argument: getattr(space, attribute) for argument, attribute in ARGUMENTS[kind].items()}
    return {"kind": kind.__name__, **{argument: _describe(value) for argument, value in given.items()}}


def build_space(description: Any) -> Space:
    """Build the space of `describe_space`; raise DecodeError for an invalid description."""
    try:
        given = {argument: _build(value) for argument, value in description.items()}
        if "dtype" in given:
            given["dtype"] = np.dtype(given["dtype"]).type
        return KINDS[given.pop("kind")](**given)
    except REFUSALS as error:
        raise DecodeError(f"no space: {' '.join(str(error).split())[:200]}") from error


def _describe(value: Any) -> Any:
    match value:
        case Space():
            return describe_space(value)
        case np.dtype():
            return value.str
        case Mapping():
            return [[key, describe_space(part)] for key, part in value.items()]
        case (Space(), *_):
            return [describe_space(part) for part in value]
    return value


def _build(value: Any) -> Any:
    if isinstance(value, list):
        return [_build(one) for one in value]
    return build_space(value) if isinstance(value, dict) else value
