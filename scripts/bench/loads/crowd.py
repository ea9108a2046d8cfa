"""A world of many agents whose steps were made beforehand, so that one costs next to nothing of its own."""

from typing import Any

import numpy as np
from gymnasium import spaces

LENGTH = 1000  # steps of an episode


class Crowd:
    """Gives all agents the same ten numbers each, whatever they do; all are cut off after so many steps."""

    metadata = {"render_modes": [], "name": "crowd"}  # noqa: RUF012
    render_mode = None

    def __init__(self, agents: int) -> None:
        self.possible_agents = [f"agent_{k}" for k in range(agents)]
        self.agents: list[str] = []
        self._space, self._actions = spaces.Box(-10, 10, (10,), np.float32), spaces.Discrete(4)
        draw = np.random.default_rng(0)
        self._seen = {agent: draw.normal(size=10).astype(np.float32) for agent in self.possible_agents}
        self._paid = {agent: float(draw.normal()) for agent in self.possible_agents}
        self._no, self._yes = (dict.fromkeys(self.possible_agents, flag) for flag in (False, True))
        self._infos: dict[str, Any] = {agent: {} for agent in self.possible_agents}

    @property
    def unwrapped(self) -> "Crowd":
        """Itself."""
        return self

    def observation_space(self, agent: str) -> spaces.Box:
        """Ten numbers."""
        return self._space

    def action_space(self, agent: str) -> spaces.Discrete:
        """Four choices."""
        return self._actions

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        """Begin."""
        self._left, self.agents = LENGTH, self.possible_agents
        return self._seen, self._infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Go on."""
        self._left -= 1
        if not self._left:
            self.agents = []
            return self._seen, self._paid, self._no, self._yes, self._infos
        return self._seen, self._paid, self._no, self._no, self._infos

    def render(self) -> None:
        """Draw nothing."""

    def close(self) -> None:
        """Close nothing."""
