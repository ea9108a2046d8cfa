"""Who may connect, and how connections are made: addresses, certificates, tokens, and gRPC's settings."""

import contextlib
import errno
import hmac
import json
import os
import secrets
import socket
import ssl
import stat
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc

from paddock.envs.errors import ConfigError, require

TOKEN = "PADDOCK_TOKEN"  # of the environment, in place of a file
FEWEST_BYTES = 32  # of a token
SERVICE = ".".join(("paddock", "env", "v1", "Environments"))  # a name on the wire, and no module
KEYS = ("ca", "cert", "key")
SOCKET_NAME = "paddock-[0-9a-f]{32}"  # of a server, for clients of its machine and user
PING_S, ANSWER_S = 5, 5  # seconds between pings, and that their answer may take

# gRPC's own defaults: a proxy of the environment is used; its keepalive does not notice a stopped server for 25 s and
# more, whatever keepalive_timeout_ms is; pings that come often end the connection; messages have at most 4 MB.
PINGS = [
    ("grpc.enable_http_proxy", 0),
    ("grpc.keepalive_time_ms", PING_S * 1000),
    ("grpc.http2.ping_timeout_ms", ANSWER_S * 1000),
    ("grpc.keepalive_timeout_ms", ANSWER_S * 1000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]
CLIENT = [*PINGS, ("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def server_options(most_bytes: int) -> list[tuple[str, int]]:
    """Return gRPC's settings of a server that takes messages of so many bytes."""
    return [
        *PINGS,
        ("grpc.so_reuseport", 0),  # else two servers share a port in silence
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 1000),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.max_receive_message_length", most_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", 8192),
    ]


def write_address_file(path: str, address: str) -> None:
    """Say in a file where a server listens, for clients that choose `file:PATH`; it is there whole or not at all.

    Raises:
        ConfigError: it cannot be written.
    """
    host, _, port = address.rpartition(":")
    if host in ("0.0.0.0", "[::]"):
        address = f"{socket.getfqdn()}:{port}"
    beside = f"{path}.{os.getpid()}"
    try:
        Path(beside).write_text(json.dumps({"address": address}) + "\n")
        os.replace(beside, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise ConfigError(f"serve.address_file={path} cannot be written ({error.strerror}); choose another") from error


def find_address(address: str) -> str | None:
    """Return an address, or the one that a server has written into `file:PATH`; None where there is none yet."""
    if not address.startswith("file:"):
        return address
    try:
        told = json.loads(Path(address.removeprefix("file:")).read_text())
    except (OSError, ValueError):
        return None
    return str(told["address"]) if isinstance(told, dict) and "address" in told else None


def read_address(address: str, key: str = "vec.address") -> tuple[str, bool]:
    """Return an address as gRPC has it, and whether only this machine reaches it.

    Args:
        key: what names it, for the message.

    Raises:
        ConfigError: it is none of HOST:PORT, unix:PATH and file:PATH.
    """
    if address.startswith(("unix:", "file:")) and len(address) > len("unix:"):
        return address, True
    host, _, port = address.rpartition(":")
    good = bool(host) and port.isdecimal() and int(port) < 65536 and (":" not in host or host.startswith("["))
    require(good, f"{key}={address} must be HOST:PORT, such as 127.0.0.1:3003 or [::1]:3003, unix:PATH or file:PATH")
    return address, host in ("localhost", "[::1]") or host.startswith("127.")


def check_tls(tls: Mapping[str, str | None] | None) -> dict[str, str]:
    """Return the PEM files that are named, by `ca`, `cert` and `key`.

    Raises:
        ConfigError: a key is unknown, or one of cert and key is there alone, or a file is not there or no good.
    """
    given = {name: path for name, path in (tls or {}).items() if path is not None}
    for name, path in given.items():
        require(name in KEYS, f"tls.{name} is not a key of tls; it takes {', '.join(KEYS)}")
        require(Path(path).is_file(), f"tls.{name}={path} is not a file; name a PEM file")
    require(("cert" in given) == ("key" in given), "tls: cert and key go together; name both, each a PEM file")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # gRPC would say that nobody answers
    try:
        if "ca" in given:
            context.load_verify_locations(given["ca"])
    except OSError as error:
        raise ConfigError(f"tls.ca={given['ca']} holds no certificate; name the authority's, a PEM file") from error
    try:
        if "cert" in given:
            context.load_cert_chain(given["cert"], given["key"], password=lambda: "")  # which nobody is asked for
    except OSError as error:
        pair = f"tls.cert={given['cert']} and tls.key={given['key']} are no PEM files of one pair"
        raise ConfigError(f"{pair}; name a certificate and its key, without a password") from error
    return given


def read_token(token_file: str | None) -> str | None:
    """Return the token of a file or of PADDOCK_TOKEN; None where there is neither.

    Raises:
        ConfigError: the file is not there, others may read it, or it holds too little.
    """
    if token_file is None:
        token, place = os.environ.get(TOKEN), TOKEN
    else:
        place = f"token_file={token_file}"
        try:
            mode, token = stat.S_IMODE(os.stat(token_file).st_mode), Path(token_file).read_text("latin-1").strip()
        except OSError as error:
            raise ConfigError(f"{place} cannot be read ({error.strerror}); copy the server's") from error
        require(not mode & 0o077, f"{place} can be read by others (mode {mode:o}); chmod 600 {token_file}")
    good = token is None or (len(token) >= FEWEST_BYTES and token.isascii() and token.isprintable())
    require(good, f"{place} must hold at least {FEWEST_BYTES} printable characters; a server makes one if it is absent")
    return token


def make_token(token_file: str) -> None:
    """Write a new token, for its owner alone to read, into a file that is not there yet, whole or not at all."""
    if os.path.exists(token_file):
        return
    beside = f"{token_file}.{secrets.token_hex(8)}"
    try:
        with open(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(FEWEST_BYTES) + "\n")
        with contextlib.suppress(FileExistsError):  # another server's, that started with this one
            os.link(beside, token_file)
        os.unlink(beside)
    except OSError as error:
        raise ConfigError(f"token_file={token_file} cannot be written ({error.strerror})") from error


def check_server(local: bool, address: str, token: str | None, tls: Mapping[str, str], insecure: bool) -> None:
    """Raise ConfigError where others than this machine could use a server without a token, or listen to it."""
    if not local and not insecure:
        missing = [*([] if token else ["serve.token_file"]), *([] if "cert" in tls else ["serve.tls.cert and .key"])]
        require(
            not missing,
            f"serve.address={address} is open to other machines; name {' and '.join(missing)}, or say "
            "serve.insecure=true",
        )


def check_client(local: bool, address: str, token: str | None, tls: Mapping[str, str]) -> None:
    """Raise ConfigError where a token would be sent in the clear to another machine."""
    clear = token is not None and not local and not tls
    require(not clear, f"vec.address={address}: a token is not sent without encryption; name the authority: vec.tls.ca")


def bind(server: Any, address: str, tls: Mapping[str, str]) -> str:
    """Have a gRPC server listen; returns the address that it listens at.

    Raises:
        ConfigError: it is in use, or none of this machine's.
    """
    _check_free(address)
    try:
        if "cert" in tls:
            pair = (Path(tls["key"]).read_bytes(), Path(tls["cert"]).read_bytes())
            ca = Path(tls["ca"]).read_bytes() if "ca" in tls else None
            port = server.add_secure_port(address, grpc.ssl_server_credentials([pair], ca, ca is not None))
        else:
            port = server.add_insecure_port(address)
    except (RuntimeError, ValueError, OSError):
        port = 0
    if not port:
        raise ConfigError(f"serve.address={address} cannot be listened at: gRPC refuses it; choose another")
    return address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"


def is_own(connection: socket.socket) -> bool:
    """Return whether a process of this user is at the other end of a Unix domain socket."""
    peer = struct.Struct("iII")  # pid, uid, gid
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, peer.size)
    return bool(peer.unpack(credentials)[1] == os.geteuid())


def _check_free(address: str) -> None:
    """Raise ConfigError where nobody can listen at an address, of which gRPC would print a line of its own."""
    obstacle = _find_obstacle(address)
    if obstacle is None:
        return
    why, remedy = obstacle.strerror or str(obstacle), "choose another"
    if obstacle.errno == errno.EADDRINUSE:
        why = f"another process is there, of which `python -m paddock.serve status {address}` says whether it serves"
        remedy = "end it, or choose another (port 0: any that is free)"
    raise ConfigError(f"serve.address={address} cannot be listened at: {why}; {remedy}") from obstacle


def _find_obstacle(address: str) -> OSError | None:
    """Return why nobody can listen at an address; of a name's, one that can be had is enough."""
    obstacles: list[OSError] = []
    try:
        if address.startswith("unix:"):  # gRPC takes a socket from whoever listens there, in silence
            path = address.removeprefix("unix:")
            os.stat(Path(path).parent)
            with contextlib.suppress(ConnectionRefusedError, FileNotFoundError), socket.socket(socket.AF_UNIX) as other:
                other.connect(path)
                return OSError(errno.EADDRINUSE, "")
            return None
        host, _, port = address.rpartition(":")
        places = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except OSError as error:
        return error
    except UnicodeError:
        return OSError(f"{host} can be no host's name")
    for family, kind, _, _, place in places:
        try:
            with socket.socket(family, kind) as own:
                own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as gRPC does: one may just have ended there
                own.bind(place)
        except OSError as error:
            obstacles.append(error)
    taken = [error for error in obstacles if error.errno == errno.EADDRINUSE]
    return taken[0] if taken else obstacles[0] if len(obstacles) == len(places) else None


def connect(address: str, token: str | None, tls: Mapping[str, str], shared: bool = True) -> Any:
    """Return a gRPC channel; nothing is sent yet.

    Args:
        shared: whether a connection that another channel has will do.

    Raises:
        ConfigError: a file cannot be read.
    """
    options = CLIENT if shared else [*CLIENT, ("grpc.use_local_subchannel_pool", 1)]
    if not tls:
        return grpc.insecure_channel(address, options)
    try:
        read = {name: Path(path).read_bytes() for name, path in tls.items()}
    except OSError as error:
        raise ConfigError(f"tls: {error.filename} cannot be read ({error.strerror}); name PEM files") from error
    return grpc.secure_channel(
        address, grpc.ssl_channel_credentials(read.get("ca"), read.get("key"), read.get("cert")), options
    )


def metadata(token: str | None) -> list[tuple[str, str]]:
    """Return what a client sends with every call."""
    return [] if token is None else [("authorization", f"Bearer {token}")]


def admits(token: str | None, sent: Any) -> bool:
    """Return whether a call's metadata have the token, in a time that says nothing of it."""
    if token is None:
        return True
    given = next((value for key, value in sent if key == "authorization"), "")
    return hmac.compare_digest(str(given).encode(), f"Bearer {token}".encode())
