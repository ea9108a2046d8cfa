"""A session: one client's environments at a server, whose orders are done once each, however often they arrive.

Orders are numbered from 1. What came of one is kept until the client says that it has it, so a stream that breaks
costs nothing: the next one tells again what was not received. The thread of the stream that is attached does all the
work; another reads what arrives, so that one group of environments is sent on while another steps.
"""

import logging
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from envs.remote.frames import ORDERS, QUIET, Cursor, Frame, Kind, count_rows, join, read_rows
from envs.remote.stream import Stream
from envs.remote.values import Garbled, Unsayable, encode, find_unsayable
from envs.spec import EnvSpec
from envs.vector.contract import EnvError, VectorEnv, VectorMisuse, WaitsForFirst
from envs.vector.storage import Layouts, RowIndex, allocate

log = logging.getLogger("envs.remote")


@dataclass
class Kept:
    """An order that was accepted."""

    sums: tuple[int, int]
    answer: bytes | None = None  # None: it is being done


@dataclass
class Forms:
    """The dtype of a row, and its shape."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, layout: Any) -> "Forms":
        """Return those of a layout's rows."""
        array = allocate(layout, 0, np.zeros)
        return cls(array.dtype, array.shape[1:])


@dataclass
class Turn:
    """Environments at work on a step."""

    seq: int
    rows: RowIndex
    quiet: bool


@dataclass
class Session:
    """Environments of one client, and how far it is with them.

    Attributes:
        infos: whether the client is told what environments say beside observation, reward and end.
    """

    venv: VectorEnv
    spec: EnvSpec
    layouts: Layouts
    infos: bool
    nonce: bytes
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(16))

    def __post_init__(self) -> None:
        N = self.num_envs = self.venv.num_envs
        self.steps, self.attached, self.closed = 0, 0, False
        self.draining = False
        self._observation, self._action = Forms.of(self.layouts.observation), Forms.of(self.layouts.action)
        self._same_step = self.venv.autoreset is AutoresetMode.SAME_STEP
        self._accepted = 0
        self._kept: dict[int, Kept] = {}
        self._turns: list[Turn] = []
        self._busy = np.zeros(N, np.bool_)  # of them
        self._latest: NDArray[Any] | None = None  # observations, while a client replays
        self._return, self._length = np.zeros(N), np.zeros(N, np.int64)  # of running episodes
        self._stream: Stream | None = None
        self._gone_since = time.monotonic()
        self._lock = threading.Lock()  # of _stream
        self._work = threading.Lock()  # of all else: one stream at a time

    def seen(self) -> float:
        """Return when the client was last heard of."""
        stream = self._stream
        return max(self._gone_since, stream.seen if stream else 0.0)

    def attach(self, stream: Stream, received: int) -> Iterator[bytes]:
        """Serve a stream in place of the one before: what its client lacks, then what it asks for."""
        with self._lock:
            older, self._stream = self._stream, stream
        if older is not None:
            older.cut()
        with self._work:
            try:
                if self.closed:
                    yield join(Kind.FAILED, [0, "session", "the session has been closed", False])
                    return
                self.attached += 1
                yield join(Kind.ATTACHED, [self._accepted])
                for seq, kept in list(self._kept.items()):
                    if seq > received and kept.answer is not None:
                        yield kept.answer
                if isinstance(self.venv, WaitsForFirst):
                    stream.wake = self.venv.call_away
                yield from self._serve(stream)
            finally:
                stream.wake = lambda: None
                self._gone_since = time.monotonic()

    def drain(self) -> None:
        """Have the client go elsewhere, once what it asked for is done."""
        self.draining = True
        with self._lock:
            if self._stream is not None:
                self._stream.call()

    def close(self) -> None:
        """End the environments, and the stream if there is one."""
        self.closed = True
        with self._lock:
            if self._stream is not None:
                self._stream.cut()
        with self._work:
            self.venv.close()

    def _serve(self, stream: Stream) -> Iterator[bytes]:
        while not stream.over:
            frame = stream.next(block=not self._turns and not self.draining)
            if frame is not None and not self.draining:
                try:
                    yield from self._take(frame)
                except Garbled as error:
                    self.closed = True
                    yield join(Kind.FAILED, [0, "session", f"the session is closed: {error}", False])
                    return
            elif self._turns:
                yield from self._advance(stream)
            elif self.draining:
                yield join(Kind.GOODBYE, ["the server is going", 0.0])
                return
        if stream.broken is not None:
            stream.context.abort(grpc.StatusCode.DATA_LOSS, stream.broken)

    def _take(self, frame: Frame) -> Iterator[bytes]:
        """Do an order that is the next one; tell again what came of an earlier one."""
        seq, acked = frame.header[:2] if len(frame.header) > 1 else (None, None)
        if frame.kind not in ORDERS or type(seq) is not int or type(acked) is not int:
            raise Garbled(f"{frame.kind.name} with header {str(frame.header)[:80]} is no order")
        for one in [one for one in self._kept if one <= acked]:
            del self._kept[one]
        if seq <= self._accepted:
            kept = self._kept.get(seq)
            if kept is not None and kept.sums != frame.sums:
                raise Garbled(f"order {seq} came again, and is another one")
            if kept is not None and kept.answer is not None:
                yield kept.answer
            return
        if seq != self._accepted + 1:
            raise Garbled(f"order {seq} came where {self._accepted + 1} is due")
        self._accepted = seq
        quiet = bool(frame.flags & QUIET)
        if not quiet:
            self._kept[seq] = Kept(frame.sums)
        if frame.kind is Kind.TURN:
            rows = read_rows(frame.header[2], self.num_envs) if len(frame.header) == 3 else None
            if rows is None:
                raise Garbled("a turn's header is not as turns' are")
            while self._busy[rows].any():  # a replay's turns follow each other
                yield from self._finish(self._pop(0))
            try:
                self._send(seq, rows, frame, quiet)
            except VectorMisuse as error:
                yield from self._fail([seq], error)
            return
        while self._turns:
            yield from self._finish(self._pop(0))
        try:
            answer = self._state(seq) if frame.kind is Kind.STATE else self._start(seq, frame, quiet)
        except (EnvError, VectorMisuse, Unsayable) as error:
            yield from self._fail([seq], error)
            return
        if not quiet:
            yield self._keep(seq, answer)

    def _send(self, seq: int, rows: RowIndex, frame: Frame, quiet: bool) -> None:
        cursor = Cursor(frame.body)
        actions = cursor.take(self._action.dtype, count_rows(rows), *self._action.shape)
        cursor.finish()
        self.venv.send(actions, rows)
        self._turns.append(Turn(seq, rows, quiet))
        self._busy[rows] = True

    def _pop(self, k: int) -> Turn:
        turn = self._turns.pop(k)
        self._busy[turn.rows] = False
        return turn

    def _advance(self, stream: Stream) -> Iterator[bytes]:
        """Wait for environments, or until a frame comes."""
        first: int | None = 0
        if isinstance(self.venv, WaitsForFirst):
            try:
                first = self.venv.wait_for_first([turn.rows for turn in self._turns], stream.has_news)
            except EnvError as error:
                yield from self._fail_turns(error)
                return
        if first is not None:
            yield from self._finish(self._pop(first))

    def _finish(self, turn: Turn) -> Iterator[bytes]:
        try:
            answer = self._receive(turn)
        except VectorMisuse as error:
            yield from self._fail([turn.seq], error)
            return
        except EnvError as error:
            self._turns.append(turn)
            yield from self._fail_turns(error)
            return
        if not turn.quiet:
            yield self._keep(turn.seq, answer)

    def _receive(self, turn: Turn) -> bytes:
        """Return the outcome of a step."""
        rows = turn.rows
        observation, reward, terminated, truncated, infos = self.venv.recv(rows)
        self.steps += len(reward)
        self._return[rows] += reward
        self._length[rows] += 1
        finals: list[NDArray[Any]] = []
        ended = np.flatnonzero(terminated | truncated) if self._same_step else np.zeros(0, np.intp)
        if len(ended):
            ids = np.arange(self.num_envs)[rows][ended]
            self._return[ids] = self._length[ids] = 0
        if turn.quiet:
            self._note(rows, observation)
            return b""
        if len(ended):
            episode = infos["final_info"]["episode"]
            last = np.empty((len(ended), *self._observation.shape), self._observation.dtype)
            for k, row in enumerate(ended.tolist()):
                final = infos["final_obs"][row]
                opaque = isinstance(final, np.void) and last.dtype.kind != "V"
                last[k] = np.frombuffer(final, last.dtype).reshape(last.shape[1:]) if opaque else final
            finals = [last, episode["r"][ended].astype(np.float64), episode["l"][ended].astype(np.int64)]
        said = self._say(infos)
        arrays = [observation, reward.astype(np.float64, copy=False), terminated, truncated, *finals]
        return join(Kind.OUTCOME, [turn.seq, said, len(ended)], arrays)

    def _start(self, seq: int, frame: Frame, quiet: bool) -> bytes:
        """Start episodes."""
        Cursor(frame.body).finish()
        if frame.kind is Kind.BEGIN:
            rows, infos, observation = self._begin(*self._arguments(frame.header, 3))
        else:
            rows, infos, observation = self._reset(*self._arguments(frame.header, 3))
        self._return[rows] = self._length[rows] = 0
        if quiet:
            self._note(rows, observation[rows])
            return b""
        return join(Kind.OUTCOME, [seq, self._say(infos), 0], [observation[rows]])

    def _begin(self, key: Any, episodes: Any, numbers: Any) -> tuple[RowIndex, dict[str, Any], Any]:
        N = self.num_envs
        for array in (episodes, numbers):
            if not isinstance(array, np.ndarray) or array.shape != (N,) or array.dtype.kind not in "iu":
                raise Garbled(f"episodes and numbers are not whole numbers, one for each of {N} environments")
        if type(key) is not int:
            raise Garbled("a key is no whole number")
        self.venv.renumber(numbers.tolist())
        observation, infos = self.venv.begin(key, episodes.tolist())
        return slice(0, N), infos, observation

    def _reset(self, said: Any, seeds: Any, options: Any) -> tuple[RowIndex, dict[str, Any], Any]:
        rows = read_rows(said, self.num_envs)
        whole = isinstance(seeds, list) and all(one is None or type(one) is int for one in seeds)
        if not whole or len(seeds) != count_rows(rows) or not isinstance(options, dict):
            raise Garbled("a reset has not a seed for each environment, and options")
        every: list[int | None] = [None] * self.num_envs
        mask = np.zeros(self.num_envs, np.bool_)
        mask[rows] = True
        for i, seed in zip(np.flatnonzero(mask) if isinstance(rows, slice) else rows, seeds, strict=True):
            every[int(i)] = seed
        chosen = {} if mask.all() else {"reset_mask": mask}
        observation, infos = self.venv.reset(seed=every, options={**options, **chosen})
        return rows, infos, observation

    def _arguments(self, header: list[Any], count: int) -> list[Any]:
        if len(header) != 2 + count:
            raise Garbled("an order's header is not as such orders' are")
        return header[2:]

    def _state(self, seq: int) -> bytes:
        """Return where the environments are after a replay."""
        if self._latest is None:
            raise Garbled("a state is asked for where nothing was replayed")
        latest, self._latest = self._latest, None
        return join(Kind.OUTCOME, [seq, None, 0], [latest, self._return, self._length])

    def _note(self, rows: RowIndex, observation: Any) -> None:
        if self._latest is None:
            self._latest = np.zeros((self.num_envs, *self._observation.shape), self._observation.dtype)
        given = np.ascontiguousarray(observation)
        self._latest[rows] = given.view(self._latest.dtype).reshape(-1, *self._observation.shape)

    def _say(self, infos: dict[str, Any]) -> bytes | None:
        """Return infos in bytes, without what the client makes of the arrays itself; None where nothing is said."""
        if not self.infos:
            return None
        left = {key: value for key, value in infos.items() if key not in ("final_obs", "_final_obs", "env_id")}
        if self._same_step and "final_info" in left:
            final = {key: one for key, one in left["final_info"].items() if key not in ("episode", "_episode")}
            left["final_info"] = final
            if not final:
                del left["final_info"], left["_final_info"]
        if not left:
            return None
        try:
            return encode(left)
        except Unsayable as error:
            key = find_unsayable(left)
            raise EnvError(
                f"the info {key!r} of {self.spec.id} cannot be said to a client ({error}); wrap the environment, or "
                "start the server with serve.infos=none"
            ) from None

    def _keep(self, seq: int, answer: bytes) -> bytes:
        if seq in self._kept:
            self._kept[seq].answer = answer
        return answer

    def _fail(self, seqs: list[int], error: Exception) -> Iterator[bytes]:
        kind = "VectorMisuse" if isinstance(error, VectorMisuse) else "EnvError"
        for seq in seqs:
            yield self._keep(seq, join(Kind.FAILED, [seq, kind, str(error), True]))

    def _fail_turns(self, error: Exception) -> Iterator[bytes]:
        """All that is under way fails with one environment; its episodes begin anew, as the client will ask."""
        seqs = sorted(turn.seq for turn in self._turns)
        self._turns.clear()
        self._busy[:] = False
        log.warning("%s", str(error).partition("\n")[0])
        return self._fail(seqs, error)
