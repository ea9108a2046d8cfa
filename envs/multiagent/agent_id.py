"""A world whose agents see which seat they have, for those that share a policy and are to do different things."""

from typing import Any, final

import numpy as np
from gymnasium import Space, spaces

from paddock.envs.multiagent.adapter import Wrapper
from paddock.envs.multiagent.env import ByAgent, MultiAgentEnv, Step

KEY = "seat"


@final
class AgentIdFeature(Wrapper):
    """A world whose observations tell the seat.

    A vector of floats has one number more for each seat: 1 for the agent's own, 0 for the others. A Dict has one key
    more, `seat`; anything else becomes a Dict of `observation` and `seat`.
    """

    def __init__(self, world: MultiAgentEnv) -> None:
        """Take over a world."""
        super().__init__(world)
        self._seat = {agent: seat for seat, agent in enumerate(self.possible_agents)}
        self._spaces = {agent: self._widen(world.observation_space(agent)) for agent in self._seat}

    def observation_space(self, agent: str) -> Space:
        """Return the observation space of an agent."""
        return self._spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[ByAgent, ByAgent]:
        """Start an episode."""
        observations, infos = self.env.reset(seed=seed, options=options)
        self._update()
        return self._tell(observations), infos

    def step(self, actions: dict[str, Any]) -> Step:
        """Step the world."""
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        self._update()
        return self._tell(observations), rewards, terminated, truncated, infos

    def _widen(self, space: Space) -> Space:
        seats = len(self._seat)
        if isinstance(space, spaces.Dict):
            return spaces.Dict({**space.spaces, KEY: spaces.Discrete(seats)})
        if not _is_vector(space):
            return spaces.Dict({"observation": space, KEY: spaces.Discrete(seats)})
        assert isinstance(space, spaces.Box)
        low, high = np.append(space.low, np.zeros(seats)), np.append(space.high, np.ones(seats))
        return spaces.Box(low.astype(space.dtype), high.astype(space.dtype), dtype=np.dtype(space.dtype).type)

    def _tell(self, observations: ByAgent) -> dict[str, Any]:
        told: dict[str, Any] = {}
        for agent, seen in observations.items():
            inner, seat = self.env.observation_space(agent), self._seat[agent]
            if isinstance(inner, spaces.Dict):
                told[agent] = {**seen, KEY: seat}
            elif _is_vector(inner):
                own = np.zeros(len(self._seat), inner.dtype)
                own[seat] = 1
                told[agent] = np.concatenate([seen, own])
            else:
                told[agent] = {"observation": seen, KEY: seat}
        return told


def _is_vector(space: Space) -> bool:
    return isinstance(space, spaces.Box) and len(space.shape) == 1 and np.dtype(space.dtype).kind == "f"
