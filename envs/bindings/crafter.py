"""Crafter (Hafner 2021, arXiv:2109.06780) as a Gymnasium environment, on seeds.

It has the form of old Gym, its `reset` takes no seed, and which of several creatures goes depends on where in memory
they lie. All of that is mended here; nothing else is changed.
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
    """As much of a set as the world needs of one, in order of insertion."""

    def add(self, item: Any) -> None:
        """Put an item in."""
        self[item] = None

    def remove(self, item: Any) -> None:
        """Take an item out."""
        del self[item]


class OrderedWorld(crafter.engine.World):
    """The world, whose creatures stand in an order of their own."""

    def reset(self, seed: int | None = None) -> None:
        """Empty the world."""
        super().reset(seed)
        self._chunks: dict[Any, Ordered] = collections.defaultdict(Ordered)


class Crafter(gymnasium.Env[NDArray[np.uint8], Any]):
    """Crafter's world; its infos have the inventory, the achievements and the map."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012, Gymnasium's

    def __init__(self, *, reward: bool, render_mode: str | None = None) -> None:
        """Make the world.

        Args:
            reward: whether achievements and health are rewarded; if not, all rewards are 0.
        """
        self.render_mode = render_mode
        self._game = crafter.Env(reward=reward, length=None, seed=0)  # Gymnasium's limit truncates
        self._game._world.__class__ = OrderedWorld  # what draws has a reference to it already
        self.observation_space = Box(0, 255, (64, 64, 3), np.uint8)
        self.action_space = Discrete(len(self._game.action_names))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Start an episode in the world of a seed, or in the next of the last seed's worlds."""
        super().reset(seed=seed)
        if seed is not None:
            self._game._seed, self._game._episode = seed, 0
        return self._game.reset(), {}

    def step(self, action: int) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Take an action; who dies has reached the end."""
        observation, reward, over, info = self._game.step(int(action))
        return observation, float(reward), bool(over), False, info

    def render(self) -> NDArray[np.uint8] | None:
        """Draw what is seen, [512, 512, 3]."""
        return None if self.render_mode is None else self._game.render((512, 512))


gymnasium.register("paddock/Crafter-v1", f"{__name__}:Crafter", max_episode_steps=MAX_STEPS)
