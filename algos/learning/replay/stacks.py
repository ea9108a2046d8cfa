"""Stacks of frames: rows have the newest frame alone, and `Observations` stacks them when they are drawn."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.envs.errors import require
from paddock.envs.stacks import Stack

Array = NDArray[Any]


def row_of(obs: np.dtype[Any], stack: Stack | None) -> np.dtype[Any]:
    """Return what is kept of one observation in a row."""
    return obs if stack is None else np.dtype((obs.base, obs.shape[1:]))


def newest_of(obs: Array, stack: Stack | None) -> Array:
    """Return what is kept of observations [R, *shape] in rows."""
    return obs if stack is None else obs[:, -1]


def check_stacks(rollout: Rollout, stack: Stack) -> None:
    """Raise ConfigError where an observation of a rollout is no stack of what came before it."""
    every = np.concatenate([rollout.obs, rollout.last_obs[None]])
    older, starts = every[:, :, :-1], rollout.starts
    same = (older[1:] == every[:-1, :, 1:]).reshape(*rollout.reward.shape, -1).all(axis=2)
    began = np.concatenate([starts[1:], (rollout.terminated[-1:] | rollout.truncated[-1:])])
    padded = (older == (0 if stack.zeros else every[:, :, -1:])).reshape(len(every), rollout.reward.shape[1], -1)
    right = np.where(began, padded.all(axis=2)[1:], same)
    t, n = rollout.final_at.T
    finals = (rollout.final_obs[:, :-1] == rollout.obs[t, n][:, 1:]).all()
    what = f"an observation is not the frame before it and {stack.frames - 1} older ones"
    remedy = "put FrameStackObservation behind whatever else changes observations, at the end of env.wrappers"
    require(bool(right.all() and finals), f"{what}, as its stack says; {remedy}")
