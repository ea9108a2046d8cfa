"""Crafter (Hafner 2021, arXiv:2109.06780) as a seeded Gymnasium environment.

Crafter has the API of old Gym, its `reset` takes no seed, and the order of its creatures depends on their memory
addresses. This module fixes these three things and changes nothing else.
"""

import collections
from typing import Any

import crafter
import crafter.engine
import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

MAX_STEPS = 10_000


class Ordered(dict[Any, None]):
    """Set in order of insertion, with the methods that Crafter uses."""

    def add(self, item: Any) -> None:
        """Add an item."""
        self[item] = None

    def remove(self, item: Any) -> None:
        """Remove an item."""
        del self[item]


class OrderedWorld(crafter.engine.World):
    """Crafter's world with a deterministic order of creatures."""

    def reset(self, seed: int | None = None) -> None:
        """Clear the world."""
        super().reset(seed)
        self._chunks: dict[Any, Ordered] = collections.defaultdict(Ordered)


class Crafter(gymnasium.Env[NDArray[np.uint8], Any]):
    """Crafter; infos contain inventory, achievements and map."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012, Gymnasium's

    def __init__(self, *, reward: bool, render_mode: str | None = None) -> None:
        """Build the environment; without `reward` all rewards are 0."""
        self.render_mode = render_mode
        self._game = crafter.Env(reward=reward, length=None, seed=0)  # Gymnasium adds the time limit
        self._game._world.__class__ = OrderedWorld  # its users already hold references to it
        self.observation_space = Box(0, 255, (64, 64, 3), np.uint8)
        self.action_space = Discrete(len(self._game.action_names))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Start an episode in the world of a seed, or in the next world of the last seed."""
        super().reset(seed=seed)
        if seed is not None:
            self._game._seed, self._game._episode = seed, 0
        return self._game.reset(), {}

    def step(self, action: int) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Take an action; death terminates the episode."""
        observation, reward, over, info = self._game.step(int(action))
        return observation, float(reward), bool(over), False, info

    def render(self) -> NDArray[np.uint8] | None:
        """Return an image, [512, 512, 3]."""
        return None if self.render_mode is None else self._game.render((512, 512))


gymnasium.register("paddock/Crafter-v1", f"{__name__}:Crafter", max_episode_steps=MAX_STEPS)
