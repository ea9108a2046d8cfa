"""What off-policy updates learn from."""

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
