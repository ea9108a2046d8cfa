"""Stable-Baselines3's interface of vector environments (Raffin et al. 2021, JMLR 22:268) for emulated environments.

model = PPO("MlpPolicy", VecEnv(paddock.emulate_vector("package:Name-v0", 8)))
"""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray
from stable_baselines3.common import vec_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices

from paddock.envs.emulation.envs import FlatVectorEnv
from paddock.envs.errors import require
from paddock.envs.vector.contract import EnvError
from paddock.envs.vector.infos import split_infos


class VecEnv(vec_env.VecEnv):
    """Vector environment of Stable-Baselines3 with one row per agent."""

    def __init__(self, venv: FlatVectorEnv) -> None:
        """Adapt a vector of `paddock.emulate_vector`; raise ConfigError unless it resets in the same step."""
        require(isinstance(venv, FlatVectorEnv), "paddock.sb3.VecEnv needs a vector of paddock.emulate_vector")
        same_step = venv.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
        require(same_step, "paddock.sb3.VecEnv: the vector's autoreset mode must be SAME_STEP")
        self.venv, self._seats = venv, venv.env.seats
        super().__init__(venv.num_envs, venv.single_observation_space, venv.single_action_space)

    def reset(self) -> NDArray[Any]:
        """Start all episodes, with the seeds of `seed` and the options of `set_options`."""
        options = self._options[0]
        require(all(one == options for one in self._options), "set_options: pass one mapping for all environments")
        observations, infos = self.venv.reset(seed=self._seeds[:: self._seats], options=options or None)
        self.reset_infos = split_infos(infos, self.num_envs)
        self._reset_seeds()
        self._reset_options()
        return observations

    def step_async(self, actions: NDArray[Any]) -> None:
        """Store the actions of the next step."""
        self._actions = actions

    def step_wait(self) -> tuple[NDArray[Any], NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Step; infos of ended episodes have `terminal_observation`, `TimeLimit.truncated` and `episode` (`r`, `l`)."""
        observations, rewards, terminated, truncated, infos = self.venv.step(self._actions)
        dones = terminated | truncated
        final_obs, final_info = infos.pop("final_obs", None), infos.pop("final_info", {})
        each = split_infos(infos, self.num_envs)
        if dones.any():
            ends = split_infos(final_info, self.num_envs)
            for i in np.flatnonzero(dones).tolist():
                self.reset_infos[i], each[i] = each[i], ends[i]
                each[i]["terminal_observation"] = final_obs[i]
                each[i]["TimeLimit.truncated"] = bool(truncated[i] and not terminated[i])
        return observations, rewards.astype(np.float32), dones, each

    def close(self) -> None:
        """Close the environments."""
        self.venv.close()

    def get_images(self) -> Sequence[NDArray[np.uint8] | None]:
        """Return each row's rendered frame."""
        return self.get_attr("render")

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """Return an attribute, or a method's result, of each row's environment; AttributeError if there is none."""
        if attr_name in ("action_masks", "render_mode"):
            return [getattr(self.venv, attr_name) for _ in self._get_indices(indices)]
        try:
            return self.env_method(attr_name, indices=indices)
        except EnvError as error:
            raise AttributeError(f"the environments have no attribute {attr_name}") from error

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Set an attribute of all environments."""
        require(indices is None, f"set_attr: {attr_name} is set in all environments; leave out indices")
        envs: Any = self.venv.env
        envs.set_attr(attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: VecEnvIndices = None, **kwargs: Any) -> list[Any]:
        """Return the results of a method of chosen rows' environments, or their `action_masks`."""
        own = method_name == "action_masks"
        results = self.venv.action_masks() if own else self.venv.env.call(method_name, *args, **kwargs)
        return [results[i if own else i // self._seats] for i in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type[gymnasium.Wrapper], indices: VecEnvIndices = None) -> list[bool]:
        """Return whether environments have a wrapper: only Monitor, whose statistics are always in the infos."""
        return [wrapper_class is Monitor for _ in self._get_indices(indices)]
