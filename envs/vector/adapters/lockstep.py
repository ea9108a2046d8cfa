"""Base of adapters of vector environments that step all environments together."""

from abc import abstractmethod
from copy import deepcopy
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space, iterate
from numpy.typing import NDArray

from paddock.envs.spaces.codecs import SpaceMismatch
from paddock.envs.spec import EnvSpec
from paddock.envs.vector.buffers import buffer_of
from paddock.envs.vector.contract import Batch, EnvError, Rows, VectorEnv, VectorMisuse, check_open, describe, read_mask
from paddock.envs.vector.infos import episode_info, merge_infos, pick_infos
from paddock.envs.vector.storage import Layouts, allocate


class LockStepVectorEnv(VectorEnv):
    """Vector environment whose `send` and `recv` take all environments; other rows raise VectorMisuse."""

    venv: Any  # the adapted vector environment

    def _wrap_vector(
        self,
        venv: Any,
        spec: EnvSpec,
        spaces: tuple[Space, Space],
        num_envs: int,
        autoreset: AutoresetMode,
        packed: bool,
    ) -> None:
        """Adapt a vector environment; `spaces` are those of one observation and one action."""
        layouts = Layouts.of(spec, *spaces)
        if packed:
            layouts.check_rows(spec)
        describe(self, venv, layouts, num_envs, autoreset)
        self.venv, self._id, self.batch_size = venv, spec.id, num_envs
        self._whole_space = batch_space(spaces[0], num_envs)
        self._layout = spec.lay_out(spaces[0])
        self._packed = packed and not self._layout.plain
        self._changed = self._packed or bool(spec.without)
        self._actions = buffer_of(spaces[1], layouts.action, allocate(layouts.action, num_envs, np.zeros))
        self.alive = np.ones(num_envs, np.bool_)
        self._begun = False  # every environment has had an episode
        self._sent = False
        self._ended = np.zeros(num_envs, np.bool_)  # episodes that the caller must restart
        self._return, self._length = np.zeros(num_envs), np.zeros(num_envs, np.int64)  # of running episodes

    @abstractmethod
    def _start_step(self, actions: Any) -> None:
        """Accept a batch of actions; may start the step."""

    @abstractmethod
    def _finish_step(self) -> Batch:
        """Finish the step and return its results."""

    def send(self, actions: Any, env_ids: Rows = None) -> None:
        """See `VectorEnv.send`."""
        check_open(self, "send")
        self._check_everyone("send", env_ids)
        if not self._begun:
            raise VectorMisuse("send: an environment has no episode yet; call reset first")
        if self._sent:
            raise VectorMisuse("send: the last send has not been received; call recv first")
        everyone = slice(0, self.num_envs)
        self._actions.put(everyone, actions, self.num_envs)
        if self._ended.any():
            which, remedy = np.flatnonzero(self._ended).tolist(), 'restart them by reset(options={"reset_mask": mask})'
            raise VectorMisuse(f"send: the episodes of environments {which} have ended; {remedy}")
        self._start_step(self._actions.take(everyone, copy=True))
        self._sent = True

    def recv(self, env_ids: Rows = None) -> Batch:
        """See `VectorEnv.recv`."""
        check_open(self, "recv")
        self._check_everyone("recv", env_ids)
        if not self._sent:
            raise VectorMisuse("recv: nothing was sent; call send first")
        self._sent = False
        observation, reward, terminated, truncated, infos = self._finish_step()
        if self.autoreset is AutoresetMode.DISABLED:
            self._ended = terminated | truncated
        if self._changed and "final_obs" in infos:
            infos = {**infos, "final_obs": self._convert_each(infos["final_obs"])}
        return self._convert(observation), reward, terminated, truncated, infos

    def _parse_reset(self, options: dict[str, Any] | None) -> NDArray[np.bool_]:
        """Return the environments to reset, [N] bool; a pending step is dropped."""
        check_open(self, "reset")
        _, chosen = read_mask(options, self.num_envs)
        mask = np.zeros(self.num_envs, np.bool_)
        mask[slice(None) if chosen is None else chosen] = True
        if not (self._begun or mask.all()):
            raise VectorMisuse("reset: an environment outside reset_mask has no episode yet; reset all first")
        self._drain()
        return mask

    def _drain(self) -> None:
        if self._sent:
            self._finish_step()
        self._sent = False

    def _finals(self, observation: Any, ended: NDArray[np.bool_]) -> NDArray[Any]:
        """Return copies of final observations in Gymnasium's form: an object array [N], None for running episodes."""
        finals = np.full(self.num_envs, None, object)
        listed = isinstance(observation, np.ndarray) and observation.dtype.hasobject
        each = observation if listed else list(iterate(self._whole_space, observation))
        for i in np.flatnonzero(ended):
            finals[i] = deepcopy(each[i])
        return finals

    def _episodes(self, infos: dict[str, Any], final_obs: NDArray[Any], ended: NDArray[np.bool_]) -> dict[str, Any]:
        """Return infos with the final results of ended episodes, and reset their statistics."""
        final = {**infos.get("final_info", {}), **episode_info(self._return, self._length, ended)}
        self._return[ended], self._length[ended] = 0.0, 0
        own = {"final_obs": final_obs, "_final_obs": ended.copy(), "final_info": final, "_final_info": ended.copy()}
        return {**infos, **own}

    def _merge_restart(self, infos: dict[str, Any], begun: dict[str, Any], ended: NDArray[np.bool_]) -> dict[str, Any]:
        """Merge the infos of a step, which are final for ended episodes, and of the resets after it."""
        merged: dict[str, Any] = {}
        for part, rows in ((infos, ~ended), ({"final_info": infos}, ended), (begun, ended)):
            merge_infos(merged, pick_infos(part, rows), np.flatnonzero(rows), self.num_envs)
        return merged

    def _convert(self, observation: Any) -> Any:
        """Return a batch without the parts left out, in Gymnasium's form or as rows."""
        if not self._changed:
            return observation
        rows = self._layout.zeros(self.num_envs)
        try:
            self._layout.pack(observation, rows, choices=True)
        except SpaceMismatch as misfit:
            what = f"{self._id} returned observations with {misfit}"
            raise EnvError(f"{what}; fix the environment or its observation_space") from None
        return rows if self._packed else self._layout.batch(rows)

    def _convert_each(self, observations: NDArray[Any]) -> NDArray[Any]:
        """Convert observations one by one in an object array [N]; None stays None."""
        kept = np.full(self.num_envs, None, object)
        rows = self._layout.zeros(self.num_envs)
        write, read = self._layout.writer(rows), self._layout.reader(rows)
        for i, one in enumerate(observations):
            if one is not None:
                write(i, one)
                kept[i] = rows[i].copy() if self._packed else read(i)
        return kept

    def render(self) -> Any:
        """Render the adapted vector environment."""
        return self.venv.render()

    def close_extras(self, **kwargs: Any) -> None:
        """Close the adapted vector environment."""
        self.venv.close(**kwargs)

    def _check_everyone(self, verb: str, env_ids: Rows) -> None:
        if env_ids is None:
            return
        everyone = range(self.num_envs)
        rows = everyone[env_ids] if isinstance(env_ids, slice) else np.asarray(env_ids).tolist()
        if list(rows) != list(everyone):
            what = f"this backend steps its {self.num_envs} environments together, not {list(rows)}"
            raise VectorMisuse(f"{verb}: {what}; remove env_ids, or use vec=serial or vec=multiprocess")
