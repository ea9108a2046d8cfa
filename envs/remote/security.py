"""Addresses, certificates, tokens and gRPC settings of client and server."""

import contextlib
import hmac
import json
import os
import secrets
import socket
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc

from paddock.envs.errors import ConfigError, require

TOKEN = "PADDOCK_TOKEN"  # environment variable, used without a file
MIN_TOKEN_BYTES = 32
SERVICE = ".".join(("paddock", "env", "v1", "Environments"))  # a gRPC service, not a module
PING_S, PING_TIMEOUT_S = 5, 5

# By default gRPC uses proxies of the environment, needs 25 s or more to notice a stopped server whatever
# keepalive_timeout_ms is, closes connections with frequent pings, and limits messages to 4 MB.
PINGS = [
    ("grpc.enable_http_proxy", 0),
    ("grpc.keepalive_time_ms", PING_S * 1000),
    ("grpc.http2.ping_timeout_ms", PING_TIMEOUT_S * 1000),
    ("grpc.keepalive_timeout_ms", PING_TIMEOUT_S * 1000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]
CLIENT = [*PINGS, ("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def server_options(max_bytes: int) -> list[tuple[str, int]]:
    """Return the gRPC options of a server that accepts messages of at most `max_bytes`."""
    return [
        *PINGS,
        ("grpc.so_reuseport", 0),  # else two servers silently share a port
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 1000),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.max_receive_message_length", max_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", 8192),
    ]


def write_address_file(path: str, address: str) -> None:
    """Write a server's address atomically to a file, for clients that use `file:PATH`."""
    host, _, port = address.rpartition(":")
    if host in ("0.0.0.0", "[::]"):
        address = f"{socket.getfqdn()}:{port}"
    temporary = f"{path}.{os.getpid()}"
    try:
        Path(temporary).write_text(json.dumps({"address": address}) + "\n")
        os.replace(temporary, path)
    except OSError as error:
        raise ConfigError(f"serve.address_file={path} cannot be written ({error.strerror}); choose another") from error


def find_address(address: str) -> str | None:
    """Resolve an address, which may be `file:PATH`; return None if no server has written the file yet."""
    if not address.startswith("file:"):
        return address
    try:
        return str(json.loads(Path(address.removeprefix("file:")).read_text())["address"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def check_address(address: str, key: str = "vec.address") -> bool:
    """Return whether an address is local to this machine; raise ConfigError about `key` if it is malformed."""
    if address.startswith(("unix:", "file:")) and len(address) > len("unix:"):
        return True
    host, _, port = address.rpartition(":")
    good = bool(host) and port.isdecimal() and int(port) < 65536 and (":" not in host or host.startswith("["))
    require(good, f"{key}={address} must be HOST:PORT, such as 127.0.0.1:3003 or [::1]:3003, unix:PATH or file:PATH")
    return host in ("localhost", "[::1]") or host.startswith("127.")


def read_token(token_file: str | None) -> str | None:
    """Return the token of a file or of PADDOCK_TOKEN; None if there is neither.

    Raises:
        ConfigError: the file cannot be read, is readable by others, or has a short or invalid token.
    """
    source, token = TOKEN, os.environ.get(TOKEN)
    if token_file is not None:
        source = f"token_file={token_file}"
        try:
            mode, token = stat.S_IMODE(os.stat(token_file).st_mode), Path(token_file).read_text("latin-1").strip()
        except OSError as error:
            raise ConfigError(f"{source} cannot be read ({error.strerror}); copy the server's token file") from error
        require(not mode & 0o077, f"{source} can be read by others (mode {mode:o}); chmod 600 {token_file}")
    good = token is None or (len(token) >= MIN_TOKEN_BYTES and token.isascii() and token.isprintable())
    require(good, f"{source} must hold at least {MIN_TOKEN_BYTES} printable characters; a server creates a missing one")
    return token


def make_token(token_file: str) -> None:
    """Write a new token to a file that only its owner may read, unless it exists."""
    if os.path.exists(token_file):
        return
    temporary = f"{token_file}.{secrets.token_hex(8)}"
    try:
        with open(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(MIN_TOKEN_BYTES) + "\n")
        with contextlib.suppress(FileExistsError):  # written by another server at the same time
            os.link(temporary, token_file)
        os.unlink(temporary)
    except OSError as error:
        raise ConfigError(f"token_file={token_file} cannot be written ({error.strerror}); choose another") from error


def check_server(local: bool, address: str, token: str | None, tls: Mapping[str, str], insecure: bool) -> None:
    """Raise ConfigError if other machines could use a server without token and encryption."""
    if not local and not insecure:
        missing = [*([] if token else ["serve.token_file"]), *([] if "cert" in tls else ["serve.tls.cert and .key"])]
        fix = f"set {' and '.join(missing)}, or serve.insecure=true"
        require(not missing, f"serve.address={address} is open to other machines; {fix}")


def bind(server: Any, address: str, tls: Mapping[str, str]) -> str:
    """Bind a gRPC server; return the address with its port, or raise ConfigError."""
    port = 0
    with contextlib.suppress(RuntimeError, ValueError, OSError):
        if address.startswith("unix:") and _answers(address.removeprefix("unix:")):
            pass  # gRPC would silently take over the other server's socket
        elif "cert" in tls:
            pair = (Path(tls["key"]).read_bytes(), Path(tls["cert"]).read_bytes())
            ca = Path(tls["ca"]).read_bytes() if "ca" in tls else None
            port = server.add_secure_port(address, grpc.ssl_server_credentials([pair], ca, ca is not None))
        else:
            port = server.add_insecure_port(address)
    if not port:
        raise ConfigError(f"cannot listen at serve.address={address}: it may be in use; choose another, or port 0")
    return address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"


def _answers(path: str) -> bool:
    """Return whether a process listens at a Unix domain socket."""
    with socket.socket(socket.AF_UNIX) as other:
        return other.connect_ex(path) == 0


def connect(address: str, token: str | None, tls: Mapping[str, str]) -> Any:
    """Return an unconnected gRPC channel; raise ConfigError if it would send the token unencrypted."""
    clear = token is not None and not check_address(address) and not tls
    require(not clear, f"vec.address={address}: tokens are not sent without encryption; set vec.tls.ca")
    if not tls:
        return grpc.insecure_channel(address, CLIENT)
    read = {name: Path(path).read_bytes() for name, path in tls.items()}
    credentials = grpc.ssl_channel_credentials(read.get("ca"), read.get("key"), read.get("cert"))
    return grpc.secure_channel(address, credentials, CLIENT)


def token_metadata(token: str | None) -> list[tuple[str, str]]:
    """Return the metadata of a client's calls."""
    return [] if token is None else [("authorization", f"Bearer {token}")]


def admits(token: str | None, metadata: Any) -> bool:
    """Return whether a call's metadata has the token, compared in constant time."""
    if token is None:
        return True
    given = next((value for key, value in metadata if key == "authorization"), "")
    return hmac.compare_digest(str(given).encode(), f"Bearer {token}".encode())
