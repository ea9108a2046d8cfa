"""The project's one exception tree; it lives on the ground floor so that every floor can raise from it."""

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any


class PaddockError(Exception):
    """Something the user can mend: its text is one line that says what, got, allowed and the remedy.

    Attributes:
        details: whether lines of somebody else's may follow it, such as a traceback, to be shown as they are.
        exit_code: of a command that it ends.
    """

    details = False
    exit_code = 2


DISK_FULL = 74  # exit code of a run whose disk is full or gone: EX_IOERR of sysexits.h
NO_WORKERS = 69  # exit code of a trial whose pool cannot work, as those of others cannot: EX_UNAVAILABLE of sysexits.h
IN_USE = 75  # exit code of a run that another process is at: EX_TEMPFAIL of sysexits.h


def split_details(error: BaseException) -> tuple[str, str]:
    """Return an error's one line, and what it or its cause has from somebody else's code, if anything."""
    cause: BaseException | None = error
    while cause is not None and not getattr(cause, "details", False):
        cause = cause.__cause__
    line, _, details = (" ".join(str(error).split()), "", "") if cause is None else str(error).partition("\n")
    return line, details


def one_line(error: BaseException) -> str:
    """Return an error's text in one line."""
    return " ".join(str(error).split())


class ConfigError(PaddockError):
    """A configured value is missing, unknown, of the wrong type or out of range."""


def require(condition: bool, message: str) -> None:
    """Raise ConfigError(message) unless the condition holds; for checks of configured values at the border."""
    if not condition:
        raise ConfigError(message)


def nearest(name: str, known: Iterable[str]) -> str:
    """Say which known name comes closest to a mistyped one: "did you mean 'sigma'?", or list a few of them."""
    known = sorted(known)
    close = closest(name, known)
    if close is not None:
        return f"did you mean '{close}'?"
    if not known:
        return "there is nothing to choose from"
    return f"known: {', '.join(known[:12])}" + (", ..." if len(known) > 12 else "")


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that a mistyped one may stand for; None where each would be a guess."""
    close = max(known, key=lambda other: _likeness(name, other), default="")
    return close if _likeness(name, close) >= 1 else None


def _likeness(name: str, other: str) -> float:
    """Return how close two names are, whatever their case; from 1 on, one may stand for the other."""
    name, other = name.casefold(), other.casefold()
    alike = difflib.SequenceMatcher(None, name, other).ratio()
    # People abbreviate, and seldom mistype the first letter: a guess that has another one must be closer.
    return alike / 0.5 if name[:1] == other[:1] else alike / 0.7


# Both by the module's name. Of any other name there may be somebody else's package at the index: it is not suggested.
EXTRAS = {  # ours that have it
    "ale_py": "atari",
    "crafter": "crafter",
    "cv2": "atari",
    "dm_control": "dmc",
    "grpc": "remote",
    "lbforaging": "multiagent",
    "magent2": "multiagent",
    "minatar": "minatar",
    "minigrid": "minigrid",
    "mpe2": "multiagent",
    "msgpack": "remote",
    "mujoco": "mujoco",
    "pettingzoo": "multiagent",
    "pymunk": "multiagent",
    "rlcard": "multiagent",
    "rware": "multiagent",
    "shimmy": "dmc",
    "vizdoom": "vizdoom",
}
PACKAGES = {  # of others, or those that are wanted for more than an extra's sake
    "envpool": "envpool",
    "gymnasium_robotics": "gymnasium-robotics",
    "highway_env": "highway-env",
    "minihack": "--no-deps nle minihack",  # whose packages ask for an old Gymnasium, and work with others
    "miniworld": "miniworld",
    "mo_gymnasium": "mo-gymnasium",
    "nle": "--no-deps nle",
    "pygame": "pygame",
}


def install(extra: str) -> str:
    """Return the command that installs one of our extras, from any folder."""
    return f"pip install 'paddock[{extra}]'"


def provide(error: Exception) -> str:
    """Say how a module can be provided that could not be imported."""
    name = (getattr(error, "name", None) or "").partition(".")[0]
    if name in EXTRAS:
        return install(EXTRAS[name])
    if name in PACKAGES:
        return f"pip install {PACKAGES[name]}"
    return f"start where {name or 'its module'} lies, install the package that has it, or mend the path"


def resolve(path: str, key: str) -> Callable[..., Any]:
    """Return the class or function that a dotted path names; ConfigError about `key` where there is none."""
    try:
        found = pkgutil.resolve_name(path)
    except AttributeError as error:
        if isinstance(error.obj, ModuleType):  # it says the same of a module whose own imports fail
            part = f"{error.obj.__name__}.{error.name}"
            try:
                importlib.import_module(part)
            except ImportError as cause:
                if cause.name != part:
                    raise ConfigError(f"{key}={path} cannot be imported ({cause}); {provide(cause)}") from cause
        hint = nearest(
            path.replace(":", ".").rpartition(".")[2], [name for name in dir(error.obj) if not name.startswith("_")]
        )
        raise ConfigError(f"{key}={path} cannot be imported ({error}); {hint}") from error
    except (ImportError, ValueError) as error:
        raise ConfigError(f"{key}={path} cannot be imported ({error}); {provide(error)}") from error
    require(callable(found), f"{key}={path} is a {type(found).__name__}; name a class or a function")
    return found
