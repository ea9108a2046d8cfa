"""Environments that only sleep, for fixed times: episodes of unequal length that need no processor."""

import time
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from paddock.envs.spec import EnvSpec

STEP_S = 0.001


class Nap(gymnasium.Env):
    """An episode of so many steps, each of which sleeps for 1 ms and gives 1."""

    observation_space, action_space = Box(0, 1, (1,), np.float32), Discrete(2)

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._left = steps

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        self._left = self._steps
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Sleep."""
        time.sleep(STEP_S)
        self._left -= 1
        return np.zeros(1, np.float32), 1.0, self._left <= 0, False, {}


class Naps:
    """The family: {steps: of an episode}."""

    def flat(self) -> Mapping[str, Any]:
        """The shortest."""
        return {"steps": 1}

    def mutate(self, encoding: Mapping[str, Any], generator: np.random.Generator) -> Mapping[str, Any]:
        """One step more."""
        return {"steps": encoding["steps"] + 1}

    def distance(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
        """Difference in steps."""
        return abs(one["steps"] - other["steps"])

    def env_spec(self, encoding: Mapping[str, Any], ground: int | None) -> EnvSpec:
        """The environment; it draws nothing."""
        return EnvSpec("scripts.bench.loads.naps:bench/Nap-v0", dict(encoding), (), None, fresh=False)


gymnasium.register("bench/Nap-v0", f"{__name__}:Nap")
