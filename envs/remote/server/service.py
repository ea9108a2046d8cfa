"""gRPC server with many sessions, a health service and a graceful shutdown."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc

from paddock.envs.certificates import check_tls
from paddock.envs.errors import PaddockError, require
from paddock.envs.remote import security
from paddock.envs.remote.frames import PROTOCOL, SPARE, Kind, encode_frame
from paddock.envs.remote.offer import describe_roles
from paddock.envs.remote.server.joint import Unavailable
from paddock.envs.remote.server.sessions import Sessions
from paddock.envs.remote.server.settings import ServerSettings
from paddock.envs.remote.server.stream import FrameStream
from paddock.envs.remote.values import DecodeError, decode, encode, is_encodable
from paddock.envs.remote.versions import read_versions
from paddock.envs.spec import EnvSpec
from paddock.envs.vector.recipes import Vec
from paddock.envs.vector.storage import Layouts

ATTACH_S = 10.0  # time limit for a stream's first frame
SPARE_THREADS = 8  # for unary calls


class TokenInterceptor(grpc.ServerInterceptor):
    """Interceptor that refuses calls without the token before their requests are read."""

    def __init__(self, token: str | None) -> None:
        """Require a token; None: accept all calls."""
        self._token = token

    def intercept_service(self, continuation: Callable[[Any], Any], handler_call_details: Any) -> Any:
        """Return the handler of a call."""
        ours = handler_call_details.method.startswith(f"/{security.SERVICE}/")
        if not ours or security.admits(self._token, handler_call_details.invocation_metadata):
            return continuation(handler_call_details)
        return grpc.stream_stream_rpc_method_handler(self._refuse)  # a unary handler would read the request first

    def _refuse(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is not the server's; set token_file to its file")
        return iter(())


class EnvironmentServer:
    """Server of environments of one recipe.

    Attributes:
        address: where it listens, with the actual port if 0 was requested.
        sessions: of its clients.
    """

    def __init__(self, spec: EnvSpec, vec: Vec, settings: ServerSettings) -> None:
        """Start to listen.

        Args:
            spec: recipe of the environments.
            vec: vectorization of a session; its num_envs is the total of all sessions.
            settings: of the server.

        Raises:
            ConfigError: a space is of a custom class or unknown size, or the address is in use, or open to other
                machines without token and encryption.
        """
        name = type(vec).__name__.lower()
        fix = "start the server with vec=multiprocess, serial or native"
        require(vec.seeded_slots, f"vec={name} cannot restore an episode; {fix}")
        self._settings = settings
        layouts = Layouts.of_seats(spec, spec.made.seats)
        self._offer: dict[str, Any] = {
            "environment": spec.fields,
            "roles": describe_roles(spec.roles),
            "metadata": {key: value for key, value in spec.made.metadata.items() if is_encodable(value)},
            "vec": name,
            "versions": read_versions(),
            "limit": spec.made.limit,
            "protocol": PROTOCOL,
        }
        self._stopping = threading.Event()
        self._streams = threading.BoundedSemaphore(settings.max_sessions + 4)
        address = settings.address
        local = security.check_address(address, "serve.address")
        require(not address.startswith("file:"), f"serve.address={address} is for clients; use serve.address_file")
        tls = check_tls(settings.tls, ("cert", "key"))
        if settings.token_file is not None:
            security.make_token(settings.token_file)
        token = security.read_token(settings.token_file)
        security.check_server(local, address, token, tls, settings.insecure)
        max_bytes = vec.num_envs * layouts.seats * layouts.action.itemsize + SPARE
        threads = settings.max_sessions + 4 + SPARE_THREADS
        self._threads = futures.ThreadPoolExecutor(threads, "session")
        options, interceptors = security.server_options(max_bytes), [TokenInterceptor(token)]
        self._server = grpc.server(self._threads, options=options, interceptors=interceptors)
        calls = {"Describe": self._describe, "Open": self._open, "Close": self._close}
        own = {name: grpc.unary_unary_rpc_method_handler(_answer_plain(call)) for name, call in calls.items()}
        own["Play"] = grpc.stream_stream_rpc_method_handler(self._play)
        service = grpc.method_handlers_generic_handler(security.SERVICE, own)
        self._server.add_generic_rpc_handlers((service, self._health()))
        self.address = security.bind(self._server, address, tls)
        if address.startswith("unix:"):
            os.chmod(address.removeprefix("unix:"), 0o600)
        if settings.address_file is not None:
            security.write_address_file(settings.address_file, self.address)
        self.sessions = Sessions(spec, vec, layouts, settings, self._stopping)
        self._server.start()

    def drain(self) -> bool:
        """Refuse new sessions, finish pending steps and release clients; return whether all finished in time."""
        self._stopping.set()
        for session in self.sessions.list():
            session.drain()
        drained = self._server.stop(self._settings.drain_s).wait(self._settings.drain_s + 0.1)
        return self.close() and drained

    def close(self) -> bool:
        """End all sessions and stop listening; return whether all environments have closed."""
        self._stopping.set()
        self._server.stop(0)
        ended = self.sessions.close()
        self._server.stop(0).wait(5.0)
        self._threads.shutdown(wait=False)
        self.sessions.join()
        if self.address.startswith("unix:"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.address.removeprefix("unix:"))
        return ended

    def _health(self) -> Any:
        """Return the handler of gRPC's health service (grpc.health.v1), which needs no token."""
        status = {False: b"\x08\x01", True: b"\x08\x02"}  # serving, not serving
        # The answer depends on no request, and a unary handler would block a thread while reading one.
        check = grpc.stream_stream_rpc_method_handler(lambda requests, context: iter([status[self._stopping.is_set()]]))
        return grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": check})

    # Unary calls: each maps a request to an answer.

    def _describe(self, asked: dict[str, Any], context: Any) -> dict[str, Any]:
        protocol = asked.get("protocol")
        if protocol != PROTOCOL:
            what = f"the client uses protocol {protocol}, this server {PROTOCOL}"
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"{what}; install the same version of paddock")
        capacity, free = self.sessions.capacity, self.sessions.capacity - self.sessions.rows
        return {**self._offer, "capacity": capacity, "free": free}

    def _open(self, asked: dict[str, Any], context: Any) -> dict[str, Any]:
        try:
            session = self.sessions.open(asked)
        except Unavailable as error:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except PaddockError as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return {"session": session.id, "secret": session.secret, "lease_s": self._settings.lease_s}

    def _close(self, asked: dict[str, Any], context: Any) -> dict[str, Any]:
        session = self.sessions.find(asked.get("session"), asked.get("secret"))
        if session is not None:
            self.sessions.end(session)
        return {}

    def _play(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        if not self._streams.acquire(blocking=False):
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many open streams")
        stream = FrameStream(requests, context)
        try:
            yield from self._answer(stream, context)
        finally:
            stream.over = True
            self._streams.release()

    def _answer(self, stream: FrameStream, context: Any) -> Iterator[bytes]:
        first = stream.next(True, ATTACH_S)
        if first is None:
            return
        if first.kind is not Kind.ATTACH or len(first.header) != 3 or type(first.header[2]) is not int:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a stream must begin with its session")
        session = self.sessions.find(*first.header[:2])
        if session is None:
            yield encode_frame(Kind.FAILED, [0, "session", "this server has no such session"])
            return
        if self._stopping.is_set():  # else the client would reconnect repeatedly while others finish
            context.abort(grpc.StatusCode.UNAVAILABLE, "the server is shutting down")
        yield from session.attach(stream, first.header[2])
        if session.closed:
            self.sessions.end(session)


def _answer_plain(call: Callable[[dict[str, Any], Any], dict[str, Any]]) -> Callable[[bytes, Any], bytes]:
    """Return a handler of encoded requests for a call that takes and returns mappings."""

    def handle(request: bytes, context: Any) -> bytes:
        try:
            asked = decode(request)
        except DecodeError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        if not isinstance(asked, dict):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a request must be a mapping")
        return encode(call(asked, context))

    return handle
