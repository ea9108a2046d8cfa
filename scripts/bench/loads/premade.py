"""Environments with pregenerated observations, whose steps cost almost nothing."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

LENGTH = 100  # steps of an episode

SPACES: dict[str, spaces.Dict] = {
    # PufferLib's test environment of this name.
    "Spaces": spaces.Dict(image=spaces.Box(-1, 1, (5, 5), np.float32), flat=spaces.Box(-1, 1, (5,), np.int8)),
    "MiniGrid": spaces.Dict(direction=spaces.Discrete(4), image=spaces.Box(0, 255, (7, 7, 3), np.uint8)),
}
PICTURES = spaces.Box(0, 255, (4, 84, 84), np.uint8)  # as in Atari games


class Premade(gymnasium.Env[Any, Any]):
    """Environment that replays pregenerated observations, without rewards."""

    metadata = {"render_modes": []}  # noqa: RUF012
    action_space = spaces.Discrete(4)

    def __init__(self, space: str | spaces.Space[Any]) -> None:
        """Generate the observations of a space, given by itself or by its name."""
        named: Any = {**SPACES, "Pictures": PICTURES}
        self.observation_space = named[space] if isinstance(space, str) else space
        self.observation_space.seed(1)
        self._made = [self.observation_space.sample() for _ in range(LENGTH + 1)]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Return the first observation."""
        self._at = 0
        return self._made[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Return the next observation."""
        self._at += 1
        return self._made[self._at], 0.0, self._at == LENGTH, False, {}


for _name in (*SPACES, "Pictures"):
    gymnasium.register(f"bench/{_name}-v0", f"{__name__}:Premade", kwargs={"space": _name})
