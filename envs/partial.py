"""Wrappers that reduce observations to chosen numbers, or extend them by the last action and reward."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from paddock.envs.errors import ConfigError, require


class Numbers(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Wrapper that keeps chosen numbers of an observation, such as positions without velocities."""

    def __init__(self, env: gymnasium.Env[Any, Any], indices: Sequence[int]) -> None:
        """Wrap an environment; raise ConfigError unless its observations are vectors that have `indices`."""
        super().__init__(env)
        inner = _row_of(env, "has no numbers to choose from")
        width = inner.shape[0]
        fits = bool(indices) and all(type(index) is int and 0 <= index < width for index in indices)
        require(fits, f"env.wrappers: indices={list(indices)} must be numbers from 0 to {width - 1}, at least one")
        self._indices = list(indices)
        low, high = (bound.astype(np.float32)[self._indices] for bound in (inner.low, inner.high))
        self.observation_space = spaces.Box(low, high, dtype=np.float32)

    def observation(self, observation: NDArray[Any]) -> NDArray[np.float32]:
        """Return the numbers at `indices`, in that order."""
        return np.asarray(observation, np.float32)[self._indices]


class LastStep(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that appends the last action (one-hot) and its reward to an observation; zeros after a reset.

    Recurrent Q-learning takes both as inputs (Kapturowski et al. 2019).
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        """Wrap an environment; raise ConfigError unless observations are vectors and actions Discrete."""
        super().__init__(env)
        inner, actions = _row_of(env, "cannot be extended by the last step"), env.action_space
        if not isinstance(actions, spaces.Discrete):
            raise ConfigError(f"env.wrappers: the last action of {actions} is not a single choice; remove LastStep")
        self._start, self._width = int(actions.start), int(actions.n)
        low = np.concatenate([inner.low, np.zeros(self._width), [-np.inf]])
        high = np.concatenate([inner.high, np.ones(self._width), [np.inf]])
        self.observation_space = spaces.Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        obs, info = self.env.reset(seed=seed, options=options)
        return self._join(obs, np.zeros(self._width + 1, np.float32)), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        last = np.zeros(self._width + 1, np.float32)
        last[int(action) - self._start], last[-1] = 1, reward
        return self._join(obs, last), reward, terminated, truncated, info

    def _join(self, obs: NDArray[Any], last: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.concatenate([np.asarray(obs, np.float32), last])


def _row_of(env: gymnasium.Env[Any, Any], lacks: str) -> spaces.Box:
    """Return the observation space if it is a vector; raise ConfigError otherwise."""
    space = env.observation_space
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:
        raise ConfigError(f"env.wrappers: the observation space {space} {lacks}; remove the wrapper")
    return space
