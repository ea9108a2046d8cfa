"""Wrapper that adds an agent's index to its observations, so that agents sharing a policy can differ."""

from typing import Any, final

import numpy as np
from gymnasium import Space, spaces

from paddock.envs.multiagent.adapter import Wrapper
from paddock.envs.multiagent.env import ByAgent, MultiAgentEnv, Step

KEY = "seat"


@final
class AgentIdFeature(Wrapper):
    """Wrapper that adds the agent's seat to observations.

    Vectors of floats are extended by a one-hot encoding, a Dict by the key `seat`; other observations become a Dict of
    `observation` and `seat`.
    """

    def __init__(self, env: MultiAgentEnv) -> None:
        super().__init__(env)
        self._seat = {agent: seat for seat, agent in enumerate(self.possible_agents)}
        self._spaces = {agent: self._extend_space(env.observation_space(agent)) for agent in self._seat}

    def observation_space(self, agent: str) -> Space:
        """Return the observation space of an agent."""
        return self._spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[ByAgent, ByAgent]:
        """Start an episode."""
        observations, infos = self.env.reset(seed=seed, options=options)
        self._update()
        return self._extend(observations), infos

    def step(self, actions: dict[str, Any]) -> Step:
        """Step the environment."""
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        self._update()
        return self._extend(observations), rewards, terminated, truncated, infos

    def _extend_space(self, space: Space) -> Space:
        seats = len(self._seat)
        if isinstance(space, spaces.Dict):
            return spaces.Dict({**space.spaces, KEY: spaces.Discrete(seats)})
        if not _is_vector(space):
            return spaces.Dict({"observation": space, KEY: spaces.Discrete(seats)})
        assert isinstance(space, spaces.Box)
        low, high = np.append(space.low, np.zeros(seats)), np.append(space.high, np.ones(seats))
        return spaces.Box(low.astype(space.dtype), high.astype(space.dtype), dtype=np.dtype(space.dtype).type)

    def _extend(self, observations: ByAgent) -> dict[str, Any]:
        extended: dict[str, Any] = {}
        for agent, seen in observations.items():
            inner, seat = self.env.observation_space(agent), self._seat[agent]
            if isinstance(inner, spaces.Dict):
                extended[agent] = {**seen, KEY: seat}
            elif _is_vector(inner):
                own = np.zeros(len(self._seat), inner.dtype)
                own[seat] = 1
                extended[agent] = np.concatenate([seen, own])
            else:
                extended[agent] = {"observation": seen, KEY: seat}
        return extended


def _is_vector(space: Space) -> bool:
    return isinstance(space, spaces.Box) and len(space.shape) == 1 and np.dtype(space.dtype).kind == "f"
