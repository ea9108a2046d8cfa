"""Random actions that an action mask allows."""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

MASK = "action_mask"  # observation key of masks


def sample_legal(space: gymnasium.Space[Any], mask: Any) -> Any:
    """Sample a legal action with the action space's generator.

    Args:
        space: the action space.
        mask: in the form of `paddock.envs.masks.ActionMask` or of `space.sample`; None: all actions are legal.
    """
    return space.sample(mask=_by_parts(space, mask))


def _by_parts(space: gymnasium.Space[Any], mask: Any) -> Any:
    """Convert a mask to the form of `Space.sample`."""
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
            pairs = flat.reshape(*space.shape, 2)  # 0 is legal, 1 is legal
            return np.where(pairs.all(-1), 2, pairs[..., 1]).astype(np.int8)
        case spaces.Dict():
            return {key: _by_parts(part, mask.get(key)) for key, part in space.spaces.items()}
        case spaces.Tuple():
            given = mask if isinstance(mask, Mapping) else dict(enumerate(mask))
            return tuple(_by_parts(part, given.get(k)) for k, part in enumerate(space.spaces))
    return None


def _nested(masks: list[NDArray[np.int8]], shape: tuple[int, ...]) -> tuple[Any, ...]:
    if len(shape) == 1:
        return tuple(masks)
    each = len(masks) // shape[0]
    return tuple(_nested(masks[k * each : (k + 1) * each], shape[1:]) for k in range(shape[0]))
