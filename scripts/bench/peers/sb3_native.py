"""Paddock's native environments as Stable-Baselines3 steps them: Gymnasium's numbers, so that only learning is slow."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.vec_env import VecEnv

from envs.spec import EnvSpec
from envs.vector import Native


class NativeVecEnv(VecEnv):
    """N environments that restart in the step that ends their episode, and tell of it what `Monitor` tells."""

    def __init__(self, env: str, num_envs: int, seed: int) -> None:
        """Build the environments that Gymnasium makes by that name."""
        vec = Native(num_envs=num_envs, threads=1)
        self._envs = vec.make(
            EnvSpec(id=env, kwargs={}, wrappers=(), max_episode_steps=None, fresh=False), AutoresetMode.SAME_STEP
        )
        self._first: int | None = seed  # of environment 0 in its first episode
        self._actions: Any = None
        super().__init__(num_envs, self._envs.single_observation_space, self._envs.single_action_space)

    def reset(self) -> Any:
        """Start an episode in every environment."""
        observations, _ = self._envs.reset(seed=self._first)
        self._first = None
        return observations

    def step_async(self, actions: Any) -> None:
        """Keep the actions: environments step when they are waited for."""
        self._actions = actions

    def step_wait(self) -> Any:
        """Return observations, rewards, whether episodes ended, and for those that did what they ended with."""
        observations, rewards, terminated, truncated, told = self._envs.step(self._actions)
        ended = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for index in np.flatnonzero(ended):
            episode = told["final_info"]["episode"]
            infos[index] = {
                "terminal_observation": told["final_obs"][index],
                "TimeLimit.truncated": bool(truncated[index] and not terminated[index]),
                "episode": {"r": float(episode["r"][index]), "l": int(episode["l"][index])},
            }
        return observations, rewards.astype(np.float32), ended, infos

    def close(self) -> None:
        """Free the environments."""
        self._envs.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute, which all environments share."""
        return [getattr(self._envs, attr_name, None)] * len(self._chosen(indices))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Refuse: native environments have no attributes of their own."""
        raise AttributeError(f"{attr_name}: native environments have no attributes of their own")

    def env_method(self, method_name: str, *arguments: Any, indices: Any = None, **named: Any) -> list[Any]:
        """Refuse: native environments have no methods of their own."""
        raise AttributeError(f"{method_name}: native environments have no methods of their own")

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """Return False for each: nothing wraps them."""
        return [False] * len(self._chosen(indices))

    def _chosen(self, indices: Any) -> Sequence[int]:
        return list(self._get_indices(indices))
