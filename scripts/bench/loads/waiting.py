"""MinAtar's Breakout with steps that wait as long as a step of Atari's Breakout takes."""

import time
from functools import partial
from typing import Any

import gymnasium
from gymnasium.vector import AsyncVectorEnv, AutoresetMode

STEP_S = 0.00045  # processor time of a step with Gymnasium's preprocessing (ale-py 0.12, AMD EPYC)


class Waiting(gymnasium.Wrapper):
    """Wrapper that waits in each step without using the processor."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Wait, and step."""
        time.sleep(STEP_S)
        return self.env.step(action)


def make(**kwargs: Any) -> Waiting:
    """Return the environment."""
    return Waiting(gymnasium.make("paddock.envs.games:paddock/MinAtarBreakout-v0", **kwargs))


def asynchronous(num_envs: int, **kwargs: Any) -> AsyncVectorEnv:
    """Return Gymnasium's vector environment of worker processes."""
    return AsyncVectorEnv([partial(make, **kwargs)] * num_envs, autoreset_mode=AutoresetMode.DISABLED)


gymnasium.register("bench/WaitingBreakout-v0", make)
