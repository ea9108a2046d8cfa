"""Whether a run folder may say what runs here: its configuration names classes and functions, which are code."""

import os
import pkgutil
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .folder import FolderError, read_config, read_json

NAMED = re.compile(r"[A-Za-z_]\w*([.:][A-Za-z_]\w*)+")  # what may be the dotted path of a class or function
OURS = ("algo", "env", "vec")  # sections that are built of a run folder
REMEDY = "if you trust who made it, add trust=true (paddock.load: trust=True)"
_trusted: set[Path] = set()


class NotTrusted(FolderError):
    """A run folder may run code that this user has not chosen."""


def trust(run: Path) -> None:
    """Let a run folder name any code, until this process ends."""
    _trusted.add(run.resolve())


def add_start_folder_to_path(run: Path) -> None:
    """Let modules be imported from the folder that a run was started in, after all others.

    Raises:
        NotTrusted: another user wrote the run, or it names code of Python's standard library.
    """
    if run.resolve() not in _trusted:
        _check(run)
    began = read_json(run / "provenance.json").get("folder")
    if isinstance(began, str) and Path(began).is_dir() and began not in sys.path:
        sys.path.append(began)


def _check(run: Path) -> None:
    if (run / "config.yaml").stat().st_uid != os.getuid():
        raise NotTrusted(f"{run} was written by another user, and evaluating it runs code that it names; {REMEDY}")
    config = read_config(run)
    for name in _strings({section: config.get(section) for section in OURS}):
        if NAMED.fullmatch(name) and _is_of_python(name):
            raise NotTrusted(f"{run} names {name}, which is no environment or algorithm; {REMEDY}")


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (name for part in value.values() for name in _strings(part))
    elif isinstance(value, list | tuple):
        yield from (name for part in value for name in _strings(part))


def _is_of_python(name: str) -> bool:
    """Return whether a name leads to the standard library, itself or by a module that imports from it."""
    if re.split("[.:]", name)[0] in sys.stdlib_module_names:
        return True
    try:
        found = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError):
        return False
    return str(getattr(found, "__module__", "")).partition(".")[0] in sys.stdlib_module_names
