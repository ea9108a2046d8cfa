"""Password: five bits, with a reward only if all are correct. Needs sustained exploration."""

from collections.abc import Sequence

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paddock.envs.errors import require
from paddock.envs.registration import register
from paddock.envs.sanity.task import Bar, SanityTask
from paddock.envs.task_env import TaskEnv

UNSET = -1.0

PASS = Bar(0.95)
PASSWORD = SanityTask(
    name="password",
    id="paddock.envs.sanity:paddock/Password-v0",
    chance=1 / 32,
    blind=0.0,  # converged to another word
    memoryless=PASS,
    recurrent=PASS,
    deterministic=PASS,
    steps=60_000,
    suspect="exploration: entropy, or a policy that converges before it finds a reward",
)


class Password(TaskEnv):
    """Enter a password, one bit per step, for a final reward of 1; observations are the bits entered, else -1."""

    def __init__(self, password: Sequence[int], render_mode: str | None = None) -> None:
        """Build the task for a password of bits."""
        require(len(password) >= 1 and {*password} <= {0, 1}, f"password={password} must be bits, such as [1, 0, 1]")
        super().__init__(spaces.Box(-1.0, 1.0, (len(password),), np.float32), spaces.Discrete(2), render_mode)
        self._password = np.array(password, np.float32)

    def _begin(self, draw: np.random.Generator) -> None:
        self._said, self._count = np.full_like(self._password, UNSET), 0

    def _play(self, action: np.int64) -> tuple[float, bool]:
        self._said[self._count] = int(action)
        self._count += 1
        over = self._count == len(self._password)
        return float(over and np.array_equal(self._said, self._password)), over

    def _observe(self) -> NDArray[np.float32]:
        return self._said.copy()


register(f"{__name__}:Password", kwargs={"password": [1, 0, 1, 1, 0]})
