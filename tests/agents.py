"""Worlds of several agents for the tests of what learns; `agents:Mortals` and so on."""

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces


class Mortals:
    """Four agents that are told what to do, of whom some die early, one is born late and one is born again.

    An agent sees what it should choose, 0 or 1, and its chance number; it is paid 1 where it chooses that.
    """

    possible_agents = ("a", "b", "c", "d")
    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}
    render_mode = None
    DIES = (("b", 1), ("b", 4), ("a", 2))  # after so many steps
    BORN = (None, "d", "b")

    def observation_space(self, agent: str) -> spaces.Space:
        return spaces.Box(-9, 9, (2,), np.float32)

    def action_space(self, agent: str) -> spaces.Space:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self._random = np.random.default_rng(seed)
        self._length = int(self._random.integers(5, 9))
        self._steps = 0
        self.agents = ["c", "a", "b"]  # in an order of their own
        return self._look(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        assert set(actions) == set(self.agents), (actions, self.agents)
        self._steps += 1
        rewards = {agent: float(actions[agent] == self._wanted[agent]) for agent in self.agents}
        if "a" not in self.agents:
            rewards["a"] = 0.5  # comes too late
        over = self._steps == self._length
        ended = {agent: (agent, self._steps) in self.DIES or (over and agent == "c") for agent in self.agents}
        cut = {agent: over and not ended[agent] for agent in self.agents}
        lived = list(self.agents)
        self.agents = [agent for agent in lived if not (ended[agent] or cut[agent])]
        if not over and (born := self.BORN[self._steps] if self._steps < 3 else None):
            self.agents.append(born)
        seen = self._look(lived)
        return seen, rewards, ended, cut, {agent: {"steps": self._steps} for agent in lived}

    def _look(self, lived: Any = ()) -> dict[str, Any]:
        self._wanted = {agent: int(self._random.integers(2)) for agent in self.possible_agents}
        everybody = [agent for agent in self.possible_agents if agent in self.agents or agent in lived]
        return {agent: np.array([self._wanted[agent], self._random.normal()], np.float32) for agent in everybody}

    def render(self) -> None:
        pass

    def close(self) -> None:
        pass


class Sizes(Mortals):
    """The same, told how large a number is to be: above 0, or not."""

    def action_space(self, agent: str) -> spaces.Space:
        return spaces.Box(-1, 1, (1,), np.float32)

    def step(self, actions: dict[str, Any]) -> Any:
        return super().step({agent: int(action[0] > 0) for agent, action in actions.items()})


class Turns:
    """Two agents that move in turn, seeing how many were moved; who comes to the limit wins 1 of the other."""

    possible_agents = ("first", "second")
    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}
    render_mode = None

    def observation_space(self, agent: str) -> spaces.Space:
        return spaces.Dict({"moved": spaces.Discrete(20), "action_mask": spaces.MultiBinary(3)})

    def action_space(self, agent: str) -> spaces.Space:
        return spaces.Discrete(3)

    @property
    def acting(self) -> list[str]:
        return [self.agents[self._turn]] if self.agents else []

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self._random = np.random.default_rng(seed)
        self._limit = int(self._random.integers(5, 12))
        self._moved, self._turn = 0, 0
        self.agents = list(self.possible_agents)
        return self._look(), {}

    def step(self, actions: dict[str, Any]) -> Any:
        (agent,) = actions
        assert agent == self.agents[self._turn]
        self._moved += 1 + int(actions[agent])
        self._turn = 1 - self._turn
        over = self._moved >= self._limit
        rewards = {one: (1.0 if one == agent else -1.0) if over else 0.0 for one in self.agents}
        seen, ended = self._look(), dict.fromkeys(self.agents, over)
        if over:
            self.agents = []
        return seen, rewards, ended, dict.fromkeys(ended, False), {}

    def _look(self) -> dict[str, Any]:
        # Nothing is legal to one that waits, as PettingZoo's classic games say.
        return {
            agent: {"moved": self._moved, "action_mask": np.full(3, agent in self.acting, np.int8)}
            for agent in self.agents
        }

    def render(self) -> None:
        pass

    def close(self) -> None:
        pass


class Pauses:
    """Two agents that both move in every second step, three times in all, and neither in the first; a move is paid 1.

    Nothing is legal to those that wait.
    """

    possible_agents = ("one", "other")
    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}
    render_mode = None

    def __init__(self, masked: bool = False, kinds: int = 1) -> None:
        self._masked, self._kinds = masked, kinds

    def observation_space(self, agent: str) -> spaces.Space:
        seen = spaces.Box(0, 9, (self._size(agent),), np.float32)
        mask = spaces.MultiBinary(self._size(agent))
        return spaces.Dict({"seen": seen, "action_mask": mask}) if self._masked else seen

    def action_space(self, agent: str) -> spaces.Space:
        return spaces.Discrete(self._size(agent), start=1)

    @property
    def acting(self) -> list[str]:
        return self.agents if self._steps % 2 else []

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self._steps, self.agents = 0, list(self.possible_agents)
        return self._look(), {}

    def step(self, actions: dict[str, Any]) -> Any:
        assert set(actions) == set(self.acting), (actions, self._steps)
        self._steps += 1
        rewards = {agent: float(agent in actions) for agent in self.agents}
        seen, ended = self._look(), dict.fromkeys(self.agents, self._steps == 6)
        if self._steps == 6:
            self.agents = []
        return seen, rewards, ended, dict.fromkeys(ended, False), {}

    def _size(self, agent: str) -> int:
        return 2 if agent == "one" or self._kinds == 1 else 3

    def _look(self) -> dict[str, Any]:
        told: dict[str, Any] = {}
        for agent in self.agents:
            seen = np.full(self._size(agent), self._steps, np.float32)
            mask = np.full(len(seen), agent in self.acting, np.int8)
            told[agent] = {"seen": seen, "action_mask": mask} if self._masked else seen
        return told

    def render(self) -> None:
        pass

    def close(self) -> None:
        pass


class Blind:
    """Three agents that see nothing, of whom each is paid 1 for the choice that has the number of its seat."""

    possible_agents = ("a", "b", "c")
    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}
    render_mode = None

    def observation_space(self, agent: str) -> spaces.Space:
        return spaces.Box(0, 1, (1,), np.float32)

    def action_space(self, agent: str) -> spaces.Space:
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = list(self.possible_agents)
        return self._look(), {}

    def step(self, actions: dict[str, Any]) -> Any:
        rewards = {agent: float(actions[agent] == seat) for seat, agent in enumerate(self.possible_agents)}
        self.agents = []
        return self._look(), rewards, dict.fromkeys(rewards, True), dict.fromkeys(rewards, False), {}

    def _look(self) -> dict[str, Any]:
        return {agent: np.zeros(1, np.float32) for agent in self.possible_agents}

    def render(self) -> None:
        pass

    def close(self) -> None:
        pass
