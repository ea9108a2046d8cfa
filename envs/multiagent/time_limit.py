"""A multi-agent environment whose episodes are truncated after a number of steps."""

from typing import Any, final

from paddock.envs.multiagent.adapter import Wrapper
from paddock.envs.multiagent.env import ByAgent, MultiAgentEnv, Step


@final
class MultiAgentTimeLimit(Wrapper):
    """Truncates all living agents after `steps` steps, as Gymnasium's TimeLimit does; the episode ends then."""

    def __init__(self, world: MultiAgentEnv, steps: int) -> None:
        super().__init__(world)
        self.steps = steps
        self._passed = 0

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[ByAgent, ByAgent]:
        """Start an episode."""
        self._passed = 0
        started: tuple[ByAgent, ByAgent] = self.env.reset(seed=seed, options=options)
        self._update()
        return started

    def step(self, actions: dict[str, Any]) -> Step:
        """Step, and truncate where it is time."""
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        self._passed += 1
        self._update()
        if self._passed >= self.steps:
            truncated = {**truncated, **{agent: True for agent in self.agents if not terminated.get(agent)}}
            self.agents = self.acting = []
        return observations, rewards, terminated, truncated, infos
