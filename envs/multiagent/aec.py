"""Adapter of PettingZoo's agent-environment-cycle API (AECEnv), in which one agent acts at a time."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, final

from paddock.envs.multiagent.adapter import Adapter
from paddock.envs.multiagent.env import ByAgent, Step

CYCLE = ("possible_agents", "agent_iter", "observe", "last")  # attributes that identify an AECEnv


@final
class AECAdapter(Adapter):
    """Adapter of an AECEnv: a step takes the action of one agent and returns the rewards of all.

    As the API requires, agents that terminated are stepped once more with None before the next agent's turn.
    """

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[ByAgent, ByAgent]:
        """Start an episode."""
        self.env.reset(seed=seed, options=options)
        self._update()
        return self._observe(self.agents), self._select(self.env.infos, self.agents, {})

    def step(self, actions: dict[str, Any]) -> Step:
        """Take the action of the agent whose turn it is."""
        env, lived = self.env, self.agents
        env.step(actions[self.acting[0]])
        terminated, truncated = (
            self._select(env.terminations, lived, False),
            self._select(env.truncations, lived, False),
        )
        rewards, infos = dict(env.rewards), self._select(env.infos, lived, {})
        observations = self._observe(env.agents)
        self._update()
        return observations, rewards, terminated, truncated, infos

    def _observe(self, agents: Sequence[str]) -> ByAgent:
        """Return observations; copies, since an environment may reuse one array."""
        return {agent: deepcopy(self.env.observe(agent)) for agent in agents}

    def _update(self) -> None:
        env = self.env
        self.agents = [agent for agent in env.agents if not self._ended(agent)]
        while self.agents and self._ended(env.agent_selection):
            env.step(None)
        self.acting = [env.agent_selection] if self.agents else []

    def _ended(self, agent: str) -> bool:
        return bool(self.env.terminations[agent] or self.env.truncations[agent])

    def _select(self, values: Mapping[str, Any], agents: Sequence[str], default: Any) -> dict[str, Any]:
        return {agent: values.get(agent, default) for agent in agents}
