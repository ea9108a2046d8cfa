"""Batches of off-policy updates."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Batch:
    """Transitions for U updates, B each."""

    ids: NDArray[np.int64]  # [U, B], replay rows of their first steps
    obs: NDArray[Any]  # [U, B, *shape] for a Box, [U, B] packed rows for any other space
    action: NDArray[Any]  # [U, B, K], in the head's internal form
    reward: Floats  # [U, B], discounted sum over m steps: n, or fewer if the episode ended
    next_obs: NDArray[Any]  # [U, B, ...], after these steps, in the same episode
    discount: Floats  # [U, B], gamma^m; 0 where the episode terminated
    weight: Floats  # [U, B], importance weights; 1 for uniform sampling


@dataclass(frozen=True)
class SequenceBatch:
    """B sequences for one update: L = burn_in + length + n observations, `length` of which are learned from.

    Episodes may begin and end inside. Learned steps follow the burn-in and count from 0.
    """

    ids: NDArray[np.int64]  # [1, B], sequences of the replay
    obs: NDArray[Any]  # [L, B, *shape] for a Box, [L, B] packed rows for any other space
    start: NDArray[np.bool_]  # [L, B], True where an episode begins after the first step
    state: Floats  # [B, S], recurrent state before the first step, as stored when acting
    action: NDArray[Any]  # [length, B, K], in the head's internal form
    reward: Floats  # [length, B], discounted sum over m steps: n, or fewer if the episode ended
    discount: Floats  # [length, B], gamma^m; 0 where the episode terminated
    last: NDArray[np.int64]  # [length, B], last step of the n-step return
    final_at: NDArray[np.int64]  # [F, 2], steps (t, b) that truncated an episode
    final_obs: NDArray[Any]  # [F, ...], final observations of these steps
    weight: Floats  # [B], importance weights; 1 for uniform sampling
