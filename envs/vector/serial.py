"""The reference backend: environments stepped one after another in this process."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from numpy.typing import NDArray

from envs.errors import PaddockError
from envs.spec import EnvSpec


class VectorMisuse(PaddockError):
    """The vector environment was called out of order or with arrays of the wrong shape."""


class SerialVectorEnv(VectorEnv):
    """N environments in a row, restarted in the step that ends an episode; its last observation is `final_obs`.

    `send(actions, env_ids)` steps some of them only, so that a caller who has no more work for a slot leaves it
    idle; `reset(seed=[...], options={"reset_mask": mask})` starts chosen episodes on chosen seeds.
    """

    def __init__(self, spec: EnvSpec, num_envs: int, autoreset: AutoresetMode = AutoresetMode.SAME_STEP) -> None:
        """Build the environments; with `AutoresetMode.DISABLED` the caller restarts each ended episode itself."""
        if autoreset is AutoresetMode.NEXT_STEP:
            raise VectorMisuse("autoreset=NEXT_STEP is not supported; use SAME_STEP or DISABLED")
        self.spec_ = spec
        self.num_envs = self.batch_size = num_envs
        self.autoreset = autoreset
        self.metadata = {"autoreset_mode": autoreset}
        self.envs = [spec.make() for _ in range(num_envs)]
        self._started = [False] * num_envs
        self.metadata |= {key: value for key, value in self.envs[0].metadata.items() if key != "autoreset_mode"}
        self.single_observation_space = self.envs[0].observation_space
        self.single_action_space = self.envs[0].action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._flat = isinstance(self.single_observation_space, gymnasium.spaces.Box)
        blank = next(iter(iterate(self.observation_space, create_empty_array(self.single_observation_space, num_envs))))
        self._latest: list[Any] = [blank] * num_envs  # each environment's observation
        self._sent: tuple[Any, Sequence[int]] | None = None

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start episodes; an int seeds environment i with seed + i, `options["reset_mask"]` ([N] bool) picks some."""
        options = dict(options or {})
        mask = options.pop("reset_mask", None)
        chosen = np.arange(self.num_envs) if mask is None else np.flatnonzero(self._checked_mask(mask))
        if seed is None or isinstance(seed, int | np.integer):
            seeds: list[int | None] = [None if seed is None else int(seed) + i for i in range(self.num_envs)]
        else:
            seeds = list(seed)
            if len(seeds) != self.num_envs:
                raise VectorMisuse(f"reset: got {len(seeds)} seeds for {self.num_envs} environments; pass one each")
        self._sent = None
        infos: dict[str, Any] = {}
        for i in map(int, chosen):
            self._latest[i], info = self._reset_one(i, seeds[i], options)
            infos = self._add_info(infos, info, i)
        return self._batch(range(self.num_envs)), infos

    def send(self, actions: Any, env_ids: NDArray[np.intp] | None = None) -> None:
        """Hand over one action for each environment, or for each of `env_ids` ([n] distinct indices)."""
        if self._sent is not None:
            raise VectorMisuse("send: the last send has not been received; call recv first")
        ids = range(self.num_envs) if env_ids is None else np.asarray(env_ids).tolist()
        if not all([self._started[i] for i in ids]):
            raise VectorMisuse("send: an environment has no episode yet; call reset first")
        if isinstance(actions, np.ndarray) and len(actions) != len(ids):
            raise VectorMisuse(f"send: got {len(actions)} actions for {len(ids)} environments; pass one each")
        self._sent = (actions, ids)

    def recv(self) -> tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Step what was sent. Arrays have one row per environment sent to, in that order; infos say `env_id`."""
        if self._sent is None:
            raise VectorMisuse("recv: nothing was sent; call send first")
        (actions, ids), self._sent = self._sent, None
        reward = np.zeros(len(ids), np.float64)
        terminated = np.zeros(len(ids), np.bool_)
        truncated = np.zeros(len(ids), np.bool_)
        infos: dict[str, Any] = {}
        same_step = self.autoreset is AutoresetMode.SAME_STEP
        rows = actions if isinstance(actions, np.ndarray) else iterate(self.action_space, actions)
        for row, (i, action) in enumerate(zip(ids, rows, strict=False)):
            observation, reward[row], terminated[row], truncated[row], info = self.envs[i].step(action)
            if same_step and (terminated[row] or truncated[row]):
                final = {"final_obs": observation, "final_info": info}
                observation, info = self._reset_one(i, None, {})
                infos = self._add_info(infos, final, row)
            self._latest[i] = observation
            if info:
                infos = self._add_info(infos, info, row)
        if len(ids) < self.num_envs:
            infos["env_id"] = np.array(ids)
        return self._batch(ids), reward, terminated, truncated, infos

    def step(
        self, actions: Any
    ) -> tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Step every environment: `send` and then `recv`."""
        self.send(actions)
        return self.recv()

    def close_extras(self, **kwargs: Any) -> None:
        """Close every environment; Gymnasium's `close` calls this once."""
        for env in self.envs:
            env.close()

    def _reset_one(self, i: int, seed: int | None, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        if self.spec_.fresh and self._started[i]:
            if seed is None:
                seed = int(self.envs[i].unwrapped.np_random.integers(2**31))
            self.envs[i].close()
            self.envs[i] = self.spec_.make()
        self._started[i] = True
        return self.envs[i].reset(seed=seed, options=options or None)

    def _batch(self, ids: Any) -> Any:
        rows = [self._latest[i] for i in ids]
        if self._flat:
            return np.asarray(rows, self.single_observation_space.dtype)
        empty: Any = create_empty_array(self.single_observation_space, len(rows))
        return deepcopy(concatenate(self.single_observation_space, rows, empty))

    def _checked_mask(self, mask: Any) -> NDArray[np.bool_]:
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (self.num_envs,):
            raise VectorMisuse(f"reset: reset_mask must be a bool array of shape ({self.num_envs},); got {mask!r}")
        return mask
