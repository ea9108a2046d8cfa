"""What adapters share around a vector environment of somebody else's that steps all its environments at once."""

from abc import abstractmethod
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from envs.vector.contract import Batch, Rows, VectorEnv, VectorMisuse, check_open
from envs.vector.infos import pick_infos
from envs.vector.storage import fill, put, take
from envs.vector.table import FREE, SENT, Arrays, Table


class LockStepVectorEnv(VectorEnv):
    """A vector whose `send` and `recv` are for all environments together; any other rows are a misuse."""

    venv: Any  # the vector environment inside

    def _adopt(self, venv: Any, autoreset: AutoresetMode, copy: bool) -> None:
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
        self._restarts = autoreset is AutoresetMode.SAME_STEP and mode_of(venv) is AutoresetMode.DISABLED
        arrays = Arrays.allocate(self.single_observation_space, self.single_action_space, self.num_envs, np.zeros)
        self._table = Table(arrays, autoreset, copy)
        self._everyone = self._table.everyone

    @abstractmethod
    def _start_step(self, actions: Any) -> None:
        """Take a batch of actions; may begin to step."""

    @abstractmethod
    def _finish_step(self) -> Batch:
        """Return what the actions led to, as the vector environment inside says it."""

    def send(self, actions: Any, env_ids: Rows = None) -> None:
        """See `VectorEnv.send`."""
        check_open(self, "send")
        self._check_everyone("send", env_ids)
        self._table.accept(actions, self._everyone)
        self._start_step(take(self._table.arrays.action, self._everyone, copy=True))
        self._table.mark(SENT, self._everyone)

    def recv(self, env_ids: Rows = None) -> Batch:
        """See `VectorEnv.recv`."""
        check_open(self, "recv")
        self._check_everyone("recv", env_ids)
        self._table.outstanding()
        self._table.mark(FREE, self._everyone)
        observation, reward, terminated, truncated, infos = self._finish_step()
        arrays = self._table.arrays
        arrays.enter(self._everyone, reward, terminated, truncated)
        ended = arrays.terminated | arrays.truncated
        if self.autoreset is AutoresetMode.SAME_STEP and ended.any():
            observation, infos = self._end(observation, infos, ended)
        self._observe(observation)
        *batch, noted = self._table.batch(self._everyone)
        return *batch, {**infos, **noted}

    def render(self) -> Any:
        """What the vector environment inside draws."""
        return self.venv.render()

    def _started(self, chosen: NDArray[np.intp] | None, observation: Any) -> Any:
        """Note that episodes begin in chosen environments, or all; return everybody's observations."""
        arrays, rows = self._table.arrays, self._everyone if chosen is None else chosen
        for array in (arrays.running_return, arrays.running_length, arrays.terminated, arrays.truncated):
            array[rows] = 0
        self._observe(observation)
        return self._table.start(self._everyone)[0]

    def _observe(self, observation: Any) -> None:
        put(self._table.arrays.observation, self._everyone, observation, self.num_envs, "step", "observations")

    def _end(self, observation: Any, infos: dict[str, Any], ended: NDArray[np.bool_]) -> tuple[Any, dict[str, Any]]:
        """Note what episodes ended with, and see that the next ones begin; all infos are noted too."""
        table, everyone = self._table, self._everyone
        over = np.flatnonzero(ended)
        final = observation if self._restarts else infos["final_obs"]
        if isinstance(final, np.ndarray) and final.dtype == object:
            fill(table.arrays.final, over, [final[i] for i in over])
        else:
            put(table.arrays.final, everyone, final, self.num_envs, "step", "observations")
        table.arrays.end(over)
        if not self._restarts:
            rest = {key: value for key, value in infos.items() if key not in ("final_obs", "_final_obs")}
            table.note(everyone, pick_infos(rest, np.ones_like(ended)))
            return observation, {}
        table.note(np.flatnonzero(~ended), pick_infos(infos, ~ended))
        table.note(over, pick_infos({"final_info": infos}, ended))
        observation, begun = self.venv.reset(options={"reset_mask": ended.copy()})
        table.note(over, pick_infos(begun, ended))
        return observation, {}

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


def mode_of(venv: Any) -> AutoresetMode | None:
    """When a vector environment restarts what has ended; None where it does not say."""
    return venv.metadata.get("autoreset_mode")
