"""Roles: each of two agents must report its own number. Tests the assignment of rows to agents."""

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
    score=mean_return,  # of agents' lives
    chance=0.5,
    blind=0.5,  # of one policy that does not observe for which agent it acts
    memoryless=Bar(0.95),
    recurrent=Bar(0.95),
    deterministic=Bar(0.95),
    steps=20_000,
    suspect="multi-agent rows: their order, or the assignment of policies to agents",
)


class Roles(MultiAgentTaskEnv):
    """Two agents observe their numbers, 0 and 1, and get 1 for reporting them; one step. After PufferLib's Multiagent."""

    def __init__(self, blind: bool = False, render_mode: str | None = None) -> None:
        """Build the task; with `blind` both observe 0, so that they need separate policies."""
        check_bool(blind=blind)
        self._blind = blind
        seen = dict.fromkeys(("player_0", "player_1"), spaces.Box(0.0, 1.0, (1,), np.float32))
        super().__init__(seen, spaces.Discrete(2), render_mode)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[ByAgent, ByAgent]:
        """Return the numbers, which are always the same."""
        self._begin(seed)
        return self._see(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Step:
        """Reward the answers and end the episode."""
        self.agents = []
        over = dict.fromkeys(self.possible_agents, True)
        going = dict.fromkeys(self.possible_agents, False)
        paid = {agent: float(int(actions[agent]) == k) for k, agent in enumerate(self.possible_agents)}
        return self._see(), paid, over, going, {agent: {} for agent in self.possible_agents}

    def _see(self) -> dict[str, Any]:
        numbers = ((agent, 0 if self._blind else k) for k, agent in enumerate(self.possible_agents))
        return {agent: np.array([number], np.float32) for agent, number in numbers}
