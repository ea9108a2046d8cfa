"""Gymnasium environments of several agents, whose observations, actions and rewards are tuples: LBF, RWARE, others."""

from copy import deepcopy
from typing import Any, final

import gymnasium
from gymnasium import Space, spaces

from paddock.envs.errors import ConfigError
from paddock.envs.multiagent.adapter import Adapter
from paddock.envs.multiagent.env import ByAgent, Step


@final
class TupleAdapter(Adapter):
    """A world whose agents are `agent_0`, `agent_1` and so on; all end together unless it tells of each."""

    def __init__(self, env: gymnasium.Env, agents: int, id: str) -> None:
        """Take over an environment of so many agents.

        Raises:
            ConfigError: its spaces are not tuples of so many.
        """
        super().__init__(env, [f"agent_{k}" for k in range(agents)])
        self._spaces: list[dict[str, Space]] = []
        for name, space in (("observation", env.observation_space), ("action", env.action_space)):
            parts = list(space) if isinstance(space, spaces.Tuple) else []
            if len(parts) != agents:
                got = f"a {type(space).__name__} of {len(parts)}" if parts else f"a {type(space).__name__}"
                what = f"env.agents={agents}: the {name} space of env.id={id} is {got}"
                raise ConfigError(f"{what}, where a Tuple of {agents} is expected; leave env.agents out for one agent")
            self._spaces.append(dict(zip(self.possible_agents, parts, strict=True)))
        self._any = {}  # actions of those who ended
        for agent, space in self._spaces[1].items():
            own = deepcopy(space)
            own.seed(0)
            self._any[agent] = own.sample()

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
        return self._each(observations), {agent: info for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Step:
        """Step by all actions; of those who ended before, any will do."""
        taken = tuple({**self._any, **actions}.values())
        observations, rewards, terminated, truncated, info = self.env.step(taken)
        lived = self.agents
        ended, cut = self._each(terminated), self._each(truncated)
        self.agents = self.acting = [agent for agent in lived if not (ended[agent] or cut[agent])]
        return self._each(observations), self._each(rewards), ended, cut, {agent: info for agent in lived}

    def _each(self, told: Any) -> dict[str, Any]:
        """Return a value by agent, from a tuple or one for all."""
        if not isinstance(told, tuple | list) and not getattr(told, "shape", ()):
            return dict.fromkeys(self.possible_agents, told)
        return dict(zip(self.possible_agents, told, strict=True))
