"""Base classes of adapters and wrappers of multi-agent environments, and access to wrapped attributes."""

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium
from gymnasium import Space

from paddock.envs.multiagent.env import MultiAgentEnv, takes_turns


class Adapter:
    """Base of adapters, which add `reset` and `step` and so implement `TakesTurns`.

    Attributes:
        env: the adapted environment.
        agents: living agents.
        acting: agents whose actions the next step takes.
    """

    agents: Sequence[str]
    acting: Sequence[str]

    def __init__(self, env: Any, possible_agents: Sequence[str]) -> None:
        self.env = env
        self.possible_agents = list(possible_agents)
        self.agents, self.acting = [], []
        self.metadata = dict(getattr(env, "metadata", {}))
        self.render_mode = getattr(env, "render_mode", None)

    def observation_space(self, agent: str) -> Space:
        """Return the observation space of an agent."""
        space: Space = self.env.observation_space(agent)
        return space

    def action_space(self, agent: str) -> Space:
        """Return the action space of an agent."""
        space: Space = self.env.action_space(agent)
        return space

    @property
    def unwrapped(self) -> "Adapter":
        """Return the adapter itself, as PettingZoo's wrappers do."""
        return self

    def render(self) -> Any:
        """Render the environment."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


class Wrapper(Adapter):
    """Base of wrappers of multi-agent environments."""

    def __init__(self, env: MultiAgentEnv) -> None:
        super().__init__(env, env.possible_agents)

    def _update(self) -> None:
        self.agents = self.env.agents
        self.acting = self.env.acting if takes_turns(self.env) else self.agents


class SingleAgentEnv(gymnasium.Env[Any, Any]):
    """Gymnasium environment of a multi-agent environment's only agent; an end without flags truncates its episode."""

    def __init__(self, env: MultiAgentEnv) -> None:
        self.env = env
        (self._agent,) = env.possible_agents
        self.metadata = dict(getattr(env, "metadata", {}))
        self.render_mode = getattr(env, "render_mode", None)
        self.observation_space = env.observation_space(self._agent)
        self.action_space = env.action_space(self._agent)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        observations, infos = self.env.reset(seed=seed, options=options)
        return observations[self._agent], dict(infos.get(self._agent, {}))

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take the agent's action."""
        agent = self._agent
        observations, rewards, terminated, truncated, infos = self.env.step({agent: action})
        ended, cut = bool(terminated.get(agent, False)), bool(truncated.get(agent, False))
        cut = cut or not (ended or agent in self.env.agents)
        return observations[agent], float(rewards.get(agent, 0.0)), ended, cut, dict(infos.get(agent, {}))

    def render(self) -> Any:
        """Render the environment."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


def find_owner(env: Any, name: str) -> Any:
    """Return the outermost layer of an environment that has an attribute; None if no layer has it."""
    return next((layer for layer in layers(env) if hasattr(layer, name)), None)


def set_attribute(env: Any, name: str, value: Any) -> None:
    """Set an attribute of the layer that `find_owner` returns, or else of the innermost environment."""
    *_, innermost = layers(env)
    owner = find_owner(env, name) or innermost
    if inspect.getattr_static(owner, name, layers) is layers:  # PettingZoo's wrappers forward missing attributes
        owner = getattr(owner, "unwrapped", owner)
    setattr(owner, name, value)


def layers(env: Any) -> Iterator[Any]:
    """Yield an environment and the environments it wraps, from the outside in."""
    yield env
    while isinstance(env, gymnasium.Wrapper | Adapter | SingleAgentEnv):
        env = env.env
        yield env
