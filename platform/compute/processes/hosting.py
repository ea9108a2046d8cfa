"""Objects that other processes use: every process serves the ones that it creates, over TCP.

Server, protocol and proxies are those of `multiprocessing.managers`. Connections are authenticated with the key of
`multiprocessing.current_process()`, which child processes inherit. They are not encrypted.
"""

import itertools
import os
import select
import socket
import threading
from collections.abc import Callable
from multiprocessing import connection, managers, process, util
from multiprocessing.connection import Connection
from typing import Any

LOCALHOST = "127.0.0.1"
SERIALIZER = "paddock"  # name of these listeners and connections in `multiprocessing.managers`
CONNECT_S = 8.0  # timeout of connecting to the owner of an object
KEEPALIVE = {"TCP_KEEPIDLE": 2, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_NODELAY": 1}  # detect a lost machine in 8 s

Address = tuple[str, int]
interfaces = [LOCALHOST]  # IP addresses of this process; the last one serves new objects
_hosts: dict[str, "Host"] = {}  # servers of this process by interface
_caller = threading.local()  # .connection: the connection whose request this thread serves

os.register_at_fork(after_in_child=_hosts.clear)  # a fork has no threads that serve


class OwnerConnection(Connection):
    """Connection to the owner of an object, which raises ConnectionError if the owner has ended."""

    def _recv(self, size: int, *read: Any) -> Any:
        try:
            return super()._recv(size, *read)  # type: ignore[misc]
        except (EOFError, OSError) as error:
            raise ConnectionResetError("the process that owns this object has ended") from error


class Listener(connection.Listener):
    """Listener at an address; None: any port of this process's interface."""

    def __init__(self, address: Address | None = None, backlog: int = 1) -> None:
        """Start listening."""
        super().__init__(address or (interfaces[-1], 0), backlog=max(backlog, 128))

    def accept(self) -> Connection:
        """Accept a connection."""
        accepted = super().accept()
        _set_options(accepted.fileno())
        return accepted

    @property
    def address(self) -> Any:
        """Return the address at which other machines reach this listener."""
        host, port = super().address
        return (interfaces[-1] if host == "0.0.0.0" else host), port


def connect(address: Address, authkey: bytes | None = None) -> Connection:
    """Connect to a process that owns objects.

    Raises:
        ConnectionError: it does not exist or does not answer.
        AuthenticationError: it has another key.
    """
    try:
        sock = socket.create_connection(address, CONNECT_S)
    except OSError as error:
        raise ConnectionRefusedError(f"cannot reach the owner of an object at {address} ({error})") from error
    sock.settimeout(None)
    _set_options(sock.fileno())
    opened = OwnerConnection(sock.detach())
    if authkey is not None:
        connection.answer_challenge(opened, authkey)
        connection.deliver_challenge(opened, authkey)
    return opened


def _set_options(descriptor: int) -> None:
    with socket.socket(fileno=os.dup(descriptor)) as sock:
        sock.settimeout(None)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVE.items():
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


managers.listener_client[SERIALIZER] = Listener, connect  # type: ignore[attr-defined]


class Host(managers.Server):
    """Server of this process's objects.

    Attributes:
        links: functions that take over a connection, by the key that its other end sends.
    """

    public: Any = (*managers.Server.public, "link", "unlink")
    authkey: Any
    id_to_refcount: dict[str, int]

    def __init__(self, at: str) -> None:
        """Start serving on an interface, in a thread."""
        super().__init__({}, (at, 0), process.current_process().authkey, SERIALIZER)
        self.mutex: Any = threading.RLock()  # finalizers may run while it is held
        self.stop_event = threading.Event()
        self.links: dict[str, Callable[[Connection], None]] = {}
        self._numbers = itertools.count(1)
        threading.Thread(target=self.accepter, name="paddock objects", daemon=True).start()

    def accept_connection(self, c: Any, name: str) -> None:
        """Serve the calls of one thread of another process."""
        _caller.connection = c
        super().accept_connection(c, name)

    def link(self, c: Connection, key: str) -> None:
        """Pass a connection to its function, which is called once."""
        self.links.pop(key)(c)

    def unlink(self, c: Connection | None, key: str) -> None:
        """Remove a function that is not needed."""
        self.links.pop(key, None)

    def add(self, item: Any, exposed: tuple[str, ...]) -> str:
        """Serve an object, with one reference to it, and return its id."""
        ident = f"{next(self._numbers):x}"
        with self.mutex:
            self.id_to_obj[ident] = (item, set(exposed), None)  # type: ignore[assignment]
            self.id_to_refcount[ident] = 1
        return ident


def host() -> Host:
    """Return this process's server, which starts when it is first needed."""
    at = interfaces[-1]
    if at not in _hosts:
        _hosts[at] = Host(at)
    return _hosts[at]


class OwnedProxy(managers.BaseProxy):
    """Proxy of an object in its owner's process; the owner itself calls it directly."""

    _exposed_: tuple[str, ...] = ()
    _token: Any

    def __init_subclass__(cls) -> None:
        """Define the exposed methods that the class does not define."""
        for name in set(cls._exposed_) - set(dir(cls)):
            setattr(cls, name, lambda self, *args, _name=name, **kwds: self._callmethod(_name, args, kwds))

    def owned(self) -> Any:
        """Return the object if this process owns it, otherwise None."""
        server = _hosts.get(self._token.address[0])
        if server is None or server.address != self._token.address:
            return None
        return server.id_to_obj[self._token.id][0]

    def _callmethod(self, methodname: str, args: Any = (), kwds: Any = {}) -> Any:  # noqa: B006
        item = self.owned()
        if item is None:
            return super()._callmethod(methodname, args, kwds)
        return getattr(item, methodname)(*args, **kwds)

    def __reduce__(self) -> Any:
        """Return how it is pickled; a process that is being started keeps the object alive."""
        if (popen := managers.get_spawning_popen()) is not None:  # type: ignore[attr-defined]
            popen.kept.append(self)
        return super().__reduce__()


def serve(proxy_type: Any, item: Any) -> Any:
    """Serve an object here, and return its proxy."""
    server = host()
    ident = server.add(item, proxy_type._exposed_)
    token = managers.Token(proxy_type.__name__, server.address, ident)
    proxy = proxy_type(token, SERIALIZER, authkey=server.authkey, incref=False)
    util.Finalize(proxy, server.decref, args=(None, ident))  # not at exit, before children are joined
    return proxy


def caller_ended() -> bool:
    """Return whether the process whose request this thread serves has ended."""
    caller: Connection | None = getattr(_caller, "connection", None)
    return caller is not None and bool(select.select([caller], [], [], 0)[0])  # it sends nothing while it waits
