"""What adapters share around a vector environment of somebody else's that steps all its environments at once."""

from abc import abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from paddock.envs.spaces.parts import Misfit, Read, Write
from paddock.envs.spec import EnvSpec
from paddock.envs.vector.buffers import Buffer
from paddock.envs.vector.contract import Batch, EnvError, Rows, VectorEnv, VectorMisuse, check_open
from paddock.envs.vector.storage import Layouts, allocate


class LockStepVectorEnv(VectorEnv):
    """A vector whose `send` and `recv` are for all environments together; any other rows are a misuse."""

    venv: Any  # the vector environment inside

    def _adopt(self, venv: Any, spec: EnvSpec, autoreset: AutoresetMode, packed: bool) -> None:
        """Take over what the vector environment inside says of itself.

        Args:
            packed: whether observations are handed on as rows.
        """
        self.venv, self._id = venv, spec.id
        self.num_envs = self.batch_size = venv.num_envs
        self.autoreset = autoreset
        self.metadata = {**venv.metadata, "autoreset_mode": autoreset}
        self.render_mode = venv.render_mode
        layouts = Layouts.of(spec, venv.single_observation_space, venv.single_action_space)
        self._layout = layouts.observation
        self._packed = packed and self._layout is not None and not self._layout.plain
        if packed:
            layouts.check_rows(spec)
        self._changed = self._packed or bool(spec.without)
        self.single_observation_space = layouts.observation_space
        self.single_action_space = venv.single_action_space
        self.observation_space = batch_space(layouts.observation_space, self.num_envs)
        self.action_space = venv.action_space
        array = allocate(layouts.action, self.num_envs, np.zeros)
        self._actions = Buffer.of(self.single_action_space, layouts.action, array)
        self._begun = False  # whether every environment has had an episode
        self._sent = False

    @abstractmethod
    def _start_step(self, actions: Any) -> None:
        """Take a batch of actions; may begin to step."""

    @abstractmethod
    def _finish_step(self) -> Batch:
        """Return what the actions led to."""

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
        if self._changed and "final_obs" in infos:
            infos = {**infos, "final_obs": self._keep_each(infos["final_obs"])}
        return self._keep(observation), reward, terminated, truncated, infos

    def _keep(self, observation: Any) -> Any:
        """Return of a batch what is to be handed on, in the form it is to have."""
        if not self._changed:
            return observation
        assert self._layout is not None
        rows = self._layout.zeros(self.num_envs)
        try:
            self._layout.pack(observation, rows, choices=True)
        except Misfit as misfit:
            what = f"{self._id} returned observations with {misfit}"
            raise EnvError(f"{what}; mend the environment or its observation_space") from None
        return rows if self._packed else self._layout.batch(rows)

    def _keep_each(self, observations: NDArray[Any]) -> NDArray[Any]:
        """Return the same of observations one by one, in an array [N] of objects with None where there is none."""
        kept = np.full(self.num_envs, None, object)
        rows, write, read = self._one_by_one
        for i, one in enumerate(observations):
            if one is not None:
                write(i, one)
                kept[i] = rows[i].copy() if self._packed else read(i)
        return kept

    @cached_property
    def _one_by_one(self) -> tuple[NDArray[Any], Write, Read]:
        """Rows, their writer and their reader."""
        assert self._layout is not None
        rows = self._layout.zeros(self.num_envs)
        return rows, self._layout.writer(rows), self._layout.reader(rows)

    def render(self) -> Any:
        """What the vector environment inside draws."""
        return self.venv.render()

    def _check_everyone(self, verb: str, env_ids: Rows) -> None:
        if env_ids is None:
            return
        everyone = range(self.num_envs)
        rows = everyone[env_ids] if isinstance(env_ids, slice) else np.asarray(env_ids).tolist()
        if list(rows) != list(everyone):
            raise VectorMisuse(
                f"{verb}: this backend steps its {self.num_envs} environments together, not {list(rows)}; "
                "leave env_ids out, or choose vec=serial or vec=multiprocess"
            )
