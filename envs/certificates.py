"""Checks of the PEM files for TLS: certificate authority, certificate and key."""

import ssl
from collections.abc import Mapping, Sequence

from paddock.envs.errors import ConfigError, nearest, require

KEYS = ("ca", "cert", "key")

Paths = Mapping[str, str | None] | None


def check_tls(tls: Paths, together: Sequence[str] = KEYS) -> dict[str, str]:
    """Return the given PEM files by `ca`, `cert` and `key`.

    Args:
        tls: paths by key; None entries are ignored.
        together: keys that must be given together or not at all.

    Raises:
        ConfigError: a file is unknown, missing, unreadable or does not match the others.
    """
    given = {name: path for name, path in (tls or {}).items() if path is not None}
    for name in tls or ():
        require(name in KEYS, f"tls.{name} is not a key of tls; {nearest(str(name), KEYS)}")
    missing = [name for name in together if name not in given]
    remedy = f"{', '.join(together[:-1])} and {together[-1]} go together, each a PEM file"
    require(len(missing) in (0, len(together)), f"tls: {' and '.join(missing)} missing; {remedy}")
    context, named = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ""
    try:
        if "ca" in given:
            named = f"ca={given['ca']}"
            context.load_verify_locations(given["ca"])
        if "cert" in given:
            named = f"cert={given['cert']} and key={given['key']}"
            context.load_cert_chain(given["cert"], given["key"], password=lambda: "")  # never prompt
    except OSError as error:
        why = getattr(error, "reason", None) or error.strerror or str(error)
        raise ConfigError(f"tls: {named} cannot be used ({why}); use PEM files without a password") from error
    return given
