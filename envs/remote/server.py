"""The server: one port, many sessions, a health service; it goes when it is told to, after what is under way."""

import contextlib
import dataclasses
import logging
import os
import platform
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent import futures
from dataclasses import dataclass
from importlib import metadata
from typing import Annotated, Any, Literal

import grpc
import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from envs.errors import PaddockError, require
from envs.ranges import AT_LEAST_ONE, POSITIVE, NonNegativeFloat, Range, check_fields
from envs.remote import guard
from envs.remote.frames import PROTOCOL, SPARE, Kind, join
from envs.remote.session import Forms, Session, Stream
from envs.remote.spaces import describe_space
from envs.remote.values import Garbled, decode, encode, is_sayable
from envs.spec import EnvSpec
from envs.vector.contract import VectorEnv
from envs.vector.recipes import Multiprocess, Vec, largest_divisor
from envs.vector.storage import Layouts

log = logging.getLogger("envs.remote")

REMEMBER_S = 600.0  # for which a session that ended is known by its number
ATTACH_S = 10.0  # for which a stream may say nothing before it says whose it is
LOOK_S = 0.5  # between looks for clients that have gone
SPARE_THREADS = 8  # for calls beside streams
HEALTH = "grpc.health.v1.Health"
SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"  # messages of grpc.health.v1
WATCHERS = 2  # of health, at most


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Where a server listens, to whom, and for how much it has room."""

    address: str
    address_file: str | None
    token_file: str | None
    tls: Mapping[str, str | None]
    insecure: bool
    max_sessions: Annotated[int, Range("must be between 1 and 1000", low=1, high=1000)]
    max_envs_per_session: Annotated[int | None, AT_LEAST_ONE]
    lease_s: Annotated[float, POSITIVE]
    drain_s: NonNegativeFloat
    infos: Literal["all", "none"]

    def __post_init__(self) -> None:
        check_fields(self)


class EnvironmentServer:
    """Serves environments of one recipe.

    Attributes:
        address: where it listens; with the port that was free, where 0 was asked for.
    """

    def __init__(self, spec: EnvSpec, vec: Vec, settings: ServerSettings) -> None:
        """Listen.

        Args:
            vec: how a session's environments are stepped; its num_envs is how many there are in all sessions.

        Raises:
            ConfigError: the environment has several agents, a space that no client knows, or none of known size; the
                address is in use, or open to others without token and encryption.
        """
        require(
            vec.seeded_slots,
            f"vec={type(vec).__name__.lower()} cannot enter an episode again; serve vec=multiprocess, serial or native",
        )
        self._spec, self._vec, self._settings = spec, vec, settings
        self._layouts = Layouts.of(spec, *spec.raw_spaces)
        env = spec.make()
        said = env.metadata
        env.close()
        self._layouts.check_sized()
        self._offer: dict[str, Any] = {
            "environment": spec.fields,
            "observation": describe_space(self._layouts.observation_space),
            "action": describe_space(self._layouts.action_space),
            "metadata": {key: value for key, value in said.items() if is_sayable(value)},
            "vec": type(vec).__name__.lower(),
            "versions": _versions(),
            "server": secrets.token_hex(8),
        }
        self._sessions: dict[str, Session] = {}
        self._ended: dict[str, tuple[float, str]] = {}  # when, and why
        self._opened: dict[bytes, futures.Future[Session]] = {}  # by nonce
        self._rows = 0  # in use, or reserved
        self._began = time.monotonic()
        self._refused = 0
        self._lock = threading.Lock()
        self._going = threading.Event()
        self._watching = threading.BoundedSemaphore(WATCHERS)
        self._slow = threading.BoundedSemaphore(2)
        self._streams = threading.BoundedSemaphore(settings.max_sessions + 4)
        address, local = guard.read_address(settings.address)
        require(not address.startswith("file:"), f"serve.address={address} is for clients; name serve.address_file")
        tls = guard.check_tls(settings.tls)
        if settings.token_file is not None:
            guard.make_token(settings.token_file)
        self._token = guard.read_token(settings.token_file)
        guard.check_server(local, settings.address, self._token, tls, settings.insecure)
        most = (
            vec.num_envs
            * Forms.of(self._layouts.action).dtype.itemsize
            * max(1, int(np.prod(Forms.of(self._layouts.action).shape)))
        )
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
        health = {"Check": unary(self._check), "Watch": grpc.unary_stream_rpc_method_handler(self._watch)}
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(guard.SERVICE, calls),
                grpc.method_handlers_generic_handler(HEALTH, health),
            )
        )
        self.address = guard.bind(self._server, address, tls)
        if address.startswith("unix:/"):
            os.chmod(address.removeprefix("unix:"), 0o600)
        self._server.start()
        if settings.address_file is not None:
            guard.write_address_file(settings.address_file, self.address)
        self._janitor = threading.Thread(target=self._look_after, name="leases", daemon=True)
        self._janitor.start()

    def drain(self) -> bool:
        """Take no more sessions, finish what is under way, and have clients go elsewhere; whether all did in time."""
        self._going.set()
        with self._lock:
            sessions = list(self._sessions.values())
        for session in sessions:
            session.drain()
        done = self._server.stop(self._settings.drain_s)
        drained = done.wait(self._settings.drain_s + 0.1)
        self.close()
        return drained

    def close(self) -> None:
        """End every session, and listen no more; nothing of it is left."""
        self._going.set()
        self._server.stop(0)
        with self._lock:
            sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            session.close()
        self._server.stop(0).wait(5.0)
        self._threads.shutdown(wait=False)
        self._janitor.join(5.0)
        if self.address.startswith("unix:/"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.address.removeprefix("unix:"))

    # Calls; each answers plain data with plain data.

    def _describe(self, request: bytes, context: Any) -> bytes:
        self._admit(context)
        asked = self._read(request, context)
        protocol = asked.get("protocol")
        if protocol != PROTOCOL:
            said = f"the client speaks protocol {protocol}, and this server {PROTOCOL}"
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"{said}; install the same version of paddock")
        with self._lock:
            free = self._vec.num_envs - self._rows
        return encode({**self._offer, "capacity": self._vec.num_envs, "free": free, "protocol": PROTOCOL})

    def _open(self, request: bytes, context: Any) -> bytes:
        self._admit(context)
        asked = self._read(request, context)
        nonce: Any = asked.get("nonce")
        num_envs: Any = asked.get("num_envs")
        autoreset: Any = asked.get("autoreset")
        good = type(nonce) is bytes and len(nonce) == 16 and type(num_envs) is int and num_envs >= 1
        if not good or autoreset not in ("SAME_STEP", "DISABLED"):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a session is opened with nonce, num_envs and autoreset")
        if asked.get("environment") != self._offer["environment"]["id"]:
            context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"another environment is asked for than {self._offer['environment']['id']}, which is served here now",
            )
        with self._lock:
            mine = nonce not in self._opened
            if mine:
                self._reserve(num_envs, context)
                self._opened[nonce] = futures.Future()
            opened = self._opened[nonce]
        if mine:
            try:
                session = self._make(num_envs, AutoresetMode[autoreset], nonce)
            except BaseException as error:
                with self._lock:
                    self._rows -= num_envs
                    del self._opened[nonce]
                opened.set_exception(error)
            else:
                with self._lock:
                    self._sessions[session.id] = session
                opened.set_result(session)
        try:
            session = opened.result()
        except PaddockError as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return encode({"session": session.id, "secret": session.secret, "lease_s": self._settings.lease_s})

    def _reserve(self, num_envs: int, context: Any) -> None:
        most, settings = self._vec.num_envs, self._settings
        each = settings.max_envs_per_session or most
        if self._going.is_set():
            context.abort(grpc.StatusCode.UNAVAILABLE, "the server is going")
        if num_envs > min(most, each):
            context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"vec.num_envs={num_envs} is more than the {min(most, each)} environments that a session may have "
                "here; ask for fewer, or start the server with a larger vec.num_envs",
            )
        if self._rows + num_envs > most or len(self._sessions) >= settings.max_sessions:
            context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{self._rows} of {most} environments and {len(self._sessions)} of {settings.max_sessions} sessions "
                f"are in use, and {num_envs} more environments are asked for",
            )
        self._rows += num_envs

    def _make(self, num_envs: int, autoreset: AutoresetMode, nonce: bytes) -> Session:
        recipe: Any = dataclasses.replace(self._vec, num_envs=num_envs, **self._changes(num_envs))  # type: ignore[type-var]
        venv: VectorEnv = recipe.make(self._spec, autoreset, copy=False, packed=True)
        return Session(venv, self._spec, self._layouts, self._settings.infos == "all", nonce)

    def _changes(self, num_envs: int) -> dict[str, Any]:
        if not isinstance(self._vec, Multiprocess):
            return {}
        return {"workers": largest_divisor(num_envs, self._vec.processes), "batch_size": None}

    def _close(self, request: bytes, context: Any) -> bytes:
        self._admit(context)
        asked = self._read(request, context)
        session = self._find(asked.get("session"), asked.get("secret"))
        if session is not None:
            self._end(session, "its client closed it")
        return encode({})

    def _stats(self, request: bytes, context: Any) -> bytes:
        self._admit(context)
        with self._lock:
            sessions = list(self._sessions.values())
            rows = self._rows
        now = time.monotonic()
        told = [
            {"envs": one.num_envs, "steps": one.steps, "attached": one.attached, "silent_s": now - one.seen()}
            for one in sessions
        ]
        own = {"rows": rows, "capacity": self._vec.num_envs, "up_s": now - self._began, "sessions": told}
        return encode({**own, "environment": self._spec.id, "vec": self._offer["vec"], "going": self._going.is_set()})

    def _play(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        self._admit(context)
        if not self._streams.acquire(blocking=False):
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "there are as many streams as sessions may have")
        stream = Stream(requests, context)
        try:
            first = stream.next(True, ATTACH_S)
            if stream.broken is not None:
                context.abort(grpc.StatusCode.DATA_LOSS, stream.broken)
            if first is None:
                return
            if first.kind is not Kind.ATTACH or len(first.header) != 3 or type(first.header[2]) is not int:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a stream begins with the session that it is for")
            session = self._find(*first.header[:2])
            if session is None:
                yield join(Kind.FAILED, [0, "session", self._why(first.header[0]), False])
                return
            if self._going.is_set():
                session.draining = True
            yield from session.attach(stream, first.header[2])
            if session.closed:
                self._end(session, "its client broke the protocol")
        finally:
            stream.over = True
            self._streams.release()

    # Health has no token: whoever can connect may ask, and learns nothing else.

    def _check(self, request: bytes, context: Any) -> bytes:
        if request not in (b"", _named(guard.SERVICE)):
            context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return NOT_SERVING if self._going.is_set() else SERVING

    def _watch(self, request: bytes, context: Any) -> Iterator[bytes]:
        if not self._watching.acquire(blocking=False):
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"more than {WATCHERS} watch; ask by Check")
        try:
            yield self._check(request, context)
            while context.is_active() and not self._going.wait(LOOK_S):
                pass
            yield NOT_SERVING
        finally:
            self._watching.release()

    # Sessions

    def _find(self, id: Any, secret: Any) -> Session | None:
        with self._lock:
            session = self._sessions.get(id) if type(id) is str else None
        good = session is not None and type(secret) is bytes and secrets.compare_digest(session.secret, secret)
        return session if good else None

    def _why(self, id: Any) -> str:
        with self._lock:
            ended = self._ended.get(id) if type(id) is str else None
        return "this server knows no such session" if ended is None else f"the session has ended, as {ended[1]}"

    def _end(self, session: Session, why: str) -> None:
        with self._lock:
            if self._sessions.pop(session.id, None) is None:
                return
            self._ended[session.id] = (time.monotonic(), why)
        session.close()
        with self._lock:
            self._rows -= session.num_envs
            self._opened.pop(session.nonce, None)

    def _look_after(self) -> None:
        """End sessions whose clients have gone."""
        while not self._going.wait(LOOK_S):
            now = time.monotonic()
            with self._lock:
                silent = [one for one in self._sessions.values() if now - one.seen() > self._settings.lease_s]
                self._ended = {id: end for id, end in self._ended.items() if now - end[0] < REMEMBER_S}
            for session in silent:
                log.warning("session %s ends: nothing was heard for %g s", session.id, self._settings.lease_s)
                self._end(session, f"nothing was heard for {self._settings.lease_s:g} s")

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


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "numpy": np.__version__, "gymnasium": gymnasium.__version__}
    for name in ("box2d", "mujoco", "ale-py", "paddock"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _named(service: str) -> bytes:
    """Return grpc.health.v1's request for a service."""
    return b"\x0a" + bytes([len(service)]) + service.encode()
