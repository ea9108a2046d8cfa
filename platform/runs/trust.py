"""Trust in run folders: their configuration names classes and functions, which are code."""

import os
import pkgutil
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .folder import FolderError, read_config, read_json

NAMED = re.compile(r"[A-Za-z_]\w*([.:][A-Za-z_]\w*)+")  # dotted path of a class or function
SECTIONS = ("algo", "env", "vec")  # built from a run folder
REMEDY = "if you trust its author, add trust=true (paddock.load: trust=True)"
_trusted: set[Path] = set()


class NotTrusted(FolderError):
    """A run folder names code that this user has not chosen."""


def trust(run: Path) -> None:
    """Trust a run folder until this process ends."""
    _trusted.add(run.resolve())


def add_start_folder_to_path(run: Path) -> None:
    """Append the folder that a run was started in to `sys.path`.

    Raises:
        NotTrusted: another user wrote the run, or it names code of the standard library.
    """
    if run.resolve() not in _trusted:
        _check(run)
    began = read_json(run / "provenance.json").get("folder")
    if isinstance(began, str) and Path(began).is_dir() and began not in sys.path:
        sys.path.append(began)


def _check(run: Path) -> None:
    if (run / "config.yaml").stat().st_uid != os.getuid():
        raise NotTrusted(f"{run} was written by another user, and loading it runs code that it names; {REMEDY}")
    config = read_config(run)
    for name in _strings({section: config.get(section) for section in SECTIONS}):
        if NAMED.fullmatch(name) and _is_of_python(name):
            raise NotTrusted(f"{run} names {name}, which is not an environment or algorithm; {REMEDY}")


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (name for item in value.values() for name in _strings(item))
    elif isinstance(value, list | tuple):
        yield from (name for item in value for name in _strings(item))


def _is_of_python(name: str) -> bool:
    """Return whether a name refers to the standard library, directly or through an import."""
    if re.split("[.:]", name)[0] in sys.stdlib_module_names:
        return True
    try:
        found = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError):
        return False
    return str(getattr(found, "__module__", "")).partition(".")[0] in sys.stdlib_module_names
