"""Mutual TLS of Dask clusters by certificates that are named in the configuration."""

from pathlib import Path
from typing import Any

from paddock.envs.certificates import Paths
from paddock.envs.errors import require


def check_encrypted(setting: str, address: str, tls: Paths) -> None:
    """Check that certificates are named if an address needs them, and only then.

    Args:
        setting: the setting that gives the address, for the message.

    Raises:
        ConfigError: one is there without the other.
    """
    protocol, _, place = address.rpartition("://")
    encrypted, named = protocol in ("tls", "wss"), any((tls or {}).values())
    require(named or not encrypted, f"{setting} is encrypted; name its certificates by compute.tls.ca, .cert and .key")
    require(encrypted or not named, f"{setting} is not encrypted, but compute.tls is set; try tls://{place}")


def read_security(tls: Paths) -> Any:
    """Return Dask's settings for these certificates, which then refuse plain connections; None if none are named."""
    from distributed import Security

    paths = {name: str(Path(path).absolute()) for name, path in (tls or {}).items() if path}
    if not paths:
        return None
    authority = paths.pop("ca")
    roles = {f"tls_{role}_{part}": path for role in ("client", "worker", "scheduler") for part, path in paths.items()}
    return Security(tls_ca_file=authority, require_encryption=True, **roles)
