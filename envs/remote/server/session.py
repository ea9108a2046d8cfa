"""A session: one client's environments at a server, whose orders are done once each, however often they arrive.

Orders are numbered from 1. What came of one is kept until the client says that it has it, so a stream that breaks
costs nothing: the next one tells again what was not received. The thread of the stream that is attached does all the
work, and tells what came of it; but while it sleeps until a worker is done, the thread in which a turn arrives hands it
to the workers itself, for where two cores are busy each hand-over to a thread takes as long as the message.
"""

import logging
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import grpc
import numpy as np

from paddock.envs.errors import PaddockError
from paddock.envs.remote.frames import CHOSEN, ORDERS, QUIET, Frame, Kind, join, read_rows
from paddock.envs.remote.server.seats import CalledAway, SeatsVectorEnv
from paddock.envs.remote.server.steps import PendingStep, SessionEnvs
from paddock.envs.remote.server.stream import FrameStream
from paddock.envs.remote.values import Garbled
from paddock.envs.spec import EnvSpec
from paddock.envs.vector.contract import EnvError, VectorEnv, VectorMisuse, WaitsForFirst
from paddock.envs.vector.storage import Layouts, RowIndex

log = logging.getLogger("paddock.envs.remote")

LOOK_S = 0.5  # between looks whether a stream is over that waits for the one before
MOST_KEPT = 64  # orders beside turns, of each of which a client waits for the answer
AWAKE_S = 1.0  # for which a session without work waits where turns are handed to workers at once


class GroupsAtWork:
    """The rows of turns, as many as there are whenever one looks."""

    def __init__(self, turns: list[PendingStep]) -> None:
        self._turns = turns

    def __iter__(self) -> Iterator[RowIndex]:
        return (turn.rows for turn in self._turns)


@dataclass
class Kept:
    """An order that was accepted."""

    sums: tuple[int, int]
    answer: bytes | None = None  # None: it is being done


@dataclass
class Session:
    """Environments of one client, and how far it is with them.

    Attributes:
        infos: whether the client is told what environments say beside observation, reward and end.
        end: why it ends where its stream's thread ends it.
    """

    venv: VectorEnv
    spec: EnvSpec
    layouts: Layouts
    infos: bool
    nonce: bytes
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(16))

    def __post_init__(self) -> None:
        N = self.num_envs = self.venv.num_envs  # rows
        self.attached, self.closed, self.draining, self.end = 0, False, False, ""
        self._first = self.venv if isinstance(self.venv, WaitsForFirst) else None  # asked once, as it takes long to say
        # Whether turns can be done in another thread: to send is never to wait, but where others are to act too.
        self._at_once = self._first is not None and not isinstance(self.venv, SeatsVectorEnv)
        self._steps = SessionEnvs(self.venv, self.spec, self.layouts, self.infos)
        self._accepted = 0
        self._kept: dict[int, Kept] = {}
        self._turns: list[PendingStep] = []
        self._groups = GroupsAtWork(self._turns)
        self._busy = np.zeros(N, np.bool_)  # of them
        self._latest = np.zeros(N, np.int64)  # turn of each row
        self._stream: FrameStream | None = None
        self._gone_since = time.monotonic()
        self._lock = threading.Lock()  # of _stream
        self._work = threading.Lock()  # of all else: one stream at a time
        self._hands = threading.Lock()  # of all else, within a stream: its thread has it but while it sleeps
        self._hands.acquire()
        self._unforeseen: Exception | None = None  # that a turn came to in another thread, and is yet to be told
        self._idle_s = 0.0  # when it has been without work for too long to wait at the workers

    @property
    def steps(self) -> int:
        """Steps of environments so far."""
        return self._steps.steps

    def seen(self) -> float:
        """Return when the client was last heard of."""
        stream = self._stream
        return max(self._gone_since, stream.seen if stream else 0.0)

    @property
    def is_attached(self) -> bool:
        """Whether its client is connected."""
        stream = self._stream
        return stream is not None and not stream.over

    def attach(self, stream: FrameStream, received: int) -> Iterator[bytes]:
        """Serve a stream in place of the one before: what its client lacks, then what it asks for."""
        with self._lock:
            if stream.over:  # its client has hung up, and may have another by now, which is not to be cut
                return
            older, self._stream = self._stream, stream
        if older is not None:
            older.cut()
        while not self._work.acquire(timeout=LOOK_S):  # the older one may be at work for long
            if stream.over:
                return
        try:
            if self.closed:
                yield join(Kind.FAILED, [0, "session", "the session has been closed", False])
                return
            self.attached += 1
            yield join(Kind.ATTACHED, [self._accepted])
            for seq, kept in list(self._kept.items()):
                if seq > received and kept.answer is not None:
                    yield kept.answer
            if isinstance(self.venv, SeatsVectorEnv):
                stream.wake = self.venv.call_away
                self.venv.called = lambda: stream.over or self.draining
            elif self._at_once:
                stream.offer = self._take_at_once
            yield from self._serve(stream)
        finally:
            stream.wake, stream.offer = (lambda: None), (lambda frame: False)
            self._gone_since = time.monotonic()
            self._work.release()

    def drain(self) -> None:
        """Have the client go elsewhere, once what it asked for is done."""
        self.draining = True
        with self._lock:
            if self._stream is not None:
                self._stream.call()

    def close(self) -> None:
        """End the stream if there is one, and the environments, once they have come to the end of what they are at."""
        self.closed = True
        with self._lock:
            if self._stream is not None:
                self._stream.cut()
        with self._work:
            self.venv.close()

    def _serve(self, stream: FrameStream) -> Iterator[bytes]:
        while not stream.over:
            waits = self._turns or time.monotonic() < self._idle_s
            frame = stream.next(block=not waits and not self.draining)
            try:
                if frame is not None and not self.draining:
                    yield from self._take(frame)
                elif waits and not (self.draining and (isinstance(self.venv, SeatsVectorEnv) or not self._turns)):
                    yield from self._advance(stream)
                elif self.draining:
                    yield join(Kind.GOODBYE, ["the server is going", 0.0])
                    return
            except CalledAway:
                continue  # the client has not been told that it was accepted, and asks again
            except Garbled as error:
                self.closed, self.end = True, "its client broke the protocol"
                yield join(Kind.FAILED, [0, "session", f"the session is closed: {error}", False])
                return
            except Exception as error:
                yield from self._give_up(frame, error)
                return
        if stream.broken is not None:
            stream.context.abort(grpc.StatusCode.DATA_LOSS, stream.broken)

    def _take(self, frame: Frame) -> Iterator[bytes]:
        """Do an order that is the next one; tell again what came of an earlier one."""
        seq, acked = frame.header[:2] if len(frame.header) > 1 else (None, None)
        if frame.kind not in ORDERS or type(seq) is not int or type(acked) is not int:
            raise Garbled(f"{frame.kind.name} with header {str(frame.header)[:80]} is no order")
        if self._unforeseen is not None:
            raise self._unforeseen
        self._forget(acked)
        if seq <= self._accepted:
            kept = self._kept.get(seq)
            if kept is not None and kept.sums != frame.sums:
                raise Garbled(f"order {seq} came again, and is another one")
            if kept is not None and kept.answer is not None:
                yield kept.answer
            return
        if seq != self._accepted + 1:
            raise Garbled(f"order {seq} came where {self._accepted + 1} is due")
        quiet = bool(frame.flags & QUIET)
        if frame.kind is Kind.TURN:
            rows = read_rows(frame.header[2], self.num_envs) if len(frame.header) == 3 else None
            if rows is None:
                raise Garbled("a turn's header is not as turns' are")
            while self._busy[rows].any():  # a replay's turns follow each other
                yield from self._finish(self._pop(0))
            self._accept(seq, frame, quiet)
            try:
                self._send(seq, frame, rows)
            except Garbled:
                raise
            except PaddockError as error:
                yield from self._fail([seq], error)
            return
        if len(self._kept) > self.num_envs + MOST_KEPT:
            raise Garbled("it acknowledges nothing")
        while self._turns:
            yield from self._finish(self._pop(0))
        if isinstance(self.venv, SeatsVectorEnv):
            self.venv.replaying, self.venv.chosen = quiet, bool(frame.flags & CHOSEN)
        try:
            answer = self._steps.do(seq, frame, quiet)
        except Garbled:
            raise
        except PaddockError as error:
            self._accept(seq, frame, quiet)
            yield from self._fail([seq], error)
            return
        self._accept(seq, frame, quiet)
        if not quiet:
            yield self._keep(seq, answer)

    def _take_at_once(self, frame: Frame) -> bool:
        """Do a turn that is due, in another thread than the stream's, which sleeps; return whether it was done."""
        if frame.kind is not Kind.TURN or len(frame.header) != 3 or not self._hands.acquire(blocking=False):
            return False
        try:
            seq, acked, said = frame.header
            if type(seq) is not int or seq != self._accepted + 1 or type(acked) is not int or self.draining:
                return False
            rows = read_rows(said, self.num_envs)
            if self._busy[rows].any():
                return False
            self._send(seq, frame, rows)
            self._forget(acked)
            self._accept(seq, frame, bool(frame.flags & QUIET))
            return True
        except (Garbled, PaddockError):
            return False  # as the stream's thread finds too, and tells
        except Exception as error:  # or that thread would end, to which the messages of all clients come
            self._unforeseen = error
            return False
        finally:
            self._hands.release()

    def _send(self, seq: int, frame: Frame, rows: RowIndex) -> None:
        """Have environments step by a turn."""
        self._steps.send(frame, rows)
        self._turns.append(PendingStep(seq, rows, bool(frame.flags & QUIET)))
        self._busy[rows] = True
        # Who acts on what came of a turn has it, though others of before may still be under way, and not acknowledged.
        for one in set(self._latest[rows].tolist()):
            self._kept.pop(one, None)
        self._latest[rows] = seq

    def _forget(self, acked: int) -> None:
        """Drop what the client has."""
        for one in [one for one in self._kept if one <= acked]:
            del self._kept[one]

    def _accept(self, seq: int, frame: Frame, quiet: bool) -> None:
        self._accepted = seq
        if not quiet:
            self._kept[seq] = Kept(frame.sums)

    def _pop(self, k: int) -> PendingStep:
        turn = self._turns.pop(k)
        self._busy[turn.rows] = False
        return turn

    def _advance(self, stream: FrameStream) -> Iterator[bytes]:
        """Wait for environments, or until a frame comes."""
        first: int | None = 0
        if self._first is not None:
            # No longer than it waits: elsewhere frames are looked for anyway, and a call would be looked at twice.
            before, stream.wake = stream.wake, self._first.call_away
            try:
                first = self._first.wait_for_first(self._groups, lambda: self._is_called(stream), self._hands)
            except PaddockError as error:
                yield from self._fail_turns(error)
                return
            finally:
                stream.wake = before
            if first is not None and self._at_once:
                self._idle_s = time.monotonic() + AWAKE_S
        if first is not None:
            yield from self._finish(self._pop(first))

    def _is_called(self, stream: FrameStream) -> bool:
        """Return whether there is something else to do than to wait for environments."""
        idle = not self._turns and (stream.over or self.draining or time.monotonic() > self._idle_s)
        return idle or stream.has_news()

    def _finish(self, turn: PendingStep) -> Iterator[bytes]:
        try:
            answer = self._steps.receive(turn)
        except CalledAway:
            self._turns.insert(0, turn)
            self._busy[turn.rows] = True
            raise
        except VectorMisuse as error:
            yield from self._fail([turn.seq], error)
            return
        except PaddockError as error:
            self._turns.append(turn)
            yield from self._fail_turns(error)
            return
        if not turn.quiet:
            yield self._keep(turn.seq, answer)

    def _keep(self, seq: int, answer: bytes) -> bytes:
        if seq in self._kept:
            self._kept[seq].answer = answer
        return answer

    def _fail(self, seqs: list[int], error: Exception) -> Iterator[bytes]:
        kind = "VectorMisuse" if isinstance(error, VectorMisuse) else "EnvError"
        for seq in seqs:
            yield self._keep(seq, join(Kind.FAILED, [seq, kind, str(error), True]))

    def _give_up(self, frame: Frame | None, error: Exception) -> Iterator[bytes]:
        """End with what nobody foresaw: where the environments are is not known, and the client would wait for ever."""
        log.exception("session %s ends", self.id)
        self.closed, self.end = True, "the server failed"
        if frame is not None and frame.header[0] > self._accepted:
            self._accept(frame.header[0], frame, quiet=False)
        due = [seq for seq, kept in self._kept.items() if kept.answer is None]
        said = f"the server failed ({type(error).__name__}: {' '.join(str(error).split())}), and its log says where"
        return self._fail(due, EnvError(f"{said}; go on by the same command with the run's run.dir="))

    def _fail_turns(self, error: Exception) -> Iterator[bytes]:
        """All that is under way fails with one environment; its episodes begin anew, as the client will ask."""
        seqs = sorted(turn.seq for turn in self._turns)
        self._turns.clear()
        self._busy[:] = False
        log.warning("%s", str(error).partition("\n")[0])
        return self._fail(seqs, error)
