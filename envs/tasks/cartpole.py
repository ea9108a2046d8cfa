"""CartPole as one batched simulation in NumPy: Gymnasium's, with restarts that the caller asks for.

`vec=vector vec.target=paddock.envs.tasks.cartpole.CartPoleVector` steps thousands of them, a hundred times as fast as one by
one.
"""

from typing import Any

import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray


class CartPoleVector(CartPoleVectorEnv):
    """Gymnasium's `CartPoleVectorEnv` restarts in the next step, which a rollout would have to skip; this one waits."""

    metadata = {**CartPoleVectorEnv.metadata, "autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012

    def step(
        self, action: NDArray[np.integer[Any]]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Step all carts, those included whose episode is over."""
        self.prev_done[:] = False  # where Gymnasium notes what it would restart
        return super().step(action)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start all episodes, or those that `options["reset_mask"]` ([N] bool) picks."""
        options = dict(options or {})
        mask = options.pop("reset_mask", None)
        if mask is None:
            return super().reset(seed=seed, options=options)
        assert self.state is not None
        self.state[:, mask] = self.np_random.uniform(self.low, self.high, (4, int(mask.sum())))
        self.steps[mask] = 0
        return self.state.T.astype(np.float32), {}
