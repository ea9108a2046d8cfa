"""Adapter of multi-agent Gymnasium environments with tuples by agent, such as LBF and RWARE."""

from copy import deepcopy
from typing import Any, final

import gymnasium
from gymnasium import Space, spaces

from paddock.envs.errors import ConfigError
from paddock.envs.multiagent.adapter import Adapter
from paddock.envs.multiagent.env import ByAgent, Step


@final
class TupleAdapter(Adapter):
    """Adapter with agents `agent_0`, `agent_1`, ...; a single flag or info applies to all agents."""

    def __init__(self, env: gymnasium.Env, agents: int, id: str) -> None:
        """Adapt an environment of `agents` agents; raise ConfigError unless its spaces are Tuples of that length."""
        super().__init__(env, [f"agent_{k}" for k in range(agents)])
        self._spaces: list[dict[str, Space]] = []
        for name, space in (("observation", env.observation_space), ("action", env.action_space)):
            each = list(space) if isinstance(space, spaces.Tuple) else []
            if len(each) != agents:
                got = f"a {type(space).__name__} of {len(each)}" if each else f"a {type(space).__name__}"
                what = f"env.agents={agents}: the {name} space of env.id={id} is {got}"
                raise ConfigError(f"{what}, where a Tuple of {agents} is expected; leave env.agents out for one agent")
            self._spaces.append(dict(zip(self.possible_agents, each, strict=True)))
        self._any = {}  # arbitrary actions for agents that have ended
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
        return self._by_agent(observations), {agent: info for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Step:
        """Step with all actions; agents that have ended get an arbitrary one."""
        taken = tuple({**self._any, **actions}.values())
        observations, rewards, terminated, truncated, info = self.env.step(taken)
        lived = self.agents
        ended, cut = self._by_agent(terminated), self._by_agent(truncated)
        self.agents = self.acting = [agent for agent in lived if not (ended[agent] or cut[agent])]
        return self._by_agent(observations), self._by_agent(rewards), ended, cut, {agent: info for agent in lived}

    def _by_agent(self, values: Any) -> dict[str, Any]:
        """Return values by agent, from a tuple or a single value for all."""
        if not isinstance(values, tuple | list) and not getattr(values, "shape", ()):
            return dict.fromkeys(self.possible_agents, values)
        return dict(zip(self.possible_agents, values, strict=True))
