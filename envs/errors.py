"""The project's one exception tree; it lives on the ground floor so that every floor can raise from it."""

import difflib
from collections.abc import Iterable


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
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if close:
        return f"did you mean '{close[0]}'?"
    if not known:
        return "there is nothing to choose from"
    return f"known: {', '.join(known[:12])}" + (", ..." if len(known) > 12 else "")
