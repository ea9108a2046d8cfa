"""Streams of clients on the server's own machine, over a Unix domain socket; see `paddock.envs.remote.client.unix`.

It lies in the kernel's abstract namespace: it has no file, and is gone with the process. Only processes of the
server's user are let in. The name, which is told with a session, is no secret, as all of the machine can list such
sockets; what a stream may ask for is decided by its session's.
"""

import contextlib
import inspect
import secrets
import select
import socket
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

import grpc

from paddock.envs.remote.frames import FrameReader, Kind, join
from paddock.envs.remote.guard import is_own

LOOK_S = 0.1  # between looks whether there is room for a connection
Frames = Generator[bytes, None, None]
Serve = Callable[[Frames, Any], Frames]  # what has a client's frames answered


class StreamAborted(Exception):
    """A stream was ended, and its client told why."""


class UnixContext:
    """A connection, as `FrameStream` and `EnvironmentServer` use the context of a call of gRPC's."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._look = select.poll()
        self._look.register(connection, select.POLLRDHUP)

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Do without: whoever reads finds that the client has gone."""
        return True

    def is_active(self) -> bool:
        """Return whether the client is there."""
        return not self._look.poll(0)

    def cancel(self) -> None:
        """End the connection."""
        with contextlib.suppress(OSError):  # it has ended
            self.connection.shutdown(socket.SHUT_RDWR)

    def abort(self, code: grpc.StatusCode, details: str) -> None:
        """End the stream, and tell the client why; raises StreamAborted."""
        self.connection.sendall(join(Kind.ENDED, [code.value[0], details]))
        raise StreamAborted(details)


class UnixListener:
    """Takes connections, and has each answered in a thread of its own.

    Attributes:
        name: of the socket, without the zero byte that begins it; None: there is none, as of a system without the kind.
    """

    def __init__(self, serve: Serve, most_bytes: int) -> None:
        """Listen.

        Args:
            serve: returns the answers to a connection's frames.
            most_bytes: of a frame.
        """
        self._serve, self._most = serve, most_bytes
        self._threads: dict[threading.Thread, UnixContext] = {}
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._listener: socket.socket | None = None
        self.name: str | None = None
        name = f"paddock-{secrets.token_hex(16)}"
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:  # clients come by gRPC alone
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(f"\0{name}")
            listener.listen()
            stack.pop_all()
            self._listener, self.name = listener, name
            threading.Thread(target=self._accept, args=(listener,), name="unix", daemon=True).start()

    def join(self, timeout_s: float) -> bool:
        """Take no more connections, and wait for those there are; whether all have ended in time."""
        self._stop()
        deadline = time.monotonic() + timeout_s
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0.0))
        return not self._threads

    def close(self) -> None:
        """Take no more connections, and end those there are."""
        self._stop()
        with self._lock:
            for context in self._threads.values():
                context.cancel()

    def _stop(self) -> None:
        self._stopped.set()
        if self._listener is not None:
            with contextlib.suppress(OSError):  # it has been stopped before
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # it was stopped, or this process may open no more files for now
                if self._stopped.wait(LOOK_S):
                    return
                continue
            try:
                reads = connection.dup()  # which is closed by whoever reads, wherever that is
            except OSError:  # no more files; its client comes again
                connection.close()
                continue
            thread = threading.Thread(target=self._carry, args=(connection, reads), name="session", daemon=True)
            with self._lock:
                if not self._stopped.is_set() and is_own(connection):
                    try:
                        thread.start()
                        self._threads[thread] = UnixContext(connection)
                        continue
                    except RuntimeError:  # this process may have no more threads for now
                        pass
            connection.close()
            reads.close()

    def _carry(self, connection: socket.socket, reads: socket.socket) -> None:
        """Send the answers to a client's frames until either side ends."""
        with self._lock:  # until it is among the others
            context = self._threads[threading.current_thread()]
        frames = read_frames(reads, self._most)
        answers = self._serve(frames, context)
        try:
            with contextlib.closing(answers), contextlib.suppress(OSError, StreamAborted):
                for answer in answers:
                    connection.sendall(answer)
        finally:
            context.cancel()
            connection.close()
            if inspect.getgeneratorstate(frames) == inspect.GEN_CREATED:  # nobody does
                reads.close()
            with self._lock:
                del self._threads[threading.current_thread()]


def read_frames(connection: socket.socket, most_bytes: int) -> Frames:
    """Return frames as they arrive, and close the connection after the last.

    Raises:
        Garbled: no frame begins where one is due, or one that is too long.
    """
    reader, arrivals = FrameReader(most_bytes), select.poll()
    with connection:
        arrivals.register(connection, select.POLLIN)
        while True:
            arrivals.poll()  # who waits in recv itself is woken, too, whenever the client takes an answer
            data = connection.recv(reader.wanted)
            if not data:
                return
            reader.add(data)
            while reader.frames:
                yield reader.frames.popleft()
