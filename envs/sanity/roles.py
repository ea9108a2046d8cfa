"""Roles: each of two agents is paid for its own number. What fails here confuses the rows of agents."""

from typing import Any

import numpy as np
from gymnasium import spaces

from paddock.envs.multiagent.env import ByAgent, Step
from paddock.envs.ranges import check_bool
from paddock.envs.sanity.task import Bar, SanityTask, mean_return
from paddock.envs.task_env import MultiAgentTaskEnv

ROLES = SanityTask(
    name="roles",
    id="paddock.envs.sanity.roles:Roles",
    score=mean_return,  # of lives
    chance=0.5,
    blind=0.5,  # of one policy that does not see whose row it acts for
    memoryless=Bar(0.95),
    recurrent=Bar(0.95),
    deterministic=Bar(0.95),
    steps=20_000,
    suspect="worlds of several agents: the order of rows, or which policy acts for which seat",
)


class Roles(MultiAgentTaskEnv):
    """Two agents see their numbers, 0 and 1, and are paid 1 for saying them; one step. After PufferLib's Multiagent."""

    def __init__(self, blind: bool = False, render_mode: str | None = None) -> None:
        """Make the task.

        Args:
            blind: whether both see 0, so that policies of their own alone can tell them apart.
        """
        check_bool(blind=blind)
        self._blind = blind
        seen = dict.fromkeys(("player_0", "player_1"), spaces.Box(0.0, 1.0, (1,), np.float32))
        super().__init__(seen, spaces.Discrete(2), render_mode)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[ByAgent, ByAgent]:
        """Show the numbers, as always."""
        self._begin(seed)
        return self._see(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Step:
        """Pay for what was said."""
        self.agents = []
        over = dict.fromkeys(self.possible_agents, True)
        going = dict.fromkeys(self.possible_agents, False)
        paid = {agent: float(int(actions[agent]) == k) for k, agent in enumerate(self.possible_agents)}
        return self._see(), paid, over, going, {agent: {} for agent in self.possible_agents}

    def _see(self) -> dict[str, Any]:
        numbers = ((agent, 0 if self._blind else k) for k, agent in enumerate(self.possible_agents))
        return {agent: np.array([number], np.float32) for agent, number in numbers}
