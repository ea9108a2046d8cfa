"""Batches of off-policy updates."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Batch:
    """Transitions for U updates, B each."""

    ids: NDArray[np.int64]  # [U, B], which rows of the replay they begin at
    obs: NDArray[Any]  # [U, B, *shape] of a Box, [U, B] rows of any other space
    action: NDArray[Any]  # [U, B, K], as the head has them inside
    reward: Floats  # [U, B], the discounted sum of the m steps taken: n, or fewer where the episode ended
    next_obs: NDArray[Any]  # [U, B, ...], that the last of these led to, of the same episode
    discount: Floats  # [U, B], gamma^m; 0 where the episode terminated
    weight: Floats  # [U, B], of importance; 1 where all are drawn alike


@dataclass(frozen=True)
class SequenceBatch:
    """B sequences for one update: L = burn_in + length + n observations, of which `length` are learned from.

    Episodes may begin and end inside. The learned steps are those behind the first burn_in ones, and count from 0.
    """

    ids: NDArray[np.int64]  # [1, B], which sequences of the replay they are
    obs: NDArray[Any]  # [L, B, *shape] of a Box, [L, B] rows of any other space
    start: NDArray[np.bool_]  # [L, B], whether an episode begins there; not of the first, where `state` says it
    state: Floats  # [B, S], the policy's memory before the first, when it was played
    action: NDArray[Any]  # [length, B, K], as the head has them inside
    reward: Floats  # [length, B], the discounted sum of the m steps taken: n, or fewer where the episode ended
    discount: Floats  # [length, B], gamma^m; 0 where the episode terminated
    last: NDArray[np.int64]  # [length, B], the step that was the last of these
    final_at: NDArray[np.int64]  # [F, 2], the steps (t, b) that truncated an episode
    final_obs: NDArray[Any]  # [F, ...], and the observations that they led to
    weight: Floats  # [B], of importance; 1 where all are drawn alike
