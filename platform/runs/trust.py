"""Trust checks for run folders, because loading a run executes code named in its configuration."""

import os
import pkgutil
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .folder import FolderError, read_config, read_json

NAMED = re.compile(r"[A-Za-z_]\w*([.:][A-Za-z_]\w*)+")  # dotted path of a class or function
SECTIONS = ("algo", "env", "vec")  # sections whose objects are built when a run is loaded
FIX = "if you trust its author, add trust=true (paddock.load: trust=True)"
_trusted: set[Path] = set()


class NotTrusted(FolderError):
    """Loading the run folder could execute untrusted code."""


def trust(run: Path) -> None:
    """Trust a run folder for the lifetime of this process."""
    _trusted.add(run.resolve())


def add_start_folder_to_path(run: Path) -> None:
    """Append the folder from which a run was started to `sys.path`.

    Raises:
        NotTrusted: the run belongs to another user, or its configuration names an object of the standard library.
    """
    if run.resolve() not in _trusted:
        _check(run)
    folder = read_json(run / "provenance.json").get("folder")
    if isinstance(folder, str) and Path(folder).is_dir() and folder not in sys.path:
        sys.path.append(folder)


def _check(run: Path) -> None:
    if (run / "config.yaml").stat().st_uid != os.getuid():
        raise NotTrusted(f"{run} belongs to another user, and loading it executes code that it names; {FIX}")
    config = read_config(run)
    for name in _strings({section: config.get(section) for section in SECTIONS}):
        if NAMED.fullmatch(name) and _is_stdlib(name):
            raise NotTrusted(f"{run} names {name}, which is neither an environment nor an algorithm; {FIX}")


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (name for item in value.values() for name in _strings(item))
    elif isinstance(value, list | tuple):
        yield from (name for item in value for name in _strings(item))


def _is_stdlib(name: str) -> bool:
    """Return whether a name refers to the standard library, directly or through another module."""
    if re.split("[.:]", name)[0] in sys.stdlib_module_names:
        return True
    try:
        obj = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError):
        return False
    return str(getattr(obj, "__module__", "")).partition(".")[0] in sys.stdlib_module_names
