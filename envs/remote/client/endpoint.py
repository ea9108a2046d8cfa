"""Endpoint: a client's access to servers by unary calls, and Channel: the stream of a session."""

import logging
import queue
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc

from paddock.envs.errors import ConfigError
from paddock.envs.remote import security
from paddock.envs.remote.frames import PROTOCOL, Frame, Kind, decode_frame, encode_frame
from paddock.envs.remote.offer import Offer
from paddock.envs.remote.values import DecodeError, decode, encode
from paddock.envs.remote.versions import SameVersions, read_versions
from paddock.envs.vector.contract import EnvError

log = logging.getLogger(__name__)

RESUME = "restart its server, then resume with the same command and the run's run.dir="
CALL_S = 10.0  # time limit of a short call
FIRST_DELAY_S, MAX_DELAY_S = 0.05, 2.0  # between attempts
PATIENCE_S = 15.0  # wait for other clients of a joint environment before the first warning
FATAL = (
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNIMPLEMENTED,
)


class ConnectionLost(Exception):
    """A server cannot be reached or was lost; the message has the reason."""


@dataclass(frozen=True)
class Endpoint:
    """Servers, and the credentials of a client."""

    addresses: tuple[str, ...]  # of servers with the same offer; `file:PATH` is read for every connection
    token_file: str | None  # see `security.read_token`
    tls: dict[str, str]  # PEM files
    wait_s: float  # time for which an unreachable server is retried
    same_versions: SameVersions = "run"  # package versions that a server must have (see `Remote`)

    def connect(self, address: str) -> tuple[Any, list[tuple[str, str]]]:
        """Return a channel to a server, and the metadata of every call.

        Raises:
            ConfigError: the address or a file is invalid, or the token would be sent unencrypted.
            ConnectionLost: the file of the address does not exist yet.
        """
        found = security.find_address(address)
        if found is None:
            raise ConnectionLost(f"vec.address={address} does not contain a server yet")
        security.check_address(found)
        token = security.read_token(self.token_file)
        return security.connect(found, token, self.tls), security.token_metadata(token)

    def call(self, address: str, name: str, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Return a server's answer to a request.

        Raises:
            ConnectionLost: the server cannot be reached or has no capacity.
            ConfigError: the server refuses.
        """
        channel, metadata = self.connect(address)
        try:
            with channel:
                method = channel.unary_unary(f"/{security.SERVICE}/{name}")
                answer = decode(method(encode(request), timeout=timeout_s, metadata=metadata))
        except grpc.RpcError as error:
            assert isinstance(error, grpc.Call)
            raise _explain(address, error.code(), str(error.details())) from None
        except DecodeError as error:
            raise ConnectionLost(f"vec.address={address}: {error}") from None
        if not isinstance(answer, dict):
            raise ConnectionLost(f"vec.address={address} sent an invalid answer")
        return answer

    def describe(self, address: str, like: Offer | None = None) -> Offer:
        """Return the offer of a server, which must equal `like`; raise as `call` does."""
        offer = Offer.read(address, self.call(address, "Describe", {"protocol": PROTOCOL}, CALL_S))
        if self.same_versions == "here":
            offer.check_versions(read_versions(), "here")
        if like is not None:
            like.check_same(offer)
            if self.same_versions != "none":
                offer.check_versions(like.versions, f"at {like.address}")
        return offer

    def offers(self) -> list[Offer]:
        """Return the offers of all servers.

        Raises:
            ConfigError: their environments differ, or one refuses.
            EnvError: one cannot be reached.
        """
        offers: list[Offer] = []

        def attempt(number: int) -> Offer:
            try:
                return self.describe(self.addresses[len(offers)], offers[0] if offers else None)
            except ConnectionLost as error:
                if number == 0 and self.wait_s > FIRST_DELAY_S:
                    log.warning("vec=remote: %s; retrying for %g s", error, self.wait_s)
                raise

        for _ in self.addresses:
            offers.append(self.retry(attempt, "no server responds", "start one, or set vec.tls.ca for TLS"))
        return offers

    def retry(self, attempt: Callable[[int], Any], reason: str, fix: str = RESUME) -> Any:
        """Return the first result of `attempt(number)` without ConnectionLost; raise EnvError after `wait_s`."""
        deadline, delay, jitter, number = time.monotonic() + self.wait_s, FIRST_DELAY_S, random.Random(), 0
        while True:
            try:
                return attempt(number)
            except ConnectionLost as error:
                number += 1
                if time.monotonic() + delay > deadline:
                    raise EnvError(f"{error} ({reason}, for {self.wait_s:g} s); {fix}") from None
            time.sleep(delay * jitter.uniform(0.5, 1.0))
            delay = min(2 * delay, MAX_DELAY_S)


class Channel:
    """Stream of frames to a server.

    Attributes:
        waiting_since: start of the current wait for a frame; None: no call waits.
    """

    def __init__(self, endpoint: Endpoint, address: str, heartbeat_s: float, joint: str | None = None) -> None:
        """Open a stream; `joint` is the name of the joint environment, if any, for messages."""
        self.waiting_since: float | None = None
        self._address = address
        self._closed = threading.Event()
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._channel, metadata = endpoint.connect(address)
        method = self._channel.stream_stream(f"/{security.SERVICE}/Play")
        self._answers = method(iter(self._requests.get, None), metadata=metadata)
        threading.Thread(target=self._beat, args=(heartbeat_s, joint), name="heartbeat", daemon=True).start()

    def send(self, frame: bytes) -> None:
        """Send a frame, which is dropped if the stream is closed."""
        self._requests.put(frame)

    def receive(self) -> Frame:
        """Return the next frame.

        Raises:
            ConnectionLost: the stream was lost.
            ConfigError: the server refuses.
        """
        self.waiting_since = time.monotonic()
        try:
            return decode_frame(next(self._answers))
        except StopIteration:
            raise ConnectionLost(f"{self._address} ended the stream") from None
        except grpc.RpcError as error:
            assert isinstance(error, grpc.Call)
            raise _explain(self._address, error.code(), str(error.details())) from None
        except DecodeError as error:
            raise ConnectionLost(f"vec.address={self._address}: {error}") from None
        finally:
            self.waiting_since = None

    def close(self) -> None:
        """Close the stream."""
        self._closed.set()
        self._requests.put(None)
        self._answers.cancel()
        self._channel.close()

    def _beat(self, every_s: float, joint: str | None) -> None:
        heartbeat, patience_s = encode_frame(Kind.HEARTBEAT, []), PATIENCE_S
        while not self._closed.wait(every_s):
            self.send(heartbeat)
            since = self.waiting_since
            if joint is not None and since is not None and time.monotonic() - since > patience_s:
                patience_s *= 2
                log.warning("vec=remote: waiting for the other clients of world %s at %s", joint, self._address)


def _explain(address: str, code: grpc.StatusCode, details: str) -> Exception:
    text = " ".join(details.split())
    if code in FATAL:
        return ConfigError(f"vec.address={address}: {text}")
    return ConnectionLost(f"vec.address={address} cannot be reached ({code.name}: {text})")
