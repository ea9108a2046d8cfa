"""A world whose episodes are cut off after so many steps."""

from collections.abc import Sequence
from typing import Any

from gymnasium import Space

from envs.worlds.world import Step, TakesTurns, Told, World


class Limited:
    """A world that truncates whoever lives after `steps` steps, as Gymnasium's TimeLimit does; it ends then."""

    def __init__(self, world: World, steps: int) -> None:
        self._world = world
        self._steps = steps
        self._passed = 0
        self._cut = self._turns = False
        self.metadata = getattr(world, "metadata", {})
        self.render_mode = getattr(world, "render_mode", None)

    @property
    def possible_agents(self) -> Sequence[str]:
        """All agents that there may be, in the order of seats."""
        return self._world.possible_agents

    @property
    def agents(self) -> Sequence[str]:
        """Those that live."""
        return [] if self._cut else self._world.agents

    @property
    def acting(self) -> Sequence[str]:
        """The agents whose action the next step takes."""
        if self._cut:
            return []
        return self._world.acting if self._turns else self._world.agents  # type: ignore[attr-defined]

    def observation_space(self, agent: str) -> Space:
        """Return what an agent sees."""
        return self._world.observation_space(agent)

    def action_space(self, agent: str) -> Space:
        """Return what an agent may do."""
        return self._world.action_space(agent)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Told, Told]:
        """Start an episode."""
        self._passed, self._cut = 0, False
        started = self._world.reset(seed=seed, options=options)
        self._turns = isinstance(self._world, TakesTurns)
        return started

    def step(self, actions: dict[str, Any]) -> Step:
        """Step, and cut off where it is time."""
        observations, rewards, terminated, truncated, infos = self._world.step(actions)
        self._passed += 1
        if self._passed >= self._steps:
            truncated = {**truncated, **{agent: True for agent in self._world.agents if not terminated.get(agent)}}
            self._cut = True
        return observations, rewards, terminated, truncated, infos

    def render(self) -> Any:
        """Draw the world."""
        return self._world.render()

    def close(self) -> None:
        """Close the world."""
        self._world.close()
