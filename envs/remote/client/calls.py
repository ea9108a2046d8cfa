"""A stream of messages to a server, which the thread that asks sends and receives itself.

gRPC's public stream has a thread that sends and another that receives, and where two cores are busy each hand-over to
one of them takes as long as the message. So a stream is operated here as gRPC's own single-threaded calls are
(`grpc._channel._SingleThreadedUnaryStreamMultiCallable`), by what its public interface is made of; a version of gRPC
that has it in another form is used by the public one.
"""

import queue
import threading
from collections import deque
from typing import Any

import grpc

from paddock.envs.vector.multiprocess.interrupts import Uninterrupted, waits

START, STATUS, SENT, RECEIVED = "start", "status", "sent", "received"  # what is under way at a call
LOOK_S = 0.1  # between looks whether Ctrl-C came, while another thread waits for an event
CODES = {code.value[0]: code for code in grpc.StatusCode}


class StreamEnded(Exception):
    """A stream is over."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        """Note why."""
        super().__init__(details)
        self.code, self.details = code, details


def open_stream(channel: Any, method: str, metadata: list[tuple[str, str]]) -> "DirectStream | PublicStream":
    """Return a stream."""
    try:
        return DirectStream(channel, method, metadata)
    except (ImportError, AttributeError, TypeError):  # of another version
        return PublicStream(channel, method, metadata)


class DirectStream:
    """A stream whose events the threads take that wait for them.

    Two threads send (one of them signs of life), one receives. Whichever waits takes what comes next, for itself or the
    other; so what is under way stands in `_due`, and an event is waited for only by who holds `_taking`.

    Where a signal's exception, as Ctrl-C's, ends a wait for an event, gRPC tells no more of the call: the stream is
    over then, and its session goes on by another one.
    """

    def __init__(self, channel: Any, method: str, metadata: list[tuple[str, str]]) -> None:
        from grpc._cython import cygrpc

        self._send, self._receive = cygrpc.SendMessageOperation, cygrpc.ReceiveMessageOperation
        start = (
            ((cygrpc.SendInitialMetadataOperation(tuple(metadata), 0),), START),
            ((cygrpc.ReceiveStatusOnClientOperation(0),), STATUS),
            ((cygrpc.ReceiveInitialMetadataOperation(0),), START + STATUS),
        )
        defaults = cygrpc.PropagationConstants.GRPC_PROPAGATE_DEFAULTS
        made = channel._channel.segregated_call
        self._call = made(defaults, method.encode(), None, None, tuple(metadata), None, start, None)
        self._due = {tag for _, tag in start}
        self._messages: deque[bytes] = deque()
        self._ended: StreamEnded | None = None
        self._sending, self._entering, self._taking = threading.Lock(), threading.Lock(), threading.Lock()
        self._noting = threading.Lock()  # of _due: what has begun is noted before its end is
        self._watched = False
        self._operate(self._receive(0), RECEIVED)

    @property
    def is_over(self) -> bool:
        """Whether it has ended.

        From the first look on a thread takes what comes, as nobody else may be waiting for it.
        """
        if not self._watched:
            self._watched = True
            threading.Thread(target=self._watch, name="watch", daemon=True).start()
        return self._ended is not None

    def send(self, message: bytes) -> None:
        """Send a message, after those before it; nothing is said where the stream is over."""
        with self._sending:
            while SENT in self._due:
                self._take(lambda: SENT not in self._due)
            if self._due:
                self._operate(self._send(message, 0), SENT)

    def receive(self) -> bytes:
        """Return the next message.

        Raises:
            StreamEnded: there is none.
        """
        while not self._messages:
            if not self._due:
                raise self._ended or StreamEnded(grpc.StatusCode.CANCELLED, "it was closed")
            self._take(lambda: bool(self._messages))
        return self._messages.popleft()

    def cancel(self) -> None:
        """End the stream."""
        with Uninterrupted():
            self._call.cancel(grpc.StatusCode.CANCELLED.value[0], "it was closed")

    def close(self) -> None:
        """End the stream, and wait for what is under way, which ends with it."""
        self.cancel()
        while self._due:
            self._take(lambda: False)

    def _watch(self) -> None:
        while self._due:
            self._take(lambda: False)

    def _operate(self, operation: Any, tag: str) -> None:
        with self._noting, Uninterrupted():
            if self._call.operate((operation,), tag):
                self._due.add(tag)

    def _take(self, done: Any) -> None:
        """Wait for an event, unless what the caller waits for has come, or all is over."""
        with Uninterrupted():  # where it came with a lock, that would stay taken
            take_lock(self._entering)  # in turn: who takes one event after another would keep others from looking
            try:
                if done():
                    return
                take_lock(self._taking)
            finally:
                self._entering.release()
            try:
                if not done() and self._due:
                    self._note(self._wait())
            finally:
                self._taking.release()

    def _note(self, event: Any) -> None:
        with self._noting:
            self._due.discard(event.tag)
        if event.tag is STATUS:
            status = event.batch_operations[0]
            details = status.details()
            said = details.decode(errors="replace") if isinstance(details, bytes) else str(details or "")
            self._ended = StreamEnded(CODES.get(status.code(), grpc.StatusCode.UNKNOWN), said)
        elif event.tag is RECEIVED:
            message = event.batch_operations[0].message()
            if message is not None:
                self._messages.append(message)
                self._operate(self._receive(0), RECEIVED)

    @waits(throughout=False)  # gRPC has locks of its own in what it calls
    def _wait(self) -> Any:
        Uninterrupted.let_come()
        try:
            return self._call.next_event()
        except BaseException:
            self._due.clear()
            self._ended = StreamEnded(grpc.StatusCode.CANCELLED, "it was interrupted")
            raise


def take_lock(lock: threading.Lock) -> None:
    """Take a lock, unless Ctrl-C comes first."""
    while not (lock.acquire(blocking=False) or lock.acquire(timeout=LOOK_S)):
        Uninterrupted.let_come()


class PublicStream:
    """A stream by gRPC's public interface; over, as `DirectStream` is, where Ctrl-C ends a wait for a message."""

    def __init__(self, channel: Any, method: str, metadata: list[tuple[str, str]]) -> None:
        self._interrupted = False
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._answers = channel.stream_stream(method)(iter(self._requests.get, None), metadata=metadata)
        self.send = self._requests.put

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self._interrupted or not self._answers.is_active()

    @waits(throughout=True)
    def receive(self) -> bytes:
        """See `DirectStream.receive`."""
        Uninterrupted.let_come()
        if self._interrupted:
            raise StreamEnded(grpc.StatusCode.CANCELLED, "it was interrupted")
        try:
            message: bytes = next(self._answers)
        except StopIteration:
            raise StreamEnded(grpc.StatusCode.OK, "the server ended it") from None
        except grpc.RpcError as error:
            assert isinstance(error, grpc.Call)
            raise StreamEnded(error.code(), str(error.details())) from None
        except BaseException:  # gRPC has asked for a message, and refuses to be asked for another
            self._interrupted = True
            self.cancel()
            raise
        return message

    def cancel(self) -> None:
        """End the stream."""
        self._answers.cancel()

    def close(self) -> None:
        """End the stream, and the thread that sends."""
        self._requests.put(None)
        self.cancel()
