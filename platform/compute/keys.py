"""Configuration keys that several options of `compute` share: numbers of workers and certificates."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from paddock.envs.certificates import Paths
from paddock.envs.errors import nearest, require
from paddock.envs.ranges import Range

from .dask.autoscale import Bounds

MOST = 1024  # workers

Count = int | Mapping[str, int | None] | None  # a number, or {min, max}
Retries = Annotated[int, Range("must be between 0 and 100; a typical value is 3", low=0, high=100)]
Timeout = Annotated[float | None, Range("must be positive, or null for no limit", above=0)]


def read_bounds(workers: Count, default: int) -> Bounds:
    """Return the bounds of a setting: a number, {min, max}, or None for the default."""
    if not isinstance(workers, Mapping):
        workers = {"min": workers, "max": workers}
    for name in workers:
        require(
            name in ("min", "max"),
            f"compute.workers.{name} is not a key of compute.workers; {nearest(str(name), ('min', 'max'))}",
        )
    given = {name: count for name, count in workers.items() if count is not None}
    for name, count in given.items():
        shown = f"workers={count}" if given.get("min") == given.get("max") else f"workers: {name}={count}"
        whole = isinstance(count, int) and not isinstance(count, bool)
        require(whole and 1 <= count <= MOST, f"{shown} must be an integer between 1 and {MOST}, or null")
    low = given.get("min", min(default, given.get("max", default)))
    high = given.get("max", low)
    require(low <= high, f"workers: min={low} is more than max={high}; swap them")
    return Bounds(low, high)


def check_encrypted(setting: str, address: str, tls: Paths) -> None:
    """Check that certificates are given if and only if the address is encrypted.

    Raises:
        ConfigError: certificates are missing or unused.
    """
    protocol, _, place = address.rpartition("://")
    encrypted, named = protocol in ("tls", "wss"), any((tls or {}).values())
    require(named or not encrypted, f"{setting} is encrypted; set compute.tls.ca, .cert and .key")
    require(encrypted or not named, f"{setting} is not encrypted, but compute.tls is set; use tls://{place}")


def read_security(tls: Paths) -> Any:
    """Return Dask's settings for these certificates, which refuse plain connections; None without certificates."""
    from distributed import Security

    paths = {name: str(Path(path).absolute()) for name, path in (tls or {}).items() if path}
    if not paths:
        return None
    authority = paths.pop("ca")
    roles = {f"tls_{role}_{part}": path for role in ("client", "worker", "scheduler") for part, path in paths.items()}
    return Security(tls_ca_file=authority, require_encryption=True, **roles)
