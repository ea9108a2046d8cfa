"""Wrapper that moves action masks from infos to observations."""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paddock.envs.errors import ConfigError, nearest, require
from paddock.envs.spaces.legal import MASK
from paddock.envs.vector.contract import EnvError


class ActionMask(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that adds an info's action mask to the observation under the key `action_mask`.

    A mask has 1 for each legal and 0 for each illegal choice: n entries for a Discrete, sum(nvec) for a MultiDiscrete,
    two per bit (0, then 1) for a MultiBinary. It may be a tuple of one array per component, as for
    `MultiDiscrete.sample`. Masks of a Dict or Tuple have its structure; choices without a mask are all legal.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], key: str = MASK) -> None:
        """Wrap an environment.

        Args:
            env: an environment with choices among its actions.
            key: of the mask in the infos.

        Raises:
            ConfigError: there are no choices to mask, or observations already have an `action_mask`.
        """
        super().__init__(env)
        self._key = key
        masks = _mask_space(env.action_space)
        if masks is None:
            raise ConfigError(f"env.wrappers: the action space {env.action_space} has no choices to mask; remove it")
        self._masks = masks
        inner = env.observation_space
        self._within = isinstance(inner, spaces.Dict)
        components = dict(inner.spaces) if isinstance(inner, spaces.Dict) else {"observation": inner}
        there = f"env.wrappers: observations already have '{MASK}'; remove the wrapper"
        require(MASK not in components, there)
        self.observation_space = spaces.Dict({**components, MASK: masks})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; raise EnvError if the info has no mask of this action space."""
        obs, info = self.env.reset(seed=seed, options=options)
        return self._with_mask(obs, info, False), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step; raise EnvError as in `reset`, except that an episode's last info needs no mask."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self._with_mask(obs, info, terminated or truncated), reward, terminated, truncated, info

    def _with_mask(self, obs: Any, info: dict[str, Any], over: bool) -> Any:
        if self._key not in info and not over:
            raise EnvError(
                f"ActionMask: the info has no '{self._key}'; {nearest(self._key, map(str, info))}; name the mask by "
                "env.wrappers: key"
            )
        mask = _read(self._masks, info.get(self._key), self._key)
        return {**(obs if self._within else {"observation": obs}), MASK: mask}


def _mask_space(action: gymnasium.Space) -> gymnasium.Space | None:
    """Return the space of masks of an action space; None if it has no choices."""
    match action:
        case spaces.Discrete():
            return spaces.MultiBinary(int(action.n))
        case spaces.MultiDiscrete():
            return spaces.MultiBinary(int(action.nvec.sum()))
        case spaces.MultiBinary():
            return spaces.MultiBinary(2 * int(np.prod(action.shape)))
        case spaces.Dict() | spaces.Tuple():
            components = action.spaces.items() if isinstance(action, spaces.Dict) else enumerate(action.spaces)
            found = {key: _mask_space(part) for key, part in components}
            kept: dict[Any, gymnasium.Space] = {key: part for key, part in found.items() if part is not None}
            # A Dict for a Tuple, too: its keys are the positions of the choices.
            return spaces.Dict(kept) if kept else None
    return None


def _read(space: gymnasium.Space, mask: Any, key: str) -> Any:
    """Return a mask as an element of its space; None allows everything."""
    if isinstance(space, spaces.MultiBinary):
        return np.ones(space.shape, np.int8) if mask is None else _read_array(space.shape, mask, key)
    assert isinstance(space, spaces.Dict), space
    given = dict(enumerate(mask)) if isinstance(mask, tuple | list) else mask
    if given is None:
        given = {}
    if not isinstance(given, Mapping) or any(given[name] is not None for name in given.keys() - space.spaces.keys()):
        components = ", ".join(map(str, space.spaces))
        raise EnvError(f"ActionMask: info.{key} must be a mapping with masks of {components}, and it is {mask}")
    return {name: _read(part, given.get(name), f"{key}.{name}") for name, part in space.spaces.items()}


def _read_array(shape: tuple[int, ...], mask: Any, key: str) -> NDArray[np.int8]:
    components = mask if isinstance(mask, tuple) else (mask,)
    flat = np.concatenate([np.asarray(part).ravel() for part in components]) if components else np.zeros(0)
    if flat.shape != shape or flat.dtype.kind not in "biuf" or ((flat != 0) & (flat != 1)).any():
        allowed = f"{shape[0]} numbers, 1 for a legal choice and 0 for another"
        raise EnvError(f"ActionMask: info.{key} is {flat.tolist()}; allowed: {allowed}")
    return flat.astype(np.int8)
