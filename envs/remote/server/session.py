"""Session: one client's environments at a server; orders are executed once, however often they arrive.

Orders are numbered from 1. An answer is kept until the client acknowledges it, so after a broken stream the next one
repeats the answers that were not received. The thread of the attached stream does all the work.
"""

import logging
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from paddock.envs.errors import PaddockError
from paddock.envs.remote.frames import ORDERS, QUIET, Frame, Kind, decode_rows, encode_frame
from paddock.envs.remote.server.joint import WaitInterrupted
from paddock.envs.remote.server.joint_vector import JointVectorEnv
from paddock.envs.remote.server.steps import PendingStep, SessionEnvs
from paddock.envs.remote.server.stream import FrameStream
from paddock.envs.remote.values import DecodeError
from paddock.envs.spec import EnvSpec
from paddock.envs.vector.contract import VectorEnv, VectorMisuse
from paddock.envs.vector.multiprocess.vector import MultiprocessVectorEnv
from paddock.envs.vector.storage import Layouts

log = logging.getLogger("paddock.envs.remote")

POLL_S = 0.5  # interval of checks of a stream that waits for the previous one


@dataclass
class Session:
    """Environments of one client and the state of its orders."""

    venv: VectorEnv  # the environments
    spec: EnvSpec  # their recipe
    layouts: Layouts  # of their observations and actions
    infos: bool  # send the environments' infos to the client
    id: str = field(default_factory=lambda: secrets.token_hex(8))  # identifier of the session
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(16))  # authenticates the client's streams

    def __post_init__(self) -> None:
        self.num_envs = self.venv.num_envs  # rows
        self.closed = self.draining = False
        self._first = self.venv if isinstance(self.venv, MultiprocessVectorEnv) else None
        self._joint = self.venv if isinstance(self.venv, JointVectorEnv) else None
        self._steps = SessionEnvs(self.venv, self.spec, self.layouts, self.infos)
        self._accepted = 0
        self._kept: dict[int, bytes | None] = {}  # answers by order; None: in progress
        self._pending: list[PendingStep] = []
        self._busy = np.zeros(self.num_envs, np.bool_)  # rows with a pending step
        self._latest = np.zeros(self.num_envs, np.int64)  # step of each row
        self._stream: FrameStream | None = None
        self._gone_since = time.monotonic()
        self._lock = threading.Lock()  # of _stream
        self._work = threading.Lock()  # of everything else: one stream at a time

    def seen(self) -> float:
        """Return the time of the client's last message."""
        stream = self._stream
        return max(self._gone_since, stream.seen if stream else 0.0)

    @property
    def is_attached(self) -> bool:
        """Return whether the client is connected."""
        stream = self._stream
        return stream is not None and not stream.over

    def attach(self, stream: FrameStream, received: int) -> Iterator[bytes]:
        """Serve a stream that replaces the previous one: repeat missing answers, then execute its orders."""
        with self._lock:
            if stream.over:  # its client has closed it and may have opened another, which must not be cut
                return
            older, self._stream = self._stream, stream
        if older is not None:
            older.cut()
        while not self._work.acquire(timeout=POLL_S):  # the previous stream may be busy for long
            if stream.over:
                return
        try:
            if self.closed:
                yield encode_frame(Kind.FAILED, [0, "session", "the session has been closed"])
                return
            yield encode_frame(Kind.ATTACHED, [self._accepted])
            yield from [answer for seq, answer in self._kept.items() if seq > received and answer is not None]
            if self._first is not None:
                stream.wake = self._first.interrupt_wait
            if self._joint is not None:
                self._joint.interrupted = lambda: stream.over or self.draining
            yield from self._serve(stream)
        finally:
            stream.wake = lambda: None
            self._gone_since = time.monotonic()
            self._work.release()

    def drain(self) -> None:
        """Finish pending orders, then send the client away."""
        self.draining = True
        with self._lock:
            if self._stream is not None:
                self._stream.notify()

    def close(self) -> None:
        """Close the stream, if any, and then the environments, after the current order."""
        self.closed = True
        with self._lock:
            if self._stream is not None:
                self._stream.cut()
        with self._work:
            self.venv.close()

    def _serve(self, stream: FrameStream) -> Iterator[bytes]:
        while not stream.over:
            frame = stream.next(block=not self._pending and not self.draining)
            try:
                if frame is not None and not self.draining:
                    yield from self._take(frame)
                elif self._pending and not (self.draining and self._joint):
                    yield from self._advance(stream)
                elif self.draining:
                    yield encode_frame(Kind.GOODBYE, [])
                    return
            except WaitInterrupted:
                continue  # the order was not acknowledged; the client will repeat it
            except Exception as error:  # a malformed order, or a bug
                log.exception("session %s ends", self.id)
                self.closed, text = True, " ".join(str(error).split())
                yield encode_frame(
                    Kind.FAILED, [0, "session", f"the session was closed ({type(error).__name__}: {text})"]
                )
                return

    def _take(self, frame: Frame) -> Iterator[bytes]:
        """Execute the next order, or repeat the answer to an earlier one."""
        if frame.kind not in ORDERS or [type(one) for one in frame.header[:2]] != [int, int]:
            raise DecodeError(f"{frame.kind.name} with header {str(frame.header)[:80]} is not a valid order")
        seq, acked = frame.header[:2]
        for one in [one for one in self._kept if one <= acked]:
            del self._kept[one]
        if seq <= self._accepted:
            if (answer := self._kept.get(seq)) is not None:
                yield answer
            return
        if seq != self._accepted + 1:
            raise DecodeError(f"got order {seq}, expected {self._accepted + 1}")
        quiet = bool(frame.flags & QUIET)
        if frame.kind is Kind.STEP:
            yield from self._step(seq, frame, quiet)
            return
        while self._pending:
            yield from self._finish(0)
        try:
            answer = self._steps.execute(seq, frame, quiet)
        except DecodeError:
            raise
        except PaddockError as error:
            self._accept(seq, quiet)
            yield from self._fail([seq], error)
            return
        self._accept(seq, quiet)
        if not quiet:
            yield self._keep(seq, answer)

    def _step(self, seq: int, frame: Frame, quiet: bool) -> Iterator[bytes]:
        """Start a step of environments."""
        rows = decode_rows(frame.header[2], self.num_envs)
        while self._busy[rows].any():  # replayed steps follow each other
            yield from self._finish(0)
        self._accept(seq, quiet)
        try:
            self._steps.send(frame, rows)
        except DecodeError:
            raise
        except PaddockError as error:
            yield from self._fail([seq], error)
            return
        self._pending.append(PendingStep(seq, rows, quiet))
        self._busy[rows] = True
        # A client that acts on a step's outcome has received it, even if it has not acknowledged earlier ones.
        for one in set(self._latest[rows].tolist()):
            self._kept.pop(one, None)
        self._latest[rows] = seq

    def _accept(self, seq: int, quiet: bool) -> None:
        self._accepted = seq
        if not quiet:
            self._kept[seq] = None

    def _advance(self, stream: FrameStream) -> Iterator[bytes]:
        """Wait for environments, or for a frame."""
        first: int | None = 0
        if self._first is not None:
            try:
                groups = [step.rows for step in self._pending]
                first = self._first.wait_for_first(groups, lambda: stream.over or stream.has_news())
            except PaddockError as error:
                yield from self._fail_pending(error)
                return
        if first is not None:
            yield from self._finish(first)

    def _finish(self, k: int) -> Iterator[bytes]:
        """Finish a pending step, which stays pending if the wait is interrupted."""
        step = self._pending[k]
        failed: VectorMisuse | None = None
        try:
            answer = self._steps.receive(step)
        except VectorMisuse as error:
            failed = error
        except PaddockError as error:
            yield from self._fail_pending(error)
            return
        del self._pending[k]
        self._busy[step.rows] = False
        if failed is not None:
            yield from self._fail([step.seq], failed)
        elif not step.quiet:
            yield self._keep(step.seq, answer)

    def _keep(self, seq: int, answer: bytes) -> bytes:
        if seq in self._kept:
            self._kept[seq] = answer
        return answer

    def _fail(self, seqs: list[int], error: Exception) -> Iterator[bytes]:
        kind = "VectorMisuse" if isinstance(error, VectorMisuse) else "EnvError"
        for seq in seqs:
            yield self._keep(seq, encode_frame(Kind.FAILED, [seq, kind, str(error)]))

    def _fail_pending(self, error: Exception) -> Iterator[bytes]:
        """Fail all pending steps because of one environment; the client will reset them."""
        seqs = sorted(step.seq for step in self._pending)
        self._pending.clear()
        self._busy[:] = False
        log.warning("%s", str(error).partition("\n")[0])
        return self._fail(seqs, error)
