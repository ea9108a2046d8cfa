"""A client's session at one server: how it is opened, and the stream that is attached to it."""

import contextlib
import logging
import os
import secrets
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paddock.envs.errors import ConfigError
from paddock.envs.remote.client.place import CALL_S, Lost, MessageRefused, Place, Wire
from paddock.envs.remote.frames import Frame, JointEpisode, Kind, join
from paddock.envs.remote.guard import find_address
from paddock.envs.vector.contract import EnvError
from paddock.envs.vector.multiprocess.interrupts import Finalizing

log = logging.getLogger(__name__)

BEAT_S = 10.0  # between signs of life, at most
PATIENCE_S = 15.0  # for which a client waits for the others of a joint world without a word, the first time
OPEN_S = 300.0  # that a server may take to build environments


class ClientSession:
    """Environments at one server, and the way there.

    Attributes:
        address: of the server.
        wire: the stream that is attached, or was last; None: there was none.
        running: the episode of a joint world that had begun last when it was opened; None: there was none.
        is_gone: whether there is no such session, or none yet.
        is_closed: whether it was closed, perhaps by another thread.
    """

    def __init__(self, place: Place, address: str, asked: Mapping[str, Any]) -> None:
        """Have none yet.

        Args:
            asked: what it is opened with, beside a number that is used once.
        """
        self.address, self.is_gone, self.is_closed = address, True, False
        self.wire: Wire | None = None
        self.running: JointEpisode | None = None
        self._place, self._asked = place, dict(asked)
        self._named: tuple[str, bytes] | None = None  # its number and secret
        self._unix_name: str | None = None
        self._at = address  # in place of a file, which may name another server by the time that this one is asked for
        self._beat_s = BEAT_S
        self._pid = os.getpid()
        self._asked_s, self._patience_s = 0.0, PATIENCE_S
        self._finalizer = weakref.finalize(self, _close_wires, [])

    def elsewhere(self, address: str) -> "ClientSession":
        """Return one that is opened with the same at a server."""
        return ClientSession(self._place, address, self._asked)

    def open(self) -> None:
        """Open it, with its environments as new."""
        self._at = find_address(self.address) or self.address
        request = {"nonce": secrets.token_bytes(16), **self._asked}
        try:
            opened = self._place.call(self._at, "Open", request, OPEN_S)
        except Lost:  # where the answer was lost, the same nonce finds the session again
            opened = self._place.call(self._at, "Open", request, OPEN_S)
        self._named, self.is_gone = (opened["session"], opened["secret"]), False
        self._unix_name = opened["unix"]
        self.running = JointEpisode.read(opened["running"])
        self._beat_s = min(BEAT_S, opened["lease_s"] / 4)
        if self.attach(0) is None:
            raise Lost(f"{self.address} has lost the session")

    def attach(self, received: int) -> int | None:
        """Begin a stream; returns the last order the server has, None where the session is gone.

        Args:
            received: the number of the order up to which all outcomes have come.
        """
        assert self._named is not None
        self.hang_up()
        tell = weakref.WeakMethod(self._tell_of_waiting)
        wire = self.wire = Wire(self._place, self.address, self._beat_s, tell, self._unix_name, self._at)
        self._finalizer = weakref.finalize(self, _close_wires, [wire])
        if self.is_closed:  # by another thread, which may not have seen this stream
            raise EnvError(f"{self.address}: the session was closed")
        wire.send(join(Kind.ATTACH, [*self._named, received]))
        frame = wire.receive()
        if frame.kind is Kind.ATTACHED:
            return int(frame.header[0])
        if frame.kind is Kind.FAILED:
            self.is_gone = True
            return None
        raise Lost(f"{self.address} is going")

    def next(self) -> Frame | Lost:
        """Return the next frame of outcomes, or how the stream was lost."""
        assert self.wire is not None
        try:
            with self.wait():
                frame = self.wire.receive()
        except Lost as error:
            return error
        if frame.kind is Kind.GOODBYE:
            return Lost(f"{self.address} is going")
        if frame.kind not in (Kind.OUTCOME, Kind.FAILED) or not frame.header:
            return Lost(f"{self.address} sent a {frame.kind.name}, which is no outcome")
        if frame.header[0] == 0:
            self.is_gone = True
            return MessageRefused(f"{self.address}: {frame.header[2]}")
        return frame

    @contextlib.contextmanager
    def wait(self) -> Iterator[None]:
        """Tell of others that are waited for, if that takes long."""
        self._asked_s = time.monotonic()
        try:
            yield
        finally:
            self._asked_s = 0.0

    def hang_up(self) -> None:
        """End the stream if there is one; the session goes on."""
        self._finalizer.detach()
        if self.wire is not None:
            self.wire.close()

    def close(self) -> None:
        """Close the session, and tell the server if it is there."""
        self.is_closed = True
        self.hang_up()
        if not self.is_gone and self._named is not None and os.getpid() == self._pid:
            id, secret = self._named
            with contextlib.suppress(Lost, ConfigError):
                self._place.call(self._at, "Close", {"session": id, "secret": secret}, CALL_S)
        self.is_gone = True

    def _tell_of_waiting(self) -> None:
        """Tell, more and more seldom, that other clients of a joint world are waited for."""
        asked_s, world = self._asked_s, self._asked.get("world")
        if world is not None and asked_s and time.monotonic() - asked_s > self._patience_s:
            self._patience_s *= 2
            log.warning("vec=remote: waiting for whoever has the other seats of world %s at %s", world, self.address)


def _close_wires(wires: Sequence[Wire]) -> None:
    with Finalizing():
        for wire in wires:
            wire.close()
