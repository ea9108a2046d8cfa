"""Frame stacks: rows store only the newest frame, and `Observations` stacks frames when gathering."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.learning.rollouts.rollout import Rollout
from paddock.envs.errors import require
from paddock.envs.stacks import Stack

Array = NDArray[Any]


def row_of(obs: np.dtype[Any], stack: Stack | None) -> np.dtype[Any]:
    """Return the stored dtype of an observation."""
    return obs if stack is None else np.dtype((obs.base, obs.shape[1:]))


def newest_of(obs: Array, stack: Stack | None) -> Array:
    """Return the stored part of observations [R, *shape]."""
    return obs if stack is None else obs[:, -1]


def check_stacks(rollout: Rollout, stack: Stack) -> None:
    """Raise ConfigError unless every observation of a rollout stacks the preceding frames."""
    every = np.concatenate([rollout.obs, rollout.last_obs[None]])
    older, starts = every[:, :, :-1], rollout.starts
    same = (older[1:] == every[:-1, :, 1:]).reshape(*rollout.reward.shape, -1).all(axis=2)
    began = np.concatenate([starts[1:], (rollout.terminated[-1:] | rollout.truncated[-1:])])
    padded = (older == (0 if stack.zeros else every[:, :, -1:])).reshape(len(every), rollout.reward.shape[1], -1)
    right = np.where(began, padded.all(axis=2)[1:], same)
    t, n = rollout.final_at.T
    finals = (rollout.final_obs[:, :-1] == rollout.obs[t, n][:, 1:]).all()
    what = f"an observation is not a stack of the last {stack.frames} frames"
    remedy = "put FrameStackObservation last in env.wrappers, after all wrappers that change observations"
    require(bool(right.all() and finals), f"{what}; {remedy}")
