"""Tasks whose best policy without memory is a random one: what a policy draws must be what it says that it draws."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paddock.envs.errors import require
from paddock.envs.ranges import check_numbers, check_whole_numbers
from paddock.envs.registration import NativeVersion, register
from paddock.envs.sanity import native
from paddock.envs.sanity.task import Bar, SanityTask, mean_return

BLEND = SanityTask(
    name="blend",
    id="paddock.envs.sanity:paddock/Blend-v0",
    score=mean_return,
    chance=4 / 16,
    blind=0.0,  # of a policy that always does the same
    best=1.0,  # with memory; without, 4 (3/4)^3 (1/4) = 0.4219
    memoryless=Bar(0.38, 0.46),
    recurrent=Bar(0.95),
    deterministic=Bar(high=0.05),  # a limit of such policies, and no mistake
    steps=100_000,
    drawn=True,
    episodes=2_000,
    suspect="sampling: what is drawn is not what log-probabilities say; above 0.46 without memory, a state leaks",
)
PUFFER_STOCHASTIC = SanityTask(
    name="puffer_stochastic",
    id="paddock.envs.sanity:paddock/PufferStochastic-v0",
    score=mean_return,
    chance=45.874,
    blind=0.0,  # of a policy that always does the same
    best=68.93,  # with memory
    memoryless=Bar(50.0, 54.0),
    recurrent=None,  # "Do not use a policy with memory, as that will trivialize the problem", says its author
    deterministic=None,
    steps=100_000,
    drawn=True,
    episodes=100,
    suspect="sampling: what is drawn is not what log-probabilities say; above 54 without memory, a state leaks",
)


class Blend(gymnasium.Env[NDArray[np.float32], np.int64]):
    """Play so many moves, 0 or 1: 1 at the end if exactly `zeros` of them were 0; nothing is seen."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, moves: int, zeros: int, render_mode: str | None = None) -> None:
        """Make the task."""
        check_whole_numbers(moves=moves, zeros=zeros)
        require(0 <= zeros <= moves and moves >= 1, f"zeros={zeros} must be between 0 and moves={moves}")
        self.render_mode = render_mode
        self.observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._moves, self._zeros = moves, zeros

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin to count."""
        super().reset(seed=seed)
        self._played = self._count = 0
        return np.ones(1, np.float32), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Play a move."""
        self._played += 1
        self._count += int(action) == 0
        over = self._played == self._moves
        return np.ones(1, np.float32), float(over and self._count == self._zeros), over, False, {}


class PufferStochastic(gymnasium.Env[NDArray[np.float32], np.int64]):
    """Play 0 so often and 1 else: a move that brings the share of zeros f to p gives 1 - (p - f)^2, any other 0.

    PufferLib's rules. To play 0 with probability p, as is meant there, returns less than to play both alike.
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, share: float, horizon: int, render_mode: str | None = None) -> None:
        """Make the task for a share p, and episodes of so many moves."""
        check_numbers(share=share)
        check_whole_numbers(horizon=horizon)
        require(0 <= share <= 1 and horizon >= 1, f"share={share} must be in [0, 1], and horizon={horizon} at least 1")
        self.render_mode = render_mode
        self.observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._share, self._horizon = share, horizon

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begin to count."""
        super().reset(seed=seed)
        self._played = self._count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Play a move."""
        self._played += 1
        self._count += int(action) == 0
        share = self._count / self._played
        towards = (int(action) == 0) == (share < self._share)
        reward = 1 - (self._share - share) ** 2 if towards else 0.0
        return np.zeros(1, np.float32), reward, self._played == self._horizon, False, {}


register(f"{__name__}:Blend", kwargs={"moves": 4, "zeros": 3}, native=NativeVersion("sanity_blend", native.settings))
register(
    f"{__name__}:PufferStochastic",
    kwargs={"share": 0.7, "horizon": 100},
    native=NativeVersion("sanity_stochastic", native.stochastic),
)
