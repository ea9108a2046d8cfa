"""The server: one port, many sessions, a health service; it goes when it is told to, after what is under way."""

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Generator, Iterator
from concurrent import futures
from typing import Any

import grpc

from paddock.envs.errors import PaddockError, require
from paddock.envs.remote import guard
from paddock.envs.remote.frames import PROTOCOL, SPARE, Kind, join
from paddock.envs.remote.offer import describe_roles
from paddock.envs.remote.server.health import WATCHERS, Health
from paddock.envs.remote.server.policies import make_noops
from paddock.envs.remote.server.seats import SeatsVectorEnv
from paddock.envs.remote.server.sessions import NotOpened, Sessions
from paddock.envs.remote.server.settings import ServerSettings
from paddock.envs.remote.server.steps import Forms
from paddock.envs.remote.server.stream import FrameStream
from paddock.envs.remote.server.unix import UnixListener
from paddock.envs.remote.values import Garbled, decode, encode, is_sayable
from paddock.envs.remote.versions import read_versions
from paddock.envs.spec import EnvSpec
from paddock.envs.vector.recipes import Vec
from paddock.envs.vector.storage import Layouts

ATTACH_S = 10.0  # for which a stream may say nothing before it says whose it is
BUFFERED = 1 << 17  # bytes of observations that a socket of Linux's holds; gRPC takes more while a client is busy
SPARE_THREADS = 8  # for calls beside streams


class EnvironmentServer:
    """Serves environments of one recipe.

    Attributes:
        address: where it listens; with the port that was free, where 0 was asked for.
        sessions: of its clients.
    """

    def __init__(self, spec: EnvSpec, vec: Vec, settings: ServerSettings) -> None:
        """Listen.

        Args:
            vec: how a session's environments are stepped; its num_envs is how many there are in all sessions.

        Raises:
            ConfigError: the environment has a space that no client knows, or none of known size, or actions that
                nobody can stand in for; the address is in use, or open to others without token and encryption.
        """
        require(
            vec.seeded_slots,
            f"vec={type(vec).__name__.lower()} cannot enter an episode again; serve vec=multiprocess, serial or native",
        )
        self._spec, self._settings = spec, settings
        layouts = Layouts.of_seats(spec, spec.seating)
        layouts.check_sized()
        if layouts.seats > 1 and {settings.late, settings.lost} & {"noop", "last"}:
            make_noops(layouts, spec.roles)  # else the others would be told once a client is missing
        self._offer: dict[str, Any] = {
            "environment": spec.fields,
            "roles": describe_roles(spec.roles),
            "metadata": {key: value for key, value in spec.metadata.items() if is_sayable(value)},
            "takes_signals": spec.takes_signals,
            "view": settings.view,
            "free_arguments": settings.free_arguments,
            "vec": type(vec).__name__.lower(),
            "versions": read_versions(),
            "limit": spec.limit,
            "server": secrets.token_hex(8),
        }
        self._began = time.monotonic()
        self._going = threading.Event()
        self._slow = threading.BoundedSemaphore(2)
        self._streams = threading.BoundedSemaphore(settings.max_sessions + 4)
        address, local = guard.read_address(settings.address, "serve.address")
        require(not address.startswith("file:"), f"serve.address={address} is for clients; name serve.address_file")
        tls = guard.check_tls(settings.tls)
        if settings.token_file is not None:
            guard.make_token(settings.token_file)
        self._token = guard.read_token(settings.token_file)
        guard.check_server(local, settings.address, self._token, tls, settings.insecure)
        most = vec.num_envs * layouts.seats * Forms.of(layouts.action_rows).row_bytes
        threads = settings.max_sessions + 4 + SPARE_THREADS + WATCHERS
        self._threads = futures.ThreadPoolExecutor(threads, "session")
        self._server = grpc.server(self._threads, options=guard.server_options(most + SPARE))
        unary, both = grpc.unary_unary_rpc_method_handler, grpc.stream_stream_rpc_method_handler
        calls = {
            "Describe": unary(self._describe),
            "Open": unary(self._open),
            "Close": unary(self._close),
            "Stats": unary(self._stats),
            "Play": both(self._play),
        }
        own = grpc.method_handlers_generic_handler(guard.SERVICE, calls)
        self._server.add_generic_rpc_handlers((own, Health(self._going).handler()))
        self.address = guard.bind(self._server, address, tls)
        if address.startswith("unix:"):
            os.chmod(address.removeprefix("unix:"), 0o600)
        if settings.address_file is not None:
            guard.write_address_file(settings.address_file, self.address)
        self.sessions = Sessions(spec, vec, layouts, settings, self._going)
        self._unix = UnixListener(self._carry, most + SPARE)
        self._server.start()

    def drain(self) -> bool:
        """Take no more sessions, finish what is under way, and have clients go elsewhere; whether all did in time."""
        self._going.set()
        deadline = time.monotonic() + self._settings.drain_s
        for session in self.sessions.list():
            session.drain()
        drained = self._unix.join(self._settings.drain_s)  # first: its clients look by gRPC whether the server lives
        left_s = max(deadline - time.monotonic(), 0.0)
        done = self._server.stop(left_s)
        drained &= done.wait(left_s + 0.1)
        return self.close() and drained

    def close(self) -> bool:
        """End every session, and listen no more; whether nothing is left, where no environment is at work for long."""
        self._going.set()
        self._server.stop(0)
        self._unix.close()
        ended = self.sessions.close()
        self._server.stop(0).wait(5.0)
        self._threads.shutdown(wait=False)
        self.sessions.join()
        if self.address.startswith("unix:"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.address.removeprefix("unix:"))
        return ended

    # Calls; each answers plain data with plain data.

    def _describe(self, request: bytes, context: Any) -> bytes:
        self._admit(context)
        asked = self._read(request, context)
        protocol = asked.get("protocol")
        if protocol != PROTOCOL:
            said = f"the client speaks protocol {protocol}, and this server {PROTOCOL}"
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"{said}; install the same version of paddock")
        capacity, free = self.sessions.capacity, self.sessions.capacity - self.sessions.rows
        room = {"capacity": capacity, "free": free, "most": self.sessions.most}
        return encode({**self._offer, **room, "protocol": PROTOCOL})

    def _open(self, request: bytes, context: Any) -> bytes:
        self._admit(context)
        asked = self._read(request, context)
        try:
            session = self.sessions.open(asked)
        except NotOpened as error:
            context.abort(error.code, str(error))
        except PaddockError as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        opened = {"session": session.id, "secret": session.secret, "lease_s": self._settings.lease_s}
        joint = session.venv if isinstance(session.venv, SeatsVectorEnv) else None
        running = None if joint is None or joint.running is None else joint.running.say()
        # Who plays with others is to see that a server has stopped, also where nobody waits for its answer.
        row_bytes = Forms.of(session.layouts.observation_rows).row_bytes
        near = joint is None and session.num_envs * row_bytes <= BUFFERED
        return encode({**opened, "running": running, "unix": self._unix.name if near else None})

    def _close(self, request: bytes, context: Any) -> bytes:
        self._admit(context)
        asked = self._read(request, context)
        session = self.sessions.find(asked.get("session"), asked.get("secret"))
        if session is not None:
            self.sessions.end(session, "its client closed it")
        return encode({})

    def _stats(self, request: bytes, context: Any) -> bytes:
        self._admit(context)
        now = time.monotonic()
        told = [
            {"envs": one.venv.worlds, "steps": one.steps, "attached": one.attached, "silent_s": now - one.seen()}
            for one in self.sessions.list()
        ]
        own: dict[str, Any] = {
            "rows": self.sessions.rows,
            "capacity": self.sessions.capacity,
            "up_s": now - self._began,
        }
        own |= {"environment": self._spec.id, "vec": self._offer["vec"], "going": self._going.is_set()}
        return encode({**own, "sessions": told})

    def _play(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        self._admit(context)
        return self._carry(requests, context)

    def _carry(self, requests: Iterator[bytes], context: Any) -> Generator[bytes, None, None]:
        """Return the answers to a client's frames, as they come."""
        if not self._streams.acquire(blocking=False):
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "there are as many streams as sessions may have")
        try:
            stream = FrameStream(requests, context)  # which raises where the client has gone already
            try:
                yield from stream.carry(self._answer(stream, context))
            finally:
                stream.over = True
        finally:
            self._streams.release()

    def _answer(self, stream: FrameStream, context: Any) -> Iterator[bytes]:
        """Return the answers to a stream."""
        first = stream.next(True, ATTACH_S)
        if stream.broken is not None:
            context.abort(grpc.StatusCode.DATA_LOSS, stream.broken)
        if first is None:
            return
        if first.kind is not Kind.ATTACH or len(first.header) != 3 or type(first.header[2]) is not int:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a stream begins with the session that it is for")
        session = self.sessions.find(*first.header[:2])
        if session is None:
            yield join(Kind.FAILED, [0, "session", self.sessions.why(first.header[0]), False])
            return
        if self._going.is_set():  # or it would come again and again, while others finish what is under way
            context.abort(grpc.StatusCode.UNAVAILABLE, "the server is going")
        yield from session.attach(stream, first.header[2])
        if session.closed:
            stream.flush()  # else what is said last would be lost with the stream
            self.sessions.end(session, session.end)

    def _admit(self, context: Any) -> None:
        """Refuse a call without the token."""
        if guard.admits(self._token, context.invocation_metadata()):
            return
        if self._slow.acquire(blocking=False):  # some ten guesses a second, and threads left for others
            try:
                time.sleep(0.2)
            finally:
                self._slow.release()
        context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is not the server's; name its file by token_file")

    def _read(self, request: bytes, context: Any) -> dict[str, Any]:
        try:
            asked = decode(request)
        except Garbled as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        if not isinstance(asked, dict):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a request is a mapping")
        return asked
