"""Relay: agents leave one after another and one returns. Tests the handling of dead agents."""

from typing import Any

import numpy as np
from gymnasium import spaces

from paddock.envs.multiagent.env import ByAgent, Step
from paddock.envs.sanity.task import Bar, SanityTask, mean_return
from paddock.envs.task_env import MultiAgentTaskEnv

RELAY = SanityTask(
    name="relay",
    id="paddock.envs.sanity.relay:Relay",
    score=mean_return,  # of agents' lives
    chance=0.5,
    blind=0.5,
    memoryless=Bar(0.95),
    recurrent=Bar(0.95),
    deterministic=Bar(0.92),
    steps=30_000,
    suspect="multi-agent rows: learning from dead agents, or wrong boundaries of agents' lives",
)
# By agent: (first step, end) of its lives. The first runner runs twice.
LIVES = {"runner_0": ((0, 1), (2, 4)), "runner_1": ((0, 2),), "runner_2": ((0, 3),)}


class Relay(MultiAgentTaskEnv):
    """Runners report a cue, -1 or 1, in every step, by action 0 or 1; a life returns the share of correct answers.

    Runners leave after 1, 2 and 3 steps; after the second step the first one returns for two more.
    """

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(dict.fromkeys(LIVES, spaces.Box(-1.0, 1.0, (1,), np.float32)), spaces.Discrete(2), render_mode)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[ByAgent, ByAgent]:
        """Start all runners."""
        self._begin(seed)
        self._now = 0
        return self._observe(self.agents), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Step:
        """Reward the answers and remove runners that are done."""
        ran = self.agents
        paid = {}
        for agent in ran:
            first, last = next((a, b) for a, b in LIVES[agent] if a <= self._now < b)
            paid[agent] = (int(actions[agent]) == self._cues[agent]) / (last - first)
        self._now += 1
        self.agents = [agent for agent, lives in LIVES.items() if any(a <= self._now < b for a, b in lives)]
        gone = {agent: agent not in self.agents for agent in ran}
        seen = self._observe([agent for agent in LIVES if agent in ran or agent in self.agents])
        return seen, paid, gone, dict.fromkeys(ran, False), {agent: {} for agent in seen}

    def _observe(self, agents: list[str]) -> dict[str, Any]:
        self._cues = {agent: int(self._generator.integers(2)) for agent in agents}
        return {agent: np.array([2 * cue - 1], np.float32) for agent, cue in self._cues.items()}
