"""Encryption of what crosses machines: certificates named in the configuration, used by Dask for every connection."""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paddock.envs.errors import ConfigError, nearest, require

KEYS = ("ca", "cert", "key")


def check_tls(tls: Mapping[str, str | None] | None) -> None:
    """Check that certificates are named all or not at all, are there, and belong together.

    Raises:
        ConfigError: some are missing, cannot be read, or are not those of one key.
    """
    for name in tls or ():
        require(name in KEYS, f"compute.tls.{name} is not a key of compute.tls; {nearest(str(name), KEYS)}")
    given = {name: path for name, path in (tls or {}).items() if path is not None}
    missing = [name for name in KEYS if name not in given]
    require(
        not given or not missing, f"tls: {' and '.join(missing)} missing; it takes ca, cert and key, each a PEM file"
    )
    for name, path in given.items():
        require(Path(path).is_file(), f"tls: {name}={path} is not a file; name a PEM file")
    if given:
        try:
            context = ssl.create_default_context(cafile=given["ca"])
        except OSError as error:
            said = f"tls: ca={given['ca']} cannot be used ({_why(error)})"
            raise ConfigError(f"{said}; name a PEM certificate") from error
        try:
            context.load_cert_chain(given["cert"], given["key"], password=lambda: "")  # which nobody is asked for
        except OSError as error:
            pair = f"cert={given['cert']} and key={given['key']}"
            remedy = "they are a PEM certificate and its key, without a password"
            raise ConfigError(f"tls: {pair} cannot be used ({_why(error)}); {remedy}") from error


def check_encrypted(said: str, address: str, tls: Mapping[str, str | None] | None) -> None:
    """Check that certificates are named where an address asks for them, and nowhere else.

    Args:
        said: what names the address, for the message.

    Raises:
        ConfigError: one is there without the other.
    """
    protocol, _, place = address.rpartition("://")
    encrypted, named = protocol in ("tls", "wss"), bool(tls and tls.get("ca"))
    require(named or not encrypted, f"{said} is encrypted; name its certificates by compute.tls.ca, .cert and .key")
    require(encrypted or not named, f"{said} is not encrypted, but compute.tls is set; try tls://{place}")


def security(tls: Mapping[str, str | None] | None) -> Any:
    """Dask's settings for these certificates, which then refuse any connection without; None where none are named."""
    if tls is None or tls.get("ca") is None:
        return None
    from distributed import Security

    paths = {part: str(Path(path).absolute()) for part, path in tls.items() if path is not None}
    authority = paths.pop("ca")
    roles = {f"tls_{role}_{part}": path for role in ("client", "worker", "scheduler") for part, path in paths.items()}
    return Security(tls_ca_file=authority, require_encryption=True, **roles)


def _why(error: OSError) -> str:
    """OpenSSL's reason without its codes and line numbers."""
    return getattr(error, "reason", None) or error.strerror or str(error)
