"""Single EnvPool task as a seeded Gymnasium environment; `vec=envpool` steps batches of the same tasks."""

import warnings
from collections.abc import Mapping
from typing import Any

import envpool
import gymnasium
import numpy as np

from paddock.envs.vector.adapters.envpool import BOOKKEEPING


class EnvPoolTask(gymnasium.Env[Any, Any]):
    """EnvPool with one environment, which is rebuilt for each seed."""

    metadata = {"render_modes": []}  # noqa: RUF012, Gymnasium's

    def __init__(self, *, task: str, render_mode: str | None = None, **options: Any) -> None:
        """Look up a task of EnvPool by name.

        Raises:
            ValueError: EnvPool has no such task or rejects the options.
            DependencyNotInstalled: the task needs a system library.
        """
        self._task, self._options = task, options
        self._pool: Any = None
        with warnings.catch_warnings():  # from Gymnasium, about EnvPool's bounds in double precision
            warnings.simplefilter("ignore")
            spec = _make_spec(task, options)
            self.observation_space, self.action_space = spec.gymnasium_observation_space, spec.gymnasium_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; without a seed continue with the pool's next one."""
        super().reset(seed=seed)
        if seed is not None or self._pool is None:
            self._drop()
            own = int(self.np_random.integers(2**31)) if seed is None else seed % 2**31
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._pool = envpool.make(self._task, env_type="gymnasium", num_envs=1, seed=own, **self._options)
        observation, info = self._pool.reset()
        return _only(observation), _only(info)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take an action."""
        observation, reward, terminated, truncated, info = self._pool.step(np.asarray(action)[None])
        return _only(observation), float(reward[0]), bool(terminated[0]), bool(truncated[0]), _only(info)

    def close(self) -> None:
        """Close the pool and stop its threads."""
        self._drop()

    def _drop(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None


def _make_spec(task: str, options: dict[str, Any]) -> Any:
    try:
        return envpool.make_spec(task, num_envs=1, **options)
    except ImportError as error:
        if "Qt" not in str(error):
            raise
        line = f"EnvPool's {task} needs Qt 5: apt-get install libqt5gui5"
        raise gymnasium.error.DependencyNotInstalled(line) from error


def _only(batch: Any) -> Any:
    if isinstance(batch, Mapping):
        return {key: _only(value) for key, value in batch.items() if key not in BOOKKEEPING}
    return batch[0]


gymnasium.register("paddock/EnvPool-v0", f"{__name__}:EnvPoolTask")
