"""Random actions that a mask allows, for who steps environments without a policy."""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

MASK = "action_mask"  # the observation in which policies look for masks


def sample_legal(space: gymnasium.Space[Any], mask: Any) -> Any:
    """Draw a legal action, by the action space's own generator.

    Args:
        mask: as observations have it (see `paddock.envs.masks.ActionMask`), or as `space.sample` takes it; None: all is legal.
    """
    return space.sample(mask=_by_parts(space, mask))


def _by_parts(space: gymnasium.Space[Any], mask: Any) -> Any:
    """Return a mask in the form that Gymnasium's spaces sample by."""
    if mask is None:
        return None
    match space:
        case spaces.Discrete():
            return np.asarray(mask, np.int8)
        case spaces.MultiDiscrete():
            if isinstance(mask, tuple):
                return mask
            ends = np.cumsum(space.nvec.ravel())[:-1]
            return _nested(np.split(np.asarray(mask, np.int8), ends), space.nvec.shape)
        case spaces.MultiBinary():
            flat = np.asarray(mask, np.int8)
            if flat.shape == space.shape:
                return flat
            pairs = flat.reshape(*space.shape, 2)  # whether it may be 0, and whether it may be 1
            return np.where(pairs.all(-1), 2, pairs[..., 1]).astype(np.int8)
        case spaces.Dict():
            return {key: _by_parts(part, mask.get(key)) for key, part in space.spaces.items()}
        case spaces.Tuple():
            given = mask if isinstance(mask, Mapping) else dict(enumerate(mask))
            return tuple(_by_parts(part, given.get(k)) for k, part in enumerate(space.spaces))
    return None


def _nested(parts: list[NDArray[np.int8]], shape: tuple[int, ...]) -> tuple[Any, ...]:
    if len(shape) == 1:
        return tuple(parts)
    each = len(parts) // shape[0]
    return tuple(_nested(parts[k * each : (k + 1) * each], shape[1:]) for k in range(shape[0]))
