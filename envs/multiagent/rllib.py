"""Adapter of RLlib's MultiAgentEnv: dictionaries by agent, with `__all__` at the end of an episode."""

from typing import Any, final

from gymnasium import Space

from paddock.envs.multiagent.adapter import Adapter
from paddock.envs.multiagent.env import ByAgent, Step

ALL = "__all__"
BY_AGENT = ("possible_agents", "observation_spaces", "action_spaces")  # attributes that identify a MultiAgentEnv


@final
class RLlibAdapter(Adapter):
    """Adapter of an RLlib environment, in which the agents that received an observation act next."""

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
        """Step with the actions of the acting agents."""
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        lived = list(dict.fromkeys([*self.agents, *observations]))
        ended, cut = ({agent: bool(flags.get(agent, False)) for agent in lived} for flags in (terminated, truncated))
        running = [agent for agent in lived if not (ended[agent] or cut[agent])]
        if terminated.get(ALL, False):
            ended.update(dict.fromkeys(running, True))
        elif truncated.get(ALL, False):
            cut.update(dict.fromkeys(running, True))
        self.agents = [agent for agent in lived if not (ended[agent] or cut[agent])]
        self.acting = [agent for agent in self.agents if agent in observations]
        infos = {agent: info for agent, info in infos.items() if agent in lived}
        return observations, rewards, ended, cut, infos
