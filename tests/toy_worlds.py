"""Worlds with every kind of life, and with every kind of fault; `toy_worlds:Skirmish` and so on."""

import os
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Scripted:
    """Do what `steps` say; a test writes them.

    Each step has of whom it tells: `agents` after it, and by agent `reward`, `terminated`, `truncated`. Whoever is
    named anywhere in a step gets an observation of [step, seat]; `unseen` do not.
    """

    metadata: dict[str, Any] = {}  # noqa: RUF012
    render_mode = None

    def __init__(self, agents: str, steps: Any, first: str | None = None) -> None:
        self.possible_agents, self._first = list(agents), list(agents if first is None else first)
        self.steps = list(steps)
        self.taken: list[Any] = []
        self.seeds: list[Any] = []

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(-1, 99, (2,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(10)

    def _see(self, agents: Any) -> dict[str, Any]:
        return {a: np.array([self.now, "abcxyz".index(a)], np.float32) for a in agents}

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.now, self.agents = 0, list(self._first)
        self.seeds.append(seed)
        return self._see(self.agents), {a: {} for a in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        told = dict(self.steps[self.now])
        self.now += 1
        self.taken.append({agent: int(action) for agent, action in actions.items()})
        before, self.agents = self.agents, list(told.get("agents", ""))
        named = {*before, *self.agents, *told.get("reward", {})} - set(told.get("unseen", ""))
        flags = [{a: a in told.get(name, "") for a in before} for name in ("terminated", "truncated")]
        return self._see(sorted(named)), {a: told.get("reward", {}).get(a, 0.0) for a in named}, *flags, {}

    def render(self) -> None:
        return None

    def close(self) -> None:
        pass


class Skirmish:
    """Agents die, are born and are cut off at random; now and then the world ends, with whoever lives.

    Args:
        agents: how many.
        turned: list and tell of agents in another order, which is to change nothing.
        kinds: 1: all see the same; 2: every third sees and does something else.
        fault: "exit" kills the process at the step `at` of the third episode in the process; "raise" raises there.
    """

    metadata: dict[str, Any] = {}  # noqa: RUF012
    render_mode = None

    def __init__(self, agents: int = 4, turned: bool = False, kinds: int = 1, fault: str = "", at: int = 3) -> None:
        self.possible_agents = [f"one_{k}" if kinds == 1 or k % 3 else f"other_{k}" for k in range(agents)]
        self.agents: list[str] = []
        self._turned, self._kinds, self._fault, self._at = turned, kinds, fault, at
        self._episodes = 0
        self._spaces = {
            "one": (spaces.Box(-np.inf, np.inf, (3,), np.float32), spaces.Discrete(5)),
            "other": (
                spaces.Dict(a=spaces.Discrete(9), b=spaces.Box(-np.inf, np.inf, (2, 2), np.float64)),
                spaces.Box(-1, 1, (2,), np.float32),
            ),
        }

    def observation_space(self, agent: str) -> Any:
        return self._spaces[agent.split("_")[0]][0]

    def action_space(self, agent: str) -> Any:
        return self._spaces[agent.split("_")[0]][1]

    def _order(self, agents: Any) -> list[str]:
        return list(agents)[::-1] if self._turned else list(agents)

    def _see(self, agents: Any) -> dict[str, Any]:
        seen = {}
        for k, agent in enumerate(self.possible_agents):
            noise = self._rng.normal(size=4)
            if agent in agents:
                number = np.array([self._now, k, self._sum + noise[0]], np.float32)
                seen[agent] = number if agent[:2] == "on" else {"a": self._now % 9, "b": noise.reshape(2, 2)}
        return {agent: seen[agent] for agent in self._order(seen)}

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self._now, self._sum = 0, 0.0
        self._episodes += 1
        absent = self._rng.integers(2 * len(self.possible_agents))
        present = [a for k, a in enumerate(self.possible_agents) if k != absent]
        self.agents = self._order(present or self.possible_agents)
        return self._see(self.agents), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        assert set(actions) == set(self.agents), (actions, self.agents)
        self._now += 1
        if self._fault and self._episodes == 3 and self._now == self._at:
            if self._fault == "exit":
                os._exit(3)
            raise RuntimeError("a fault of the world")
        for agent in self.possible_agents:
            if agent in actions:
                self._sum += float(np.sum(actions[agent]))
        draws = self._rng.random((len(self.possible_agents), 2))
        over = self._rng.random() < 0.05
        before = set(self.agents)
        fate = dict(zip(self.possible_agents, draws, strict=True))
        terminated = {a: fate[a][0] < 0.1 for a in self._order(before)}
        truncated = {a: 0.1 < fate[a][0] < 0.15 or (fate[a][0] < 0.03) for a in self._order(before)}
        gone = {a for a in before if terminated[a] or truncated[a]}
        born = {a for a in self.possible_agents if a not in before and fate[a][1] < 0.2}
        agents = [] if over else [a for a in self.possible_agents if a in (before - gone) | born]
        self.agents = self._order(agents)
        seen = self._see(before | born)
        rewards = {a: float(fate[a][1]) for a in self._order(before)}
        infos = {a: {"fate": float(fate[a][0])} if fate[a][1] > 0.5 else {} for a in self._order(before)}
        return seen, rewards, terminated, truncated, infos

    def render(self) -> None:
        return None

    def close(self) -> None:
        pass


class Bidding:
    """PettingZoo's turns without PettingZoo: who bids 0 drops out and loses 1; the last one wins the bids, at most 9.

    Every bid pays each of the others a tenth of it at once. All observations are one array, filled anew.
    """

    metadata: dict[str, Any] = {}  # noqa: RUF012
    render_mode = None
    possible_agents = ("ann", "bob", "cy")

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0, 99, (2,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(4)

    def observe(self, agent: str) -> Any:
        self.seen[:] = self.pot, self.possible_agents.index(agent)
        return self.seen

    def agent_iter(self, max_iter: int = 0) -> Any:
        raise NotImplementedError

    def last(self, observe: bool = True) -> Any:
        raise NotImplementedError

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents, self.pot, self.dead_steps = list(self.possible_agents), 0, 0
        self.seen = np.zeros(2, np.float32)
        self.agent_selection = self._next = "ann"
        self.terminations, self.truncations = dict.fromkeys(self.agents, False), dict.fromkeys(self.agents, False)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self.infos: dict[str, Any] = {agent: {} for agent in self.agents}

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            assert action is None
            self.dead_steps += 1
            self.agents.remove(agent)
            for told in (self.terminations, self.truncations, self.rewards, self.infos):
                del told[agent]
            self.rewards = dict.fromkeys(self.agents, 0.0)
            self.agent_selection = self._next
            return
        self.pot += int(action)
        order = self.agents * 2
        self._next = self.agent_selection = order[order.index(agent) + 1]
        self.rewards = {other: action / 10 if other != agent else 0.0 for other in self.agents}
        if action == 0:
            self.rewards[agent] = -1.0
            self.terminations[agent] = True
            self.agent_selection = agent
            if len(self.agents) == 2:
                self.rewards[self._next], self.terminations[self._next] = float(self.pot), True
        elif self.pot > 8:
            self.truncations = dict.fromkeys(self.agents, True)

    def render(self) -> None:
        return None

    def close(self) -> None:
        pass


class Gathering(gymnasium.Env):
    """Two agents in tuples: each picks a number, and is paid it; the world ends after three steps."""

    def __init__(self, each: bool = False) -> None:
        self.observation_space = spaces.Tuple([spaces.Box(0, 9, (1,), np.float32) for _ in range(2)])
        self.action_space = spaces.Tuple([spaces.Discrete(3), spaces.Discrete(3)])
        self._each = each

    def _see(self) -> Any:
        return tuple(np.array([self._now + k], np.float32) for k in range(2))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._now = 0
        return self._see(), {}

    def step(self, action: Any) -> Any:
        self._now += 1
        over = self._now == 3
        ends = [self._now >= 1, over] if self._each else over
        return self._see(), [float(one) for one in action], ends, False, {"now": self._now}


class Table(gymnasium.Env):
    """RLlib's form: who is given an observation acts next; `a` and `b` by turns, and `c` comes late."""

    possible_agents = ("a", "b", "c")

    def __init__(self) -> None:
        self.observation_spaces = dict.fromkeys(self.possible_agents, spaces.Box(0, 9, (1,), np.float32))
        self.action_spaces = dict.fromkeys(self.possible_agents, spaces.Discrete(2))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.now = 0
        return {"a": np.zeros(1, np.float32)}, {"a": {}}

    def step(self, actions: dict[str, Any]) -> Any:
        self.now += 1
        who = ["a", "b", "ac", ""][self.now % 4]
        over = self.now == 3
        seen = {agent: np.full(1, self.now, np.float32) for agent in who}
        rewards = dict.fromkeys(actions, 1.0)
        return seen, rewards, {"__all__": False, "b": self.now == 2}, {"__all__": over}, {"common": {"x": 1}}


gymnasium.register("toy/Gathering-v0", "toy_worlds:Gathering", max_episode_steps=2)


class Dark(Scripted):
    """Nobody draws what its agents are to see."""

    def __init__(self) -> None:
        super().__init__("ab", [{"agents": "ab"}] * 99)

    def _see(self, agents: Any) -> dict[str, Any]:
        return {agent: np.zeros(2, np.float32) for agent in agents}
