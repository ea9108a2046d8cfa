"""Single native environment, bit-identical to one in a native vector."""

from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from paddock.envs.native.settings import native_task
from paddock.envs.native.vector import NativeVectorEnv
from paddock.envs.spec import EnvSpec


class NativeEnv(gymnasium.Env):
    """Single native environment; it never truncates, as `gymnasium.make` adds the time limit."""

    def __init__(self, source: str, **kwargs: Any) -> None:
        """Build the native version of environment `source` with its arguments.

        Raises:
            ConfigError: there is no native version or no compiled library, or an argument is not supported.
        """
        spec = EnvSpec(id=source, kwargs=kwargs, wrappers=(), max_episode_steps=None, fresh=False)
        task = replace(native_task(spec), time_limit=None)
        self._vector = NativeVectorEnv(task, 1, AutoresetMode.DISABLED)
        self.observation_space = self._vector.single_observation_space
        self.action_space = self._vector.single_action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start an episode; without a seed the previous generator continues, as in Gymnasium."""
        super().reset(seed=seed)
        observation, info = self._vector.reset(seed=[seed], options=options)
        return observation[0], info

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Advance by one step."""
        observation, reward, terminated, _, info = self._vector.step(np.asarray(action)[None])
        return observation[0], float(reward[0]), bool(terminated[0]), False, info

    def close(self) -> None:
        """Free the environment; further calls do nothing."""
        self._vector.close()
