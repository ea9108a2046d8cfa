"""Where servers are, and how one is reached: calls that are answered once, and the stream of a session."""

import logging
import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc

from paddock.envs.errors import ConfigError
from paddock.envs.remote import guard
from paddock.envs.remote.client.calls import StreamEnded, open_stream
from paddock.envs.remote.client.unix import open_unix_stream
from paddock.envs.remote.frames import PROTOCOL, Frame, Kind, join, split
from paddock.envs.remote.offer import Offer
from paddock.envs.remote.values import Garbled, decode, encode
from paddock.envs.remote.versions import SameVersions, read_versions
from paddock.envs.vector.contract import EnvError
from paddock.envs.vector.multiprocess.interrupts import Uninterrupted, waits

log = logging.getLogger(__name__)

AGAIN = "start its server again, and go on by the same command with the run's run.dir="
CALL_S = 10.0  # that a short call may take
FIRST_S, LONGEST_S = 0.05, 2.0  # between attempts
FATAL = (
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNIMPLEMENTED,
)
REFUSALS = (grpc.StatusCode.DATA_LOSS, grpc.StatusCode.RESOURCE_EXHAUSTED)  # of a message: garbled, or too large


class Lost(Exception):
    """A server cannot be reached, or has gone; its text says how that was seen."""


class MessageRefused(Lost):
    """A stream or a session ended over a message, as the next one may if that comes again."""


@dataclass(frozen=True)
class Place:
    """Servers, and what a client needs to be let in.

    Attributes:
        addresses: of servers that offer the same; `file:PATH` is read again for every connection.
        wait_s: seconds for which a client tries to reach one.
        same_versions: whose packages a server must have; see `Remote`.
    """

    addresses: tuple[str, ...]
    token_file: str | None
    tls: dict[str, str]
    wait_s: float
    same_versions: SameVersions = "run"

    def connect(self, address: str) -> tuple[Any, list[tuple[str, str]]]:
        """Return a channel to a server, and what is sent with every call.

        Raises:
            ConfigError: the address or the files are no good, or the token would be sent in the clear.
            Lost: no server has written the file that stands for its address.
        """
        found = guard.find_address(address)
        if found is None:
            raise Lost(f"vec.address={address} names no server yet")
        address, local = guard.read_address(found)
        token = guard.read_token(self.token_file)
        guard.check_client(local, address, token, self.tls)
        return guard.connect(address, token, self.tls), guard.metadata(token)

    def call(self, address: str, name: str, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Return what a server answers.

        Raises:
            Lost: it cannot be reached, or has no room.
            ConfigError: it refuses.
        """
        channel, metadata = self.connect(address)
        try:
            with channel:
                method = channel.unary_unary(f"/{guard.SERVICE}/{name}")
                answer = decode(_ask(method, encode(request), timeout_s, metadata))
        except (grpc.RpcError, Garbled) as error:
            raise _explain(address, error) from None
        if not isinstance(answer, dict):
            raise Lost(f"{address} answers no mapping")
        return answer

    def is_alive(self, address: str, timeout_s: float) -> bool:
        """Return whether a server gives a sign of life in time.

        It is gRPC's own, given to whoever may connect, whatever environments are at that leave Python's lock to others.

        Args:
            address: its own, and no file, which may name another by now.
        """
        try:
            channel = guard.connect(guard.read_address(address)[0], None, self.tls, shared=False)
        except ConfigError:  # files that it was reached with are gone
            return False
        with channel:
            return _becomes_ready(channel, timeout_s)

    def describe(self, address: str, like: Offer | None = None) -> Offer:
        """Return what a server offers, which is what another does if one is named; raises as `call` does."""
        offer = Offer.read(address, self.call(address, "Describe", {"protocol": PROTOCOL}, CALL_S))
        if self.same_versions == "here":
            offer.check_versions(read_versions(), "here")
        if like is not None:
            like.check_same(offer)
            if self.same_versions != "none":
                offer.check_versions(like.versions, f"at {like.address}")
        return offer

    def offers(self) -> list[Offer]:
        """Return what the servers offer, which is the same at all.

        Raises:
            ConfigError: it is not, or one refuses.
            EnvError: one cannot be reached.
        """

        def ask(address: str, like: Offer | None) -> Offer:
            def attempt(number: int) -> Offer:
                try:
                    return self.describe(address, like)
                except Lost as error:
                    if number == 0 and self.wait_s > FIRST_S:
                        log.warning("vec=remote: %s; it is asked again, for %g s", error, self.wait_s)
                    raise

            offer: Offer = self.try_for(attempt, "no server answers", "start one there, or name another address")
            return offer

        first = ask(self.addresses[0], None)
        return [first, *(ask(address, first) for address in self.addresses[1:])]

    def try_for(self, attempt: Callable[[int], Any], why: str, remedy: str = AGAIN) -> Any:
        """Return what an attempt gives, given its number, that does not raise Lost.

        Args:
            why: and what can be done about it, where none does.

        Raises:
            EnvError: none did in `wait_s`.
        """
        deadline, delay, jitter, number = time.monotonic() + self.wait_s, FIRST_S, random.Random(), 0
        while True:
            try:
                return attempt(number)
            except Lost as error:
                number += 1
                if time.monotonic() + delay > deadline:
                    raise EnvError(f"{error} ({why}, for {self.wait_s:g} s); {remedy}") from None
            _sleep(delay * jitter.uniform(0.5, 1.0))
            delay = min(2 * delay, LONGEST_S)


@waits(throughout=True)
def _ask(method: Any, request: bytes, timeout_s: float, metadata: Any) -> Any:
    Uninterrupted.let_come()
    return method(request, timeout=timeout_s, metadata=metadata)


@waits(throughout=True)
def _becomes_ready(channel: Any, timeout_s: float) -> bool:
    Uninterrupted.let_come()
    try:
        grpc.channel_ready_future(channel).result(timeout_s)
    except grpc.FutureTimeoutError:
        return False
    return True


@waits(throughout=True)
def _sleep(seconds: float) -> None:
    Uninterrupted.let_come()
    time.sleep(seconds)


Look = Callable[[], Callable[[], None] | None]


class Wire:
    """One stream to a server."""

    def __init__(
        self,
        place: Place,
        address: str,
        beat_s: float,
        look: Look = lambda: None,
        unix_name: str | None = None,
        at: str | None = None,
    ) -> None:
        """Begin it.

        Args:
            beat_s: seconds between signs of life.
            look: gives what is called with each of them from another thread, as long as it is there.
            unix_name: of the server's Unix domain socket, which is used in place of gRPC if this process can reach it.
            at: where that server is, if `address` is a file's.
        """
        self._address, self._pid = address, os.getpid()
        self._closed = threading.Event()
        self._channel: Any = None
        self._stream: Any = open_unix_stream(unix_name, partial(place.is_alive, at or address))
        if self._stream is None:
            self._channel, metadata = place.connect(address)
            self._stream = open_stream(self._channel, f"/{guard.SERVICE}/Play", metadata)
        self.send = self._stream.send
        threading.Thread(target=_beat, args=(self.send, self._closed, beat_s, look), name="beat", daemon=True).start()

    def receive(self) -> Frame:
        """Return the next frame.

        Raises:
            Lost: there is none; ConfigError: the server refuses.
        """
        try:
            return split(self._stream.receive())
        except StreamEnded as error:
            if error.code is grpc.StatusCode.OK:
                raise Lost(f"{self._address} ended the stream") from None
            raise _explain_status(self._address, error.code, error.details) from None
        except Garbled as error:
            raise MessageRefused(f"vec.address={self._address}: {error}") from None

    @property
    def is_over(self) -> bool:
        """Whether the stream has ended."""
        return self._stream.is_over

    def close(self) -> None:
        """End the stream; not in a fork, to whose maker it is left."""
        if os.getpid() != self._pid:
            return
        self._closed.set()
        self._stream.close()
        if self._channel is not None:
            self._channel.close()


def _explain(address: str, error: Exception) -> Exception:
    """Return what to raise for an error of a call."""
    if isinstance(error, grpc.RpcError) and isinstance(error, grpc.Call):
        return _explain_status(address, error.code(), str(error.details()))
    return Lost(f"vec.address={address}: {error}")


def _explain_status(address: str, code: grpc.StatusCode, details: str) -> Exception:
    said = " ".join(details.split())
    if code in FATAL:
        return ConfigError(f"vec.address={address}: {said}")
    lost = MessageRefused if code in REFUSALS else Lost
    return lost(f"vec.address={address} cannot be reached ({code.name}: {said})")


def _beat(send: Callable[[bytes], None], closed: threading.Event, every_s: float, look: Look) -> None:
    beat = join(Kind.BEAT, [])
    while not closed.wait(every_s):
        if (tell := look()) is not None:
            tell()  # first: a sign of life waits with what is sent, where a server takes no more
        send(beat)
