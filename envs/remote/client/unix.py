"""A stream of frames to a server on this machine, over a Unix domain socket.

gRPC has threads of its own at either end, and a hand-over to one takes longer than a message. A socket of the kernel's
abstract namespace, which only processes of this machine and network can reach, has the frames go from the thread that
sends to the one that waits; what is said of them is the same.
"""

import contextlib
import re
import select
import socket
import sys
import threading
import time
from collections.abc import Callable

import grpc

from paddock.envs.remote.client.calls import CODES, StreamEnded, take_lock
from paddock.envs.remote.frames import FrameReader, Kind, split
from paddock.envs.remote.guard import ANSWER_S, SOCKET_NAME, is_own
from paddock.envs.remote.values import Garbled
from paddock.envs.vector.multiprocess.interrupts import Uninterrupted, waits

SILENT_S = 3.0  # for which a server may say or take nothing before it is asked for a sign of life
LOOK_S = 0.1  # between looks whether another thread reads, while there is no room to send


def open_unix_stream(name: str | None, is_alive: Callable[[float], bool]) -> "UnixStream | None":
    """Return a stream over a server's socket; None where it has none, or this process cannot reach it.

    Args:
        name: of the socket, without the zero byte that begins it.
        is_alive: whether the server gives a sign of life within so many seconds.
    """
    # What else listens on this machine is no server's to name.
    if sys.platform != "linux" or not isinstance(name, str) or not re.fullmatch(SOCKET_NAME, name):
        return None
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:  # another machine's, gone, or full
        connection = stack.enter_context(socket.socket(socket.AF_UNIX))
        connection.setblocking(False)  # first: a stopped server, to which many have come, would be waited for for ever
        connection.connect("\0" + name)
        if is_own(connection):
            stack.pop_all()
            return UnixStream(connection, is_alive)
    return None


class UnixStream:
    """See `DirectStream`; Ctrl-C in a wait costs nothing here, but in the midst of a message that has no room."""

    def __init__(self, connection: socket.socket, is_alive: Callable[[float], bool]) -> None:
        """Take over a connection that does not block; see `open_unix_stream`."""
        self._socket, self._is_alive = connection, is_alive
        self._reader = FrameReader()
        self._ended: StreamEnded | None = None
        self._sending, self._reading = threading.Lock(), threading.Lock()
        self._arrivals = select.poll()
        self._arrivals.register(connection, select.POLLIN)

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        if self._ended is None:
            look = select.poll()
            with contextlib.suppress(ValueError):  # it has been closed meanwhile
                look.register(self._socket, select.POLLRDHUP)
                return bool(look.poll(0))
        return True

    def send(self, message: bytes) -> None:
        """Send a message, after those before it; nothing is said where the stream is over."""
        with Uninterrupted():
            take_lock(self._sending)
            left, until = memoryview(message), time.monotonic() + SILENT_S
            try:
                while left and self._ended is None:
                    try:
                        left = left[self._socket.send(left) :]
                        until = time.monotonic() + SILENT_S
                    except BlockingIOError:
                        self._wait_for_room()
                        if time.monotonic() > until:
                            self._ask_for_life()
                            until = time.monotonic() + SILENT_S
            except (OSError, ValueError):  # it was closed, or the server has gone; what that said is yet to be received
                return
            except BaseException:  # Ctrl-C
                if len(left) < len(message):  # whose rest could not follow the next message
                    self._end(grpc.StatusCode.CANCELLED, "it was interrupted")
                raise
            finally:
                self._sending.release()

    def receive(self) -> bytes:
        """Return the next message.

        Raises:
            StreamEnded: there is none.
        """
        with Uninterrupted():
            while not self._reader.frames:
                if self._ended is not None:
                    raise self._ended
                take_lock(self._reading)
                try:
                    if not self._reader.frames and self._ended is None:
                        self._read()
                finally:
                    self._reading.release()
            message = self._reader.frames.popleft()
            if message[5] == Kind.ENDED:  # as each frame's sixth byte says
                self._ended = _read_end(message)
                raise self._ended
            return message

    def cancel(self) -> None:
        """End the stream."""
        self._end(grpc.StatusCode.CANCELLED, "it was closed")

    def close(self) -> None:
        """End the stream."""
        with Uninterrupted():
            self.cancel()
            self._socket.close()

    def _end(self, code: grpc.StatusCode, details: str) -> None:
        """Have it be over, for whoever waits too."""
        self._ended = self._ended or StreamEnded(code, details)
        with contextlib.suppress(OSError):  # it is over already
            self._socket.shutdown(socket.SHUT_RDWR)

    def _read(self) -> None:
        """Take what has arrived, or wait for it; where that takes long, see whether the server lives."""
        if not _wait(self._arrivals, SILENT_S):
            self._ask_for_life()
            return
        self._take()

    def _ask_for_life(self) -> None:
        """End it where the server gives no sign of life."""
        if not self._is_alive(ANSWER_S):
            self._end(grpc.StatusCode.UNAVAILABLE, "it gives no sign of life")

    def _take(self) -> None:
        """Take what has arrived."""
        try:
            data = self._socket.recv(self._reader.wanted)
            self._reader.add(data)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        except Garbled as error:
            self._end(grpc.StatusCode.DATA_LOSS, str(error))
            return
        if not data:
            self._end(grpc.StatusCode.UNAVAILABLE, "the server is gone")

    def _wait_for_room(self) -> None:
        """Wait until something more can be sent; a server may have none before its answers are taken."""
        look, takes = select.poll(), self._reading.acquire(blocking=False)
        try:
            look.register(self._socket, select.POLLOUT | (select.POLLIN if takes else 0))
            _wait(look, LOOK_S)
            if takes:
                self._take()
        finally:
            if takes:
                self._reading.release()


def _read_end(message: bytes) -> StreamEnded:
    """Return how a server says that it ended the stream."""
    try:
        match split(message).header:
            case [int(code), str(details)]:
                return StreamEnded(CODES.get(code, grpc.StatusCode.UNKNOWN), details)
    except Garbled as error:
        return StreamEnded(grpc.StatusCode.DATA_LOSS, str(error))
    return StreamEnded(grpc.StatusCode.DATA_LOSS, "the end of a stream has no code and text")


@waits(throughout=False)
def _wait(look: select.poll, timeout_s: float) -> bool:
    """Wait for a connection; whether anything is there."""
    Uninterrupted.let_come()
    return bool(look.poll(1000 * timeout_s))
