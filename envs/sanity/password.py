"""Password: five bits, and a reward for all of them alone. Who stops exploring early never meets it."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paddock.envs.errors import require
from paddock.envs.registration import NativeVersion, register
from paddock.envs.sanity import native
from paddock.envs.sanity.task import Bar, SanityTask, mean_return

UNSET = -1.0

PASS = Bar(0.95)
PASSWORD = SanityTask(
    name="password",
    id="paddock.envs.sanity:paddock/Password-v0",
    score=mean_return,
    chance=1 / 32,
    blind=0.0,  # of who settles on another word
    best=1.0,
    memoryless=PASS,
    recurrent=PASS,
    deterministic=PASS,
    steps=60_000,
    suspect="exploration: entropy, or a policy that settles before it meets a reward",
)
PUFFER_PASSWORD = SanityTask(
    name="puffer_password",
    id="paddock.envs.sanity:paddock/PufferPassword-v0",
    score=mean_return,
    chance=1 / 32,
    blind=0.0,
    best=1.0,
    memoryless=PASS,
    recurrent=PASS,
    deterministic=PASS,
    steps=60_000,
    suspect="exploration: entropy, or a policy that settles before it meets a reward",
)


class Password(gymnasium.Env[NDArray[np.float32], np.int64]):
    """Say the bits of a password, one a step: 1 if all were right, at the end; seen is what was said, else -1."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, password: Sequence[int], render_mode: str | None = None) -> None:
        """Make the task for a password of bits."""
        require(len(password) >= 1 and {*password} <= {0, 1}, f"password={password} must be bits, such as [1, 0, 1]")
        self.render_mode = render_mode
        self.observation_space = spaces.Box(-1.0, 1.0, (len(password),), np.float32)
        self.action_space = spaces.Discrete(2)
        self._password = np.array(password, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin with nothing said."""
        super().reset(seed=seed)
        self._said, self._count = np.full_like(self._password, UNSET), 0
        return self._said.copy(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Say a bit."""
        self._said[self._count] = int(action)
        self._count += 1
        over = self._count == len(self._password)
        return self._said.copy(), float(over and np.array_equal(self._said, self._password)), over, False, {}


NATIVE = NativeVersion("sanity_password", native.password)
register(f"{__name__}:Password", kwargs={"password": [1, 0, 1, 1, 0]}, native=NATIVE)
register(f"{__name__}:Password", name="PufferPassword", kwargs={"password": [0, 1, 0, 0, 0]}, native=NATIVE)
