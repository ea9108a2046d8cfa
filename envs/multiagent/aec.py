"""PettingZoo's other form, in which one agent acts at a time (AECEnv), as a world that takes turns."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, final

from paddock.envs.multiagent.adapter import Adapter
from paddock.envs.multiagent.env import ByAgent, Step

CYCLE = ("possible_agents", "agent_iter", "observe", "last")  # what tells an AECEnv


@final
class AECAdapter(Adapter):
    """A world of turns: a step takes the action of one agent, and pays all of them what that step is worth to them.

    Agents that ended are stepped once more without an action, as that form has it, before the next one's turn.
    """

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[ByAgent, ByAgent]:
        """Start an episode."""
        self.env.reset(seed=seed, options=options)
        self._look()
        return self._seen(self.agents), self._of(self.env.infos, self.agents, {})

    def step(self, actions: dict[str, Any]) -> Step:
        """Take the action of the agent whose turn it is."""
        env, lived = self.env, self.agents
        env.step(actions[self.acting[0]])
        terminated, truncated = self._of(env.terminations, lived, False), self._of(env.truncations, lived, False)
        rewards, infos = dict(env.rewards), self._of(env.infos, lived, {})
        observations = self._seen(env.agents)
        self._look()
        return observations, rewards, terminated, truncated, infos

    def _seen(self, agents: Sequence[str]) -> ByAgent:
        """What they observe; an environment may fill one array for all."""
        return {agent: deepcopy(self.env.observe(agent)) for agent in agents}

    def _look(self) -> None:
        """See who lives and whose turn it is, past those who ended."""
        env = self.env
        self.agents = [agent for agent in env.agents if not self._ended(agent)]
        while self.agents and self._ended(env.agent_selection):
            env.step(None)
        self.acting = [env.agent_selection] if self.agents else []

    def _ended(self, agent: str) -> bool:
        return bool(self.env.terminations[agent] or self.env.truncations[agent])

    def _of(self, told: Mapping[str, Any], agents: Sequence[str], nothing: Any) -> dict[str, Any]:
        return {agent: told.get(agent, nothing) for agent in agents}
