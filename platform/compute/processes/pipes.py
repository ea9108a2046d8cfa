"""Pipes to processes on other machines.

`Pipe` is the standard library's. An end that is passed to a process on a worker connects to this process when it is
first used there, and this process relays its messages. So create a pipe in one of the processes that use it.
"""

import collections
import copyreg
import os
import select
import threading
import uuid
from functools import partial
from multiprocessing import connection, process
from multiprocessing.connection import Connection
from multiprocessing.connection import Pipe as Pipe
from multiprocessing.context import get_spawning_popen
from typing import Any

from .hosting import Address, connect, host

_sending: dict[int, threading.Lock] = collections.defaultdict(threading.Lock)  # by inode of the pipe's end


def reduce_connection(end: Connection) -> Any:
    """Return how an end of a pipe is pickled: for a process on a worker, as a key that it sends here."""
    popen: Any = get_spawning_popen()
    if popen is None or not popen.remote:
        return connection.reduce_connection(end)  # type: ignore[attr-defined]
    key, server = uuid.uuid4().hex, host()
    near = Connection(os.dup(end.fileno()), end.readable, end.writable)
    server.links[key] = partial(_relay, near, _sending[os.fstat(near.fileno()).st_ino])
    popen.links.append(key)
    return RemoteEnd, (server.address, key, end.readable, end.writable)


copyreg.pickle(Connection, reduce_connection)


def open_link(address: Address, key: str) -> tuple[Connection, Any]:
    """Connect to a process that waits for this key; return the connection and the first message.

    Raises:
        ConnectionError: the process has ended, or does not wait for the key anymore.
    """
    opened = connect(address, process.current_process().authkey)
    opened.send((None, "link", (key,), {}))
    kind, first = opened.recv()
    if kind != "#RETURN":
        raise ConnectionRefusedError("the other process has closed this connection")
    return opened, first


def _relay(near: Connection, sending: threading.Lock, remote: Connection) -> None:
    """Relay messages between an end of a pipe here and the process that uses it, until either is closed."""
    with near, remote:
        remote.send(("#RETURN", None))
        poll = select.poll()
        poll.register(remote, select.POLLIN)
        if near.readable:
            poll.register(near, select.POLLIN)
        try:
            while True:
                for descriptor, _ in poll.poll():
                    if descriptor == near.fileno():
                        remote.send_bytes(near.recv_bytes())
                    else:
                        data = remote.recv_bytes()
                        with sending:
                            near.send_bytes(data)
        except (EOFError, OSError):
            return


class RemoteEnd(Connection):
    """End of a pipe whose other end is in the process that created it; connects when it is first used."""

    def __init__(self, address: Address, key: str, readable: bool, writable: bool) -> None:
        """Remember where to connect."""
        self._link: tuple[Address, str] | None = (address, key)
        self._descriptor: int | None = None
        self._readable, self._writable = readable, writable

    @property
    def _handle(self) -> int | None:
        if self._descriptor is None and self._link is not None:
            opened: Any = open_link(*self._link)[0]
            self._descriptor, opened._handle, self._link = opened._handle, None, None
        return self._descriptor

    @_handle.setter
    def _handle(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    @property
    def closed(self) -> bool:
        """True if the end is closed."""
        return self._descriptor is None and self._link is None

    def close(self) -> None:
        """Close the end."""
        if self._link is not None:
            address, key = self._link
            with connect(address, process.current_process().authkey) as opened:
                opened.send((None, "unlink", (key,), {}))
                opened.recv()
            self._link = None
        super().close()

    def __del__(self) -> None:
        """Close the connection, if any."""
        self._link = None
        super().__del__()

    def __reduce__(self) -> Any:
        """Return how it is pickled; a child on this machine shares the connection."""
        return reduce_connection(self)
