"""What adapters share around a vector environment of somebody else's that steps all its environments at once."""

from abc import abstractmethod
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from envs.vector.contract import Batch, Rows, VectorEnv, VectorMisuse, check_open
from envs.vector.storage import allocate, put, take


class LockStepVectorEnv(VectorEnv):
    """A vector whose `send` and `recv` are for all environments together; any other rows are a misuse."""

    venv: Any  # the vector environment inside

    def _adopt(self, venv: Any, autoreset: AutoresetMode) -> None:
        """Take over what the vector environment inside says of itself."""
        self.venv = venv
        self.num_envs = self.batch_size = venv.num_envs
        self.autoreset = autoreset
        self.metadata = {**venv.metadata, "autoreset_mode": autoreset}
        self.render_mode = venv.render_mode
        self.single_observation_space = venv.single_observation_space
        self.single_action_space = venv.single_action_space
        self.observation_space = venv.observation_space
        self.action_space = venv.action_space
        self._actions = allocate(self.single_action_space, self.num_envs, np.zeros)
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
        put(self._actions, everyone, actions, self.num_envs)
        self._start_step(take(self._actions, everyone, copy=True))
        self._sent = True

    def recv(self, env_ids: Rows = None) -> Batch:
        """See `VectorEnv.recv`."""
        check_open(self, "recv")
        self._check_everyone("recv", env_ids)
        if not self._sent:
            raise VectorMisuse("recv: nothing was sent; call send first")
        self._sent = False
        return self._finish_step()

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
