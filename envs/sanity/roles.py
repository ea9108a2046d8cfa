"""Roles: each of two agents is paid for its own number. What fails here confuses the rows of agents."""

from typing import Any

import numpy as np
from gymnasium import Space, spaces

from paddock.envs.ranges import check_bool
from paddock.envs.sanity.task import Bar, SanityTask, mean_return
from paddock.envs.worlds.world import Step, Told

ROLES = SanityTask(
    name="roles",
    id="paddock.envs.sanity.roles:Roles",
    score=mean_return,  # of lives
    chance=0.5,
    blind=0.5,  # of one policy that does not see whose row it acts for
    best=1.0,
    memoryless=Bar(0.95),
    recurrent=Bar(0.95),
    deterministic=Bar(0.95),
    steps=20_000,
    suspect="worlds of several agents: the order of rows, or which policy acts for which seat",
)


class Roles:
    """Two agents see their numbers, 0 and 1, and are paid 1 for saying them; one step. After PufferLib's Multiagent."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012
    possible_agents = ("player_0", "player_1")

    def __init__(self, blind: bool = False, render_mode: str | None = None) -> None:
        """Make the task.

        Args:
            blind: whether both see 0, so that policies of their own alone can tell them apart.
        """
        check_bool(blind=blind)
        self.render_mode = render_mode
        self.agents: list[str] = []
        self._blind = blind
        self._spaces = spaces.Box(0.0, 1.0, (1,), np.float32), spaces.Discrete(2)

    @property
    def unwrapped(self) -> "Roles":
        """The world itself, as PettingZoo's tools ask for it."""
        return self

    def observation_space(self, agent: str) -> Space:
        """Return what an agent sees: its number."""
        return self._spaces[0]

    def action_space(self, agent: str) -> Space:
        """Return what it may say."""
        return self._spaces[1]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Told, Told]:
        """Show the numbers, as always."""
        self.agents = list(self.possible_agents)
        return self._see(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Step:
        """Pay for what was said."""
        self.agents = []
        over = dict.fromkeys(self.possible_agents, True)
        going = dict.fromkeys(self.possible_agents, False)
        paid = {agent: float(int(actions[agent]) == k) for k, agent in enumerate(self.possible_agents)}
        return self._see(), paid, over, going, {agent: {} for agent in self.possible_agents}

    def render(self) -> None:
        """Draw nothing."""

    def close(self) -> None:
        """Close nothing."""

    def _see(self) -> dict[str, Any]:
        numbers = ((agent, 0 if self._blind else k) for k, agent in enumerate(self.possible_agents))
        return {agent: np.array([number], np.float32) for agent, number in numbers}
