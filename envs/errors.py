"""Base exceptions, and functions that build error messages."""

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any


class PaddockError(Exception):
    """Error that the user can fix; its message is one line with the problem and the fix.

    Attributes:
        details: whether more lines may follow, such as a traceback of user code.
        exit_code: exit code of a command that raises this error.
    """

    details = False
    exit_code = 2


DISK_FULL = 74  # exit code: the disk is full or unavailable (EX_IOERR of sysexits.h)
NO_WORKERS = 69  # exit code: no trial has a worker pool (EX_UNAVAILABLE of sysexits.h)
IN_USE = 75  # exit code: the run is in use by another process (EX_TEMPFAIL of sysexits.h)


def split_details(error: BaseException) -> tuple[str, str]:
    """Return an error's message and the details of user code, which may be in its cause ("" if none)."""
    cause: BaseException | None = error
    while cause is not None and not getattr(cause, "details", False):
        cause = cause.__cause__
    line, _, details = (" ".join(str(error).split()), "", "") if cause is None else str(error).partition("\n")
    return line, details


def one_line(error: BaseException) -> str:
    """Return an error's message on one line."""
    return " ".join(str(error).split())


class ConfigError(PaddockError):
    """Error for a configuration value that is missing, unknown, of the wrong type or out of range."""


def require(condition: bool, message: str) -> None:
    """Raise ConfigError(message) unless the condition holds."""
    if not condition:
        raise ConfigError(message)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown name: "did you mean 'sigma'?", or a list of known names."""
    known = sorted(known)
    close = closest(name, known)
    if close is not None:
        return f"did you mean '{close}'?"
    if not known:
        return "there are none"
    return f"known: {', '.join(known[:12])}" + (", ..." if len(known) > 12 else "")


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is closest to a mistyped name, or None if none is similar."""
    close = max(known, key=lambda other: _similarity(name, other), default="")
    return close if _similarity(name, close) >= 1 else None


def _similarity(name: str, other: str) -> float:
    """Return the similarity of two names, ignoring case; 1 or more is a match."""
    name, other = name.casefold(), other.casefold()
    ratio = difflib.SequenceMatcher(None, name, other).ratio()
    # The first letter is rarely mistyped, so names that differ in it must be more similar.
    return ratio / 0.5 if name[:1] == other[:1] else ratio / 0.7


# By module name. Other modules get no suggestion, because PyPI may have an unrelated package of the same name.
EXTRAS = {  # extras of Paddock that install the module
    "ale_py": "atari",
    "crafter": "crafter",
    "cv2": "atari",
    "dm_control": "dmc",
    "grpc": "remote",
    "gymnax": "jax",
    "jax": "jax",
    "lbforaging": "multiagent",
    "magent2": "multiagent",
    "minatar": "minatar",
    "minigrid": "minigrid",
    "mpe2": "multiagent",
    "msgpack": "remote",
    "mujoco": "mujoco",
    "pettingzoo": "multiagent",
    "pgx": "jax",
    "pymunk": "multiagent",
    "rlcard": "multiagent",
    "rware": "multiagent",
    "shimmy": "dmc",
    "vizdoom": "vizdoom",
}
PACKAGES = {  # PyPI packages that no extra installs
    "brax": "brax",
    "envpool": "envpool",
    "gymnasium_robotics": "gymnasium-robotics",
    "highway_env": "highway-env",
    "minihack": "--no-deps nle minihack 'setuptools<81'",  # works with newer versions of Gymnasium than it requires
    "miniworld": "miniworld",
    "mo_gymnasium": "mo-gymnasium",
    "nle": "--no-deps nle",
    "pkg_resources": "'setuptools<81'",  # which MiniHack imports
    "pygame": "pygame",
}


def install(extra: str) -> str:
    """Return the command that installs an extra of Paddock."""
    return f"pip install 'paddock[{extra}]'"


def provide(error: Exception) -> str:
    """Return a hint on how to install a module that cannot be imported."""
    name = (getattr(error, "name", None) or "").partition(".")[0]
    if name in EXTRAS:
        return install(EXTRAS[name])
    if name in PACKAGES:
        return f"pip install {PACKAGES[name]}"
    return f"run in the folder that contains {name or 'its module'}, install its package, or correct the path"


def resolve(path: str, key: str) -> Callable[..., Any]:
    """Import the class or function at a dotted path; raise ConfigError that names `key` on failure."""
    try:
        found = pkgutil.resolve_name(path)
    except AttributeError as error:
        if isinstance(error.obj, ModuleType):  # also raised for a submodule whose own imports fail
            module = f"{error.obj.__name__}.{error.name}"
            try:
                importlib.import_module(module)
            except ImportError as cause:
                if cause.name != module:
                    raise ConfigError(f"{key}={path} cannot be imported ({cause}); {provide(cause)}") from cause
        hint = nearest(
            path.replace(":", ".").rpartition(".")[2], [name for name in dir(error.obj) if not name.startswith("_")]
        )
        raise ConfigError(f"{key}={path} cannot be imported ({error}); {hint}") from error
    except (ImportError, ValueError) as error:
        raise ConfigError(f"{key}={path} cannot be imported ({error}); {provide(error)}") from error
    require(callable(found), f"{key}={path} is a {type(found).__name__}; use a class or a function")
    return found
