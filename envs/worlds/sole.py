"""A world with one seat, as the environment of one agent that it is."""

from typing import Any

import gymnasium

from paddock.envs.worlds.adapter import find_owner, set_attribute
from paddock.envs.worlds.world import World


class SoleAgent(gymnasium.Env[Any, Any]):
    """The one agent's environment; where the world ends and says nothing of the agent, its episode is truncated."""

    def __init__(self, world: World) -> None:
        """Take over a world of one agent."""
        self._world = world
        (self._agent,) = world.possible_agents
        self.metadata = dict(getattr(world, "metadata", {}))
        self.render_mode = getattr(world, "render_mode", None)
        self.observation_space = world.observation_space(self._agent)
        self.action_space = world.action_space(self._agent)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        observations, infos = self._world.reset(seed=seed, options=options)
        return observations[self._agent], dict(infos.get(self._agent, {}))

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take the agent's action."""
        agent = self._agent
        observations, rewards, terminated, truncated, infos = self._world.step({agent: action})
        ended, cut = bool(terminated.get(agent, False)), bool(truncated.get(agent, False))
        cut = cut or not (ended or agent in self._world.agents)
        return observations[agent], float(rewards.get(agent, 0.0)), ended, cut, dict(infos.get(agent, {}))

    def has_wrapper_attr(self, name: str) -> bool:
        """Return whether the environment has an attribute, or the world."""
        return hasattr(self, name) or find_owner(self._world, name) is not None

    def get_wrapper_attr(self, name: str) -> Any:
        """Return an attribute of the environment, or else of the world."""
        return getattr(self if hasattr(self, name) else find_owner(self._world, name) or self, name)

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        """Set an attribute of the environment where it has it, and of the world where that has it or `force` is set."""
        if hasattr(self, name):
            setattr(self, name, value)
        elif force or find_owner(self._world, name) is not None:
            set_attribute(self._world, name, value)
        else:
            return False
        return True

    def render(self) -> Any:
        """Draw the world."""
        return self._world.render()

    def close(self) -> None:
        """Close the world."""
        self._world.close()
