"""Mutual TLS of Dask clusters: certificates named in the configuration, or made for one cluster."""

import contextlib
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from paddock.envs.errors import ConfigError, nearest, require

KEYS = ("ca", "cert", "key")

Paths = Mapping[str, str | None] | None


def check_tls(tls: Paths) -> None:
    """Check that all certificates are named or none, exist, and belong together.

    Raises:
        ConfigError: some are missing, cannot be read, or do not belong to one key.
    """
    for name in tls or ():
        require(name in KEYS, f"compute.tls.{name} is not a key of compute.tls; {nearest(str(name), KEYS)}")
    given = _given(tls)
    missing = " and ".join(name for name in KEYS if name not in given)
    require(not given or not missing, f"tls: {missing} missing; it takes ca, cert and key, each a PEM file")
    if given:
        try:
            named = f"ca={given['ca']}"
            context = ssl.create_default_context(cafile=given["ca"])
            named = f"cert={given['cert']} and key={given['key']}"
            context.load_cert_chain(given["cert"], given["key"], password=lambda: "")  # without asking the terminal
        except OSError as error:
            why = getattr(error, "reason", None) or error.strerror or str(error)
            remedy = "they are a PEM certificate of the authority, one of this process, and its key without a password"
            raise ConfigError(f"tls: {named} cannot be used ({why}); {remedy}") from error


def check_encrypted(setting: str, address: str, tls: Paths) -> None:
    """Check that certificates are named if an address needs them, and only then.

    Args:
        setting: the setting that gives the address, for the message.

    Raises:
        ConfigError: one is there without the other.
    """
    protocol, _, place = address.rpartition("://")
    encrypted, named = protocol in ("tls", "wss"), bool(_given(tls))
    require(named or not encrypted, f"{setting} is encrypted; name its certificates by compute.tls.ca, .cert and .key")
    require(encrypted or not named, f"{setting} is not encrypted, but compute.tls is set; try tls://{place}")


@contextlib.contextmanager
def open_certificates(tls: Paths, folder: Path) -> Iterator[Paths]:
    """Yield these certificates or, where none are named, new ones for one cluster.

    Args:
        tls: paths of PEM files.
        folder: where the new ones are until this closes, in files that this user alone can read.
    """
    if _given(tls):
        yield tls
        return
    from distributed import Security

    made = Security.temporary().get_tls_config_for_role("worker")
    with tempfile.TemporaryDirectory(prefix=".tls-", dir=folder) as place:
        files = {name: Path(place, f"{name}.pem") for name in KEYS}
        for name, file in files.items():
            file.write_text(made["ca_file" if name == "ca" else name])
        yield {name: str(file) for name, file in files.items()}


def read_security(tls: Paths) -> Any:
    """Return Dask's settings for these certificates, which then refuse plain connections; None if none are named."""
    from distributed import Security

    paths = {name: str(Path(path).absolute()) for name, path in _given(tls).items()}
    if not paths:
        return None
    authority = paths.pop("ca")
    roles = {f"tls_{role}_{part}": path for role in ("client", "worker", "scheduler") for part, path in paths.items()}
    return Security(tls_ca_file=authority, require_encryption=True, **roles)


def _given(tls: Paths) -> dict[str, str]:
    return {name: path for name, path in (tls or {}).items() if path is not None}
