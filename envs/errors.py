"""The project's exception tree, and helpers for error messages."""

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any


class PaddockError(Exception):
    """An error that the user can fix; its message is one line with the problem and the remedy.

    Attributes:
        details: further lines, such as a traceback of user code, may follow the first.
        exit_code: exit code of a command that fails with this error.
    """

    details = False
    exit_code = 2


DISK_FULL = 74  # exit code: the disk is full or unavailable (EX_IOERR of sysexits.h)
NO_WORKERS = 69  # exit code: no worker pool is available to any trial (EX_UNAVAILABLE of sysexits.h)
IN_USE = 75  # exit code: another process uses the run (EX_TEMPFAIL of sysexits.h)


def split_details(error: BaseException) -> tuple[str, str]:
    """Return an error's message, and the details of user code that it or its cause carries, or ""."""
    cause: BaseException | None = error
    while cause is not None and not getattr(cause, "details", False):
        cause = cause.__cause__
    line, _, details = (" ".join(str(error).split()), "", "") if cause is None else str(error).partition("\n")
    return line, details


def one_line(error: BaseException) -> str:
    """Return an error's message in one line."""
    return " ".join(str(error).split())


class ConfigError(PaddockError):
    """A configured value is missing, unknown, of the wrong type or out of range."""


def require(condition: bool, message: str) -> None:
    """Raise ConfigError(message) unless the condition holds."""
    if not condition:
        raise ConfigError(message)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint for a mistyped name: "did you mean 'sigma'?", or a list of known names."""
    known = sorted(known)
    close = closest(name, known)
    if close is not None:
        return f"did you mean '{close}'?"
    if not known:
        return "there is nothing to choose from"
    return f"known: {', '.join(known[:12])}" + (", ..." if len(known) > 12 else "")


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name closest to a mistyped one; None if no name is similar."""
    close = max(known, key=lambda other: _similarity(name, other), default="")
    return close if _similarity(name, close) >= 1 else None


def _similarity(name: str, other: str) -> float:
    """Return the similarity of two names, ignoring case; at 1 or above they match."""
    name, other = name.casefold(), other.casefold()
    alike = difflib.SequenceMatcher(None, name, other).ratio()
    # First letters are seldom mistyped, so names with another one must be more similar.
    return alike / 0.5 if name[:1] == other[:1] else alike / 0.7


# By module name. Unknown names are not suggested: an unrelated package may have that name on the index.
EXTRAS = {  # our extras that install it
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
PACKAGES = {  # packages without an extra
    "envpool": "envpool",
    "gymnasium_robotics": "gymnasium-robotics",
    "highway_env": "highway-env",
    "minihack": "--no-deps nle minihack",  # it requires an old Gymnasium but works with newer ones
    "miniworld": "miniworld",
    "mo_gymnasium": "mo-gymnasium",
    "nle": "--no-deps nle",
    "pygame": "pygame",
}


def install(extra: str) -> str:
    """Return the command that installs one of our extras."""
    return f"pip install 'paddock[{extra}]'"


def provide(error: Exception) -> str:
    """Return a hint how to install a module that could not be imported."""
    name = (getattr(error, "name", None) or "").partition(".")[0]
    if name in EXTRAS:
        return install(EXTRAS[name])
    if name in PACKAGES:
        return f"pip install {PACKAGES[name]}"
    return f"start in the folder that has {name or 'its module'}, install its package, or correct the path"


def resolve(path: str, key: str) -> Callable[..., Any]:
    """Return the class or function at a dotted path; raise ConfigError about `key` if there is none."""
    try:
        found = pkgutil.resolve_name(path)
    except AttributeError as error:
        if isinstance(error.obj, ModuleType):  # the same error hides a submodule whose own imports fail
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
