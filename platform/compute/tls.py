"""Encryption of what crosses machines: certificates named in the configuration, used by Dask for every connection."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envs.errors import nearest, require

KEYS = ("ca", "cert", "key")


def check_tls(tls: Mapping[str, str | None] | None) -> None:
    """Check that certificates are named all or not at all, and are there.

    Raises:
        ConfigError: some are missing, or are no files.
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


def security(tls: Mapping[str, str | None] | None) -> Any:
    """Dask's settings for these certificates, which then refuse any connection without; None where none are named."""
    if tls is None or tls.get("ca") is None:
        return None
    from distributed import Security

    roles = {f"tls_{role}_{part}": tls[part] for role in ("client", "worker", "scheduler") for part in ("cert", "key")}
    return Security(tls_ca_file=tls["ca"], require_encryption=True, **roles)
