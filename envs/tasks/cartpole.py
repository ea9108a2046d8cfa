"""CartPole as a batched NumPy simulation: Gymnasium's, with resets by the caller.

`vec=vector vec.target=paddock.envs.tasks.cartpole.CartPoleVector` steps thousands of environments, a hundred times
faster than one by one.
"""

from typing import Any

import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray


class CartPoleVector(CartPoleVectorEnv):
    """`CartPoleVectorEnv` without autoreset; Gymnasium's next-step autoreset adds steps that rollouts must skip."""

    metadata = {**CartPoleVectorEnv.metadata, "autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012

    def step(
        self, action: NDArray[np.integer[Any]]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Step all environments, including those whose episode is over."""
        self.prev_done[:] = False  # disables Gymnasium's autoreset
        return super().step(action)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start all episodes, or those selected by `options["reset_mask"]` ([N] bool)."""
        options = dict(options or {})
        mask = options.pop("reset_mask", None)
        if mask is None:
            return super().reset(seed=seed, options=options)
        assert self.state is not None
        self.state[:, mask] = self.np_random.uniform(self.low, self.high, (4, int(mask.sum())))
        self.steps[mask] = 0
        return self.state.T.astype(np.float32), {}
