"""A world whose episodes are cut off after so many steps."""

from typing import Any, final

from gymnasium import Space

from paddock.envs.worlds.adapter import Adapter
from paddock.envs.worlds.world import Step, Told, World, takes_turns


@final
class Limited(Adapter):
    """A world that truncates whoever lives after `steps` steps, as Gymnasium's TimeLimit does; it ends then."""

    def __init__(self, world: World, steps: int) -> None:
        super().__init__(world, world.possible_agents)
        self.steps = steps
        self._passed = 0
        self._turns = False

    def observation_space(self, agent: str) -> Space:
        """Return what an agent sees."""
        return self._env.observation_space(agent)

    def action_space(self, agent: str) -> Space:
        """Return what an agent may do."""
        return self._env.action_space(agent)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Told, Told]:
        """Start an episode."""
        self._passed = 0
        started: tuple[Told, Told] = self._env.reset(seed=seed, options=options)
        self._turns = takes_turns(self._env)
        self._look()
        return started

    def step(self, actions: dict[str, Any]) -> Step:
        """Step, and cut off where it is time."""
        observations, rewards, terminated, truncated, infos = self._env.step(actions)
        self._passed += 1
        self._look()
        if self._passed >= self.steps:
            truncated = {**truncated, **{agent: True for agent in self.agents if not terminated.get(agent)}}
            self.agents = self.acting = []
        return observations, rewards, terminated, truncated, infos

    def _look(self) -> None:
        self.agents = self._env.agents
        self.acting = self._env.acting if self._turns else self.agents
