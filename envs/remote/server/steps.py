"""Execution of a session's orders on its environments: frames in, frames out."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from paddock.envs.remote.frames import ArrayReader, Frame, Kind, count_rows, decode_rows, encode_frame
from paddock.envs.remote.server.joint_vector import JointVectorEnv
from paddock.envs.remote.values import DecodeError, EncodeError, encode, find_unencodable
from paddock.envs.spec import EnvSpec
from paddock.envs.vector.contract import EnvError, VectorEnv
from paddock.envs.vector.storage import Layouts, RowIndex, numbers
from paddock.envs.vector.table import are_whole, envs_of

NO_ROWS = np.zeros(0, np.intp)
ARRAYS = ("final_obs", "_final_obs", "env_id")  # info keys that frames carry as arrays


@dataclass
class PendingStep:
    """Step in progress."""

    seq: int
    rows: RowIndex
    quiet: bool


class SessionEnvs:
    """Environments of one session and the state of their episodes."""

    def __init__(
        self,
        venv: VectorEnv,
        spec: EnvSpec,
        layouts: Layouts,
        infos: bool,
    ) -> None:
        """Take environments; `infos` sends theirs to the client."""
        self._venv, self._spec, self._infos = venv, spec, infos
        self._joint = venv if isinstance(venv, JointVectorEnv) else None
        N = self.num_envs = venv.num_envs
        self._observation = np.zeros(N, layouts.observation.row)  # latest, during a replay
        self._action = np.zeros(0, layouts.action.row)
        self._seats, self._several = venv.seats, layouts.seats > 1
        self._reports_ends = venv.autoreset is AutoresetMode.SAME_STEP or self._several
        self._beside = (*ARRAYS, "acts", "over") if self._several else ARRAYS
        self._acts = np.ones(N, np.bool_)  # rows whose action the next step takes
        self._return, self._length = np.zeros(N), np.zeros(N, np.int64)  # of running episodes

    def send(self, frame: Frame, rows: RowIndex) -> None:
        """Start a step with a frame's actions."""
        reader = ArrayReader(frame.body)
        actions = reader.take_like(self._action, count_rows(rows))
        reader.finish()
        self._venv.send(actions, rows)

    def execute(self, seq: int, frame: Frame, quiet: bool) -> bytes:
        """Execute an order other than a step; return its answer."""
        return self._state(seq) if frame.kind is Kind.STATE else self._start(seq, frame, quiet)

    def receive(self, step: PendingStep) -> bytes:
        """Return the outcome of a step."""
        rows = step.rows
        observation, reward, terminated, truncated, infos = self._venv.recv(rows)
        self._return[rows] += reward
        self._length[rows] += self._acts[rows]
        finals: list[NDArray[Any]] = []
        over = terminated | truncated
        # Ten times as fast as any().
        ended = over.nonzero()[0] if self._reports_ends and 1 in over.tobytes() else NO_ROWS
        if len(ended):
            ids = np.arange(self.num_envs)[rows][ended]
            self._return[ids] = self._length[ids] = 0
        if self._several:
            self._acts[rows] = infos["acts"]
        if step.quiet:
            self._observation[rows] = observation
            return b""
        if len(ended):
            episode = infos["final_info"]["episode"]
            finals = [infos["final_obs"][ended], episode["r"][ended], episode["l"][ended]]
        encoded = self._encode_infos(infos)
        lives = [*self._lives(rows), infos["over"]] if self._several else []
        arrays = [observation, reward, terminated, truncated, *lives, *finals]
        return encode_frame(Kind.OUTCOME, [step.seq, encoded, len(ended)], arrays)

    def _start(self, seq: int, frame: Frame, quiet: bool) -> bytes:
        seed: list[Any] | None = None
        if frame.kind is Kind.BEGIN:
            rows, infos, observation = self._begin(*frame.header[2:])
        elif self._joint is None:
            rows, infos, observation = self._reset(*frame.header[2:5])
        else:
            (asked,), options, (episode, step, next_seed) = frame.header[3:]
            rows = slice(0, self.num_envs)
            observation, infos, seed = self._joint.reset_at(asked, options, episode, step, next_seed)
        self._return[rows] = self._length[rows] = 0
        if self._several:
            self._acts[:] = infos["acts"]
        if quiet:
            self._observation[rows] = observation[rows]
            return b""
        arrays = [observation[rows], *self._lives(rows)]
        return encode_frame(Kind.OUTCOME, [seq, self._encode_infos(infos), seed], arrays)

    def _begin(self, key: int, episodes: NDArray[Any], numbers: NDArray[Any]) -> tuple[RowIndex, dict[str, Any], Any]:
        self._venv.renumber(numbers.tolist())
        observation, infos = self._venv.begin(key, episodes.tolist())
        return slice(0, self.num_envs), infos, observation

    def _reset(
        self, encoded: Any, seeds: list[int | None], options: dict[str, Any]
    ) -> tuple[RowIndex, dict[str, Any], Any]:
        rows = decode_rows(encoded, self.num_envs)
        if not are_whole(rows, self._seats):
            raise DecodeError("a reset must have whole environments")
        every: list[int | None] = [None] * self._venv.worlds
        for i, seed in zip(numbers(envs_of(rows, self._seats)), seeds, strict=True):
            every[i] = seed
        mask = np.zeros(self.num_envs, np.bool_)
        mask[rows] = True
        chosen = {} if mask.all() else {"reset_mask": mask}
        observation, infos = self._venv.reset(seed=every, options={**options, **chosen})
        return rows, infos, observation

    def _state(self, seq: int) -> bytes:
        """Return the state of the environments after a replay."""
        return encode_frame(Kind.OUTCOME, [seq, None, 0], [self._observation, self._return, self._length])

    def _lives(self, rows: RowIndex) -> list[NDArray[Any]]:
        """Return the flags of living and acting agents; empty for single-agent environments."""
        return [self._venv.alive[rows], self._acts[rows]] if self._several else []

    def _encode_infos(self, infos: dict[str, Any]) -> bytes | None:
        """Encode infos without those that frames carry as arrays; None if none are left."""
        if not self._infos:
            return None
        left = {key: value for key, value in infos.items() if key not in self._beside}
        if self._reports_ends and "final_info" in left:
            final = {key: one for key, one in left["final_info"].items() if key not in ("episode", "_episode")}
            left["final_info"] = final
            if not final:
                del left["final_info"], left["_final_info"]
        if not left:
            return None
        try:
            return encode(left)
        except EncodeError as error:
            key = find_unencodable(left)
            raise EnvError(
                f"the info {key!r} of {self._spec.id} cannot be sent ({error}); wrap the environment, or "
                "start the server with serve.infos=none"
            ) from None
