"""Adapter of multi-agent Gymnasium environments with one tuple element per agent, such as LBF and RWARE."""

from copy import deepcopy
from typing import Any, final

import gymnasium
from gymnasium import Space, spaces

from paddock.envs.errors import ConfigError
from paddock.envs.multiagent.adapter import Adapter
from paddock.envs.multiagent.env import ByAgent, Step


@final
class TupleAdapter(Adapter):
    """Adapter that names the agents `agent_0`, `agent_1`, ...; scalar flags and the info apply to all agents."""

    def __init__(self, env: gymnasium.Env, agents: int, id: str) -> None:
        """Adapt an environment with `agents` agents; raise ConfigError unless its spaces are Tuples of this length."""
        super().__init__(env, [f"agent_{k}" for k in range(agents)])
        self._spaces: list[dict[str, Space]] = []
        for name, space in (("observation", env.observation_space), ("action", env.action_space)):
            elements = list(space) if isinstance(space, spaces.Tuple) else []
            if len(elements) != agents:
                found = f"Tuple of length {len(elements)}" if elements else type(space).__name__
                problem = f"env.agents={agents}: the {name} space of env.id={id} is a {found}"
                raise ConfigError(f"{problem}, not a Tuple of length {agents}; remove env.agents for a single agent")
            self._spaces.append(dict(zip(self.possible_agents, elements, strict=True)))
        self._dummy_actions = {}  # for agents whose episode has ended
        for agent, space in self._spaces[1].items():
            seeded = deepcopy(space)
            seeded.seed(0)
            self._dummy_actions[agent] = seeded.sample()

    def observation_space(self, agent: str) -> Space:
        """Return the observation space of an agent."""
        return self._spaces[0][agent]

    def action_space(self, agent: str) -> Space:
        """Return the action space of an agent."""
        return self._spaces[1][agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[ByAgent, ByAgent]:
        """Start an episode."""
        observations, info = self.env.reset(seed=seed, options=options)
        self.agents = self.acting = list(self.possible_agents)
        return self._by_agent(observations), {agent: info for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Step:
        """Step with the actions of all agents; agents whose episode has ended take a dummy action."""
        joint_action = tuple({**self._dummy_actions, **actions}.values())
        observations, rewards, terminated, truncated, info = self.env.step(joint_action)
        infos = {agent: info for agent in self.agents}
        terminations, truncations = self._by_agent(terminated), self._by_agent(truncated)
        self.agents = self.acting = [agent for agent in self.agents if not (terminations[agent] or truncations[agent])]
        return self._by_agent(observations), self._by_agent(rewards), terminations, truncations, infos

    def _by_agent(self, values: Any) -> dict[str, Any]:
        """Return a dict of values by agent, given a tuple or one value for all agents."""
        if not isinstance(values, tuple | list) and not getattr(values, "shape", ()):
            return dict.fromkeys(self.possible_agents, values)
        return dict(zip(self.possible_agents, values, strict=True))
