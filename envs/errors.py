"""The project's one exception tree; it lives on the ground floor so that every floor can raise from it."""

import difflib
import pkgutil
from collections.abc import Callable, Iterable
from typing import Any


class PaddockError(Exception):
    """Something the user can mend: its text is one line that says what, got, allowed and the remedy."""


class ConfigError(PaddockError):
    """A configured value is missing, unknown, of the wrong type or out of range."""


def require(condition: bool, message: str) -> None:
    """Raise ConfigError(message) unless the condition holds; for checks of configured values at the border."""
    if not condition:
        raise ConfigError(message)


def nearest(name: str, known: Iterable[str]) -> str:
    """Say which known names come closest to a mistyped one: "did you mean 'sigma'?", or list a few of them."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if close:
        # People abbreviate: of names that are about as close, one with the same beginning is meant.
        return f"did you mean '{max(close, key=lambda other: other.startswith(name[:3]))}'?"
    if not known:
        return "there is nothing to choose from"
    return f"known: {', '.join(known[:12])}" + (", ..." if len(known) > 12 else "")


def resolve(path: str, key: str) -> Callable[..., Any]:
    """The class or function that a dotted path names.

    Args:
        key: where the path stands in the configuration, for the message.

    Raises:
        ConfigError: it cannot be imported, or cannot be called.
    """
    try:
        found = pkgutil.resolve_name(path)
    except AttributeError as error:
        hint = nearest(path.rpartition(".")[2], [name for name in dir(error.obj) if not name.startswith("_")])
        raise ConfigError(f"{key}={path} cannot be imported ({error}); {hint}") from error
    except (ImportError, ValueError) as error:
        raise ConfigError(f"{key}={path} cannot be imported ({error}); install its package or mend the path") from error
    require(callable(found), f"{key}={path} is a {type(found).__name__}; name a class or a function")
    return found
