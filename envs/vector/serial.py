"""The reference backend: environments stepped one after another in this process."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from numpy.typing import NDArray

from envs.spec import EnvSpec
from envs.vector.contract import Batch, Rows, VectorEnv, VectorMisuse, keyed_seed

NOTHING = object()  # in place of an action: the environment was not sent to


class SerialVectorEnv(VectorEnv):
    """N environments in a row; `recv` does the work."""

    def __init__(self, spec: EnvSpec, num_envs: int, autoreset: AutoresetMode = AutoresetMode.SAME_STEP) -> None:
        """Build the environments; with `AutoresetMode.DISABLED` the caller restarts each ended episode itself."""
        if autoreset is AutoresetMode.NEXT_STEP:
            raise VectorMisuse("autoreset=NEXT_STEP is not supported; use SAME_STEP or DISABLED")
        self.spec_ = spec
        self.num_envs = self.batch_size = num_envs
        self.autoreset = autoreset
        self.envs = [spec.make() for _ in range(num_envs)]
        self.metadata = {**self.envs[0].metadata, "autoreset_mode": autoreset}
        self.single_observation_space = self.envs[0].observation_space
        self.single_action_space = self.envs[0].action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._flat = isinstance(self.single_observation_space, gymnasium.spaces.Box)
        self._started = [False] * num_envs
        blank = next(iter(iterate(self.observation_space, create_empty_array(self.single_observation_space, num_envs))))
        self._latest: list[Any] = [blank] * num_envs  # each environment's observation
        self._actions: list[Any] = [NOTHING] * num_envs
        self._key: int | None = None  # of the seeds of coming episodes, once `begin` gave one
        self._episode = [0] * num_envs  # number of the running episode under that key
        self._return = [0.0] * num_envs
        self._length = [0] * num_envs

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
        self._key = None
        return self._start(chosen.tolist(), seeds, options)

    def begin(self, seed: int, episodes: Sequence[int] | NDArray[np.int64] | None = None) -> tuple[Any, dict[str, Any]]:
        """See `VectorEnv.begin`."""
        self._key = seed
        self._episode = [0] * self.num_envs if episodes is None else [int(number) for number in episodes]
        seeds: list[int | None] = [keyed_seed(seed, i, number) for i, number in enumerate(self._episode)]
        return self._start(range(self.num_envs), seeds, {})

    def send(self, actions: Any, env_ids: Rows = None) -> None:
        """See `VectorEnv.send`."""
        ids = self._ids(env_ids)
        rows = list(actions if isinstance(actions, np.ndarray) else iterate(self.action_space, actions))
        if len(rows) != len(ids):
            raise VectorMisuse(f"send: got {len(rows)} actions for {len(ids)} environments; pass one each")
        for i, action in zip(ids, rows, strict=True):
            if self._actions[i] is not NOTHING:
                raise VectorMisuse("send: the last send has not been received; call recv first")
            if not self._started[i]:
                raise VectorMisuse("send: an environment has no episode yet; call reset first")
            self._actions[i] = action

    def recv(self, env_ids: Rows = None) -> Batch:
        """See `VectorEnv.recv`; the environments step now."""
        if env_ids is None:
            ids: Sequence[int] = [i for i, action in enumerate(self._actions) if action is not NOTHING]
        else:
            ids = self._ids(env_ids)
        if not ids or any(self._actions[i] is NOTHING for i in ids):
            raise VectorMisuse("recv: nothing was sent; call send first")
        reward = np.zeros(len(ids), np.float64)
        terminated = np.zeros(len(ids), np.bool_)
        truncated = np.zeros(len(ids), np.bool_)
        infos: dict[str, Any] = {}
        same_step = self.autoreset is AutoresetMode.SAME_STEP
        for row, i in enumerate(ids):
            action, self._actions[i] = self._actions[i], NOTHING
            observation, reward[row], terminated[row], truncated[row], info = self.envs[i].step(action)
            self._return[i] += float(reward[row])
            self._length[i] += 1
            if same_step and (terminated[row] or truncated[row]):
                statistics = {"r": self._return[i], "l": self._length[i]}
                final = {"final_obs": observation, "final_info": {"episode": statistics, **info}}
                self._episode[i] += 1
                seed = None if self._key is None else keyed_seed(self._key, i, self._episode[i])
                observation, info = self._reset_one(i, seed, {})
                infos = self._add_info(infos, final, row)
            self._latest[i] = observation
            if info:
                infos = self._add_info(infos, info, row)
        if len(ids) < self.num_envs:
            infos["env_id"] = np.array(ids)
        return self._batch(ids), reward, terminated, truncated, infos

    def close_extras(self, **kwargs: Any) -> None:
        """Close every environment; Gymnasium's `close` calls this once."""
        for env in self.envs:
            env.close()

    def _start(
        self, ids: Sequence[int], seeds: Sequence[int | None], options: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        infos: dict[str, Any] = {}
        for i in ids:
            self._actions[i] = NOTHING
            self._latest[i], info = self._reset_one(i, seeds[i], options)
            infos = self._add_info(infos, info, i)
        return self._batch(range(self.num_envs)), infos

    def _reset_one(self, i: int, seed: int | None, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        if self.spec_.fresh and self._started[i]:
            if seed is None:
                seed = int(self.envs[i].unwrapped.np_random.integers(2**31))
            self.envs[i].close()
            self.envs[i] = self.spec_.make()
        self._started[i] = True
        self._return[i], self._length[i] = 0.0, 0
        return self.envs[i].reset(seed=seed, options=options or None)

    def _batch(self, ids: Any) -> Any:
        rows = [self._latest[i] for i in ids]
        if self._flat:
            return np.asarray(rows, self.single_observation_space.dtype)
        empty: Any = create_empty_array(self.single_observation_space, len(rows))
        return deepcopy(concatenate(self.single_observation_space, rows, empty))

    def _ids(self, env_ids: Rows) -> Sequence[int]:
        if env_ids is None:
            return range(self.num_envs)
        return range(self.num_envs)[env_ids] if isinstance(env_ids, slice) else env_ids.tolist()

    def _checked_mask(self, mask: Any) -> NDArray[np.bool_]:
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (self.num_envs,):
            raise VectorMisuse(f"reset: reset_mask must be a bool array of shape ({self.num_envs},); got {mask!r}")
        return mask
