"""Gymnasium's spaces as plain data, and back: bounds as raw arrays, the keys of mappings in their order."""

from typing import Any

import numpy as np
from gymnasium import Space, spaces

from paddock.envs.errors import ConfigError
from paddock.envs.remote.values import DecodeError

REFUSALS = (TypeError, ValueError, AssertionError, LookupError, AttributeError, OverflowError, NotImplementedError)


def describe_space(space: Space) -> list[Any]:
    """Return a space as plain data: its kind, and what it is built from.

    Raises:
        ConfigError: it is of a custom class.
    """
    match space:
        case spaces.Box() if type(space) is spaces.Box:
            return ["box", space.low, space.high, space.dtype.str]
        case spaces.Discrete() if type(space) is spaces.Discrete:
            return ["discrete", int(space.n), int(space.start), np.dtype(space.dtype).str]
        case spaces.MultiDiscrete() if type(space) is spaces.MultiDiscrete:
            return ["multi_discrete", space.nvec, space.start, np.dtype(space.dtype).str]
        case spaces.MultiBinary() if type(space) is spaces.MultiBinary:
            return ["multi_binary", space.n if isinstance(space.n, int) else [int(n) for n in space.n]]
        case spaces.Text() if type(space) is spaces.Text:
            return ["text", space.min_length, space.max_length, "".join(sorted(space.character_set))]
        case spaces.Tuple() if type(space) is spaces.Tuple:
            return ["tuple", [describe_space(part) for part in space.spaces]]
        case spaces.Dict() if type(space) is spaces.Dict:
            return ["dict", [[key, describe_space(part)] for key, part in space.spaces.items()]]
        case spaces.Sequence() if type(space) is spaces.Sequence:
            return ["sequence", describe_space(space.feature_space), space.stack]
        case spaces.Graph() if type(space) is spaces.Graph:
            edge = None if space.edge_space is None else describe_space(space.edge_space)
            return ["graph", describe_space(space.node_space), edge]
        case spaces.OneOf() if type(space) is spaces.OneOf:
            return ["one_of", [describe_space(part) for part in space.spaces]]
    raise ConfigError(
        f"{type(space).__name__} is a custom space, which no client knows; leave it out by env.without, "
        "or wrap the environment"
    )


def build_space(plain: Any) -> Space:
    """Build the space that `describe_space` described; raises DecodeError where there is none."""
    try:
        kind, *parts = plain
        return _build(kind, parts)
    except REFUSALS as error:
        raise DecodeError(f"no space: {' '.join(str(error).split())[:200]}") from error


def _build(kind: str, parts: list[Any]) -> Space:
    match kind, parts:
        case "box", [low, high, dtype]:
            return spaces.Box(low, high, low.shape, np.dtype(dtype).type)
        case "discrete", [n, start, dtype]:
            return spaces.Discrete(n, start=start, dtype=np.dtype(dtype).type)
        case "multi_discrete", [nvec, start, dtype]:
            return spaces.MultiDiscrete(nvec, dtype=np.dtype(dtype).type, start=start)
        case "multi_binary", [n]:
            return spaces.MultiBinary(n)
        case "text", [least, most, characters]:
            return spaces.Text(most, min_length=least, charset=characters)
        case "tuple", [each]:
            return spaces.Tuple([build_space(part) for part in each])
        case "dict", [each]:
            return spaces.Dict([(key, build_space(part)) for key, part in each])
        case "sequence", [feature, stack]:
            return spaces.Sequence(build_space(feature), stack=stack)
        case "graph", [node, edge]:
            return spaces.Graph(build_space(node), None if edge is None else build_space(edge))
        case "one_of", [each]:
            return spaces.OneOf([build_space(part) for part in each])
    raise DecodeError(f"{kind!r} is no kind of space")
