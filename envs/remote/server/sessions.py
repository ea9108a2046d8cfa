"""Registry of a server's sessions: open within the capacity, find by identifier and secret, end with their clients."""

import dataclasses
import logging
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent import futures
from typing import Any

from gymnasium.vector import AutoresetMode

from paddock.envs.errors import ConfigError, require
from paddock.envs.remote.server.joint import JointEnv, Unavailable
from paddock.envs.remote.server.joint_vector import JointVectorEnv
from paddock.envs.remote.server.session import Session
from paddock.envs.remote.server.settings import ServerSettings
from paddock.envs.spec import EnvSpec
from paddock.envs.vector.contract import VectorEnv, VectorMisuse
from paddock.envs.vector.recipes import Multiprocess, Vec, in_groups, largest_divisor
from paddock.envs.vector.storage import Layouts

log = logging.getLogger("paddock.envs.remote")

POLL_S = 0.5  # interval of checks for expired leases
LEAVE_S = 5.0  # time for environments to finish a step when the server closes


class Sessions:
    """Sessions of a server (thread-safe).

    Attributes:
        capacity: number of environments.
        rows: environments in use or reserved.
    """

    def __init__(
        self, spec: EnvSpec, vec: Vec, layouts: Layouts, settings: ServerSettings, stopping: threading.Event
    ) -> None:
        """Start without sessions, with a capacity of `vec.num_envs`; `stopping` refuses new sessions once it is set."""
        self._spec, self._vec, self._layouts, self._settings = spec, vec, layouts, settings
        self.capacity = vec.num_envs
        self._sessions: dict[str, Session] = {}
        self.rows = self._count = 0  # number of sessions, open or reserved
        self._lock = threading.Lock()
        self._joint: dict[str, futures.Future[JointEnv]] = {}  # by name
        self._stopping = stopping
        self._leases = threading.Thread(target=self._end_expired, name="leases", daemon=True)
        self._leases.start()

    def list(self) -> list[Session]:
        """Return the open sessions."""
        with self._lock:
            return list(self._sessions.values())

    def open(self, asked: Mapping[str, Any]) -> Session:
        """Open a session.

        Raises:
            Unavailable: the capacity is used up.
            PaddockError: the request is invalid, or its environments cannot be made.
        """
        try:
            num_envs, mode = int(asked["num_envs"]), AutoresetMode[asked["autoreset"]]
            groups = int(asked.get("groups", 1))
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"invalid request of a session: {error!r}") from None
        require(min(num_envs, groups) >= 1, f"num_envs={num_envs} and groups={groups} must be >= 1")
        id, world = asked.get("environment"), asked.get("world")
        require(id == self._spec.id, f"{id} was requested, but this server has {self._spec.id}")
        rows = num_envs if world is None else 0  # a joint environment is reserved for its first client
        with self._lock:
            self._reserve(rows, sessions=1)
        try:
            if world is None:
                venv = self._make(num_envs, mode, groups)
            else:
                venv = self._join(world, asked.get("agents") or [], mode)
            session = Session(venv, self._spec, self._layouts, self._settings.infos == "all")
        except BaseException:
            with self._lock:
                self.rows -= rows
                self._count -= 1
            raise
        with self._lock:
            self._sessions[session.id] = session
        if self._stopping.is_set():  # since the request
            self.end(session)
        return session

    def find(self, id: Any, secret: Any) -> Session | None:
        """Return a session by its identifier and secret; None if there is none."""
        with self._lock:
            session = self._sessions.get(id) if type(id) is str else None
        good = session is not None and type(secret) is bytes and secrets.compare_digest(session.secret, secret)
        return session if good else None

    def end(self, session: Session) -> None:
        """End a session and its environments, and free its capacity."""
        with self._lock:
            if self._sessions.pop(session.id, None) is None:
                return
        venv = session.venv
        try:
            session.close()
        finally:  # free the capacity, whatever its environments raise
            with self._lock:
                self._count -= 1
                if not isinstance(venv, JointVectorEnv):
                    self.rows -= venv.worlds
                elif venv.last:
                    self.rows -= 1
                    del self._joint[venv.joint.name]

    def close(self) -> bool:
        """End all sessions; return False if some are still busy after LEAVE_S."""
        with self._lock:
            sessions, self._sessions = list(self._sessions.values()), {}
        ends = [threading.Thread(target=session.close, name="end", daemon=True) for session in sessions]
        for end in ends:
            end.start()
        deadline = time.monotonic() + LEAVE_S
        for end in ends:
            end.join(max(deadline - time.monotonic(), 0.0))
        return not any(end.is_alive() for end in ends)

    def join(self) -> None:
        """Wait for the thread that ends expired sessions."""
        self._leases.join(5.0)

    def _reserve(self, num_envs: int, sessions: int = 0) -> None:
        most = self._settings.max_sessions
        if self._stopping.is_set():
            raise Unavailable("the server is shutting down")
        what = f"vec.num_envs={num_envs} is more than the {self.capacity} environments of the server"
        require(num_envs <= self.capacity, f"{what}; request fewer, or start the server with a larger vec.num_envs")
        if self.rows + num_envs > self.capacity or self._count + sessions > most:
            used = f"{self.rows} of {self.capacity} environments and {self._count} of {most} sessions are in use"
            raise Unavailable(f"{used}, but {num_envs} more environments were requested")
        self.rows += num_envs
        self._count += sessions

    def _join(self, name: str, agents: Sequence[str], mode: AutoresetMode) -> JointVectorEnv:
        """Return a client's agents in a joint environment, which is made for its first client.

        Raises:
            ConfigError: the agents are invalid.
            VectorMisuse: another client has them.
            Unavailable: there is no capacity, or the client that has them is disconnected.
        """
        known = self._layouts.agents
        require(len(known) > 1, f"{self._spec.id} has one agent, which cannot be shared; remove vec.world")
        good = agents and set(agents) <= set(known) and len(set(agents)) == len(agents)
        require(bool(good), f"agents={agents} must be distinct agents of {self._spec.id}: {', '.join(known)}")
        try:
            return JointVectorEnv(self._joint_env(name), agents, mode)
        except VectorMisuse as error:
            if not self._are_away(name, agents):
                raise
            lease_s = self._settings.lease_s
            raise Unavailable(f"{error}; that client is disconnected, for at most serve.lease_s={lease_s:g}") from None

    def _joint_env(self, name: str) -> JointEnv:
        """Return or make the joint environment of a name, without blocking those of other names."""
        with self._lock:
            is_first = name not in self._joint
            if is_first:
                self._reserve(1)
                self._joint[name] = futures.Future()
            made = self._joint[name]
        if is_first:
            try:
                made.set_result(JointEnv(name, self._make(1, AutoresetMode.DISABLED), self._layouts))
            except BaseException as error:
                with self._lock:
                    self.rows -= 1
                    del self._joint[name]
                made.set_exception(error)
        return made.result()

    def _are_away(self, world: str, agents: Sequence[str]) -> bool:
        """Return whether all clients that have one of these agents are disconnected."""
        attached = [one.venv for one in self.list() if one.is_attached and isinstance(one.venv, JointVectorEnv)]
        return not any(venv.joint.name == world and set(venv.agents) & set(agents) for venv in attached)

    def _make(self, num_envs: int, autoreset: AutoresetMode, groups: int = 1) -> VectorEnv:
        changes: dict[str, Any] = {"num_envs": num_envs}
        if isinstance(self._vec, Multiprocess):
            changes |= {"workers": largest_divisor(num_envs, self._vec.processes), "batch_size": None}
        return in_groups(dataclasses.replace(self._vec, **changes), groups).make(
            self._spec, autoreset=autoreset, copy=False, packed=True
        )

    def _end_expired(self) -> None:
        """End sessions whose leases have expired."""
        while not self._stopping.wait(POLL_S):
            now = time.monotonic()
            with self._lock:
                silent = [one for one in self._sessions.values() if now - one.seen() > self._settings.lease_s]
            for session in silent:
                log.warning("session %s ends: no message for %g s", session.id, self._settings.lease_s)
                # In a thread: a busy environment must not delay other sessions.
                threading.Thread(target=self.end, args=(session,), name="end", daemon=True).start()
