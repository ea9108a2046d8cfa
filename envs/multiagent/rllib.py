"""Environments in the form of RLlib's MultiAgentEnv: dictionaries by agent, with `__all__` for the end of the world."""

from typing import Any, final

from gymnasium import Space

from paddock.envs.multiagent.adapter import Adapter
from paddock.envs.multiagent.env import ByAgent, Step

ALL = "__all__"
BY_AGENT = ("possible_agents", "observation_spaces", "action_spaces")  # what tells a MultiAgentEnv


@final
class RLlibAdapter(Adapter):
    """An environment in which the agents that received an observation act next."""

    def __init__(self, env: Any) -> None:
        super().__init__(env, env.possible_agents)

    def observation_space(self, agent: str) -> Space:
        """Return the observation space of an agent."""
        space: Space = self.env.observation_spaces[agent]
        return space

    def action_space(self, agent: str) -> Space:
        """Return the action space of an agent."""
        space: Space = self.env.action_spaces[agent]
        return space

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[ByAgent, ByAgent]:
        """Start an episode."""
        observations, infos = self.env.reset(seed=seed, options=options)
        self.agents = self.acting = list(observations)
        return observations, infos

    def step(self, actions: dict[str, Any]) -> Step:
        """Step by the actions of the acting agents."""
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        lived = list(dict.fromkeys([*self.agents, *observations]))
        ended, cut = ({agent: bool(told.get(agent, False)) for agent in lived} for told in (terminated, truncated))
        unsaid = [agent for agent in lived if not (ended[agent] or cut[agent])]
        if terminated.get(ALL, False):
            ended.update(dict.fromkeys(unsaid, True))
        elif truncated.get(ALL, False):
            cut.update(dict.fromkeys(unsaid, True))
        self.agents = [agent for agent in lived if not (ended[agent] or cut[agent])]
        self.acting = [agent for agent in self.agents if agent in observations]
        infos = {agent: info for agent, info in infos.items() if agent in lived}
        return observations, rewards, ended, cut, infos
