"""Time limit for multi-agent environments."""

from typing import Any, final

from paddock.envs.multiagent.adapter import Wrapper
from paddock.envs.multiagent.env import ByAgent, MultiAgentEnv, Step


@final
class MultiAgentTimeLimit(Wrapper):
    """Wrapper that truncates all active agents after `steps` steps, like Gymnasium's TimeLimit."""

    def __init__(self, env: MultiAgentEnv, steps: int) -> None:
        super().__init__(env)
        self.steps = steps
        self._elapsed_steps = 0

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[ByAgent, ByAgent]:
        """Start an episode."""
        self._elapsed_steps = 0
        result: tuple[ByAgent, ByAgent] = self.env.reset(seed=seed, options=options)
        self._update()
        return result

    def step(self, actions: dict[str, Any]) -> Step:
        """Step the environment, and truncate all active agents at the limit."""
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        self._elapsed_steps += 1
        self._update()
        if self._elapsed_steps >= self.steps:
            truncated = {**truncated, **{agent: True for agent in self.agents if not terminated.get(agent)}}
            self.agents = self.acting = []
        return observations, rewards, terminated, truncated, infos
