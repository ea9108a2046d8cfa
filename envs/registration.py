"""Registration of our environments with Gymnasium and with their native versions for `vec=native`."""

import ctypes
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, get_type_hints

import gymnasium
from numpy.typing import NDArray

ELSEWHERE = "use vec=serial or vec=multiprocess"  # remedy where there is no native version
Given = Mapping[str, Any]  # arguments of an environment's constructor
Settings = tuple[ctypes.Structure, tuple[NDArray[Any], ...]]  # the C structure, and arrays that it points into


class NoSettings(ctypes.Structure):
    """Empty settings structure."""

    _fields_ = ()


def no_settings(given: Given) -> Settings:
    """Return empty settings."""
    return NoSettings(), ()


def settings_of(rules: type) -> Callable[[Given], Settings]:
    """Return a function that fills a C structure with the numeric fields of the dataclass `rules`."""
    hints = get_type_hints(rules)
    kinds = {field.name: ctypes.c_double if hints[field.name] is float else ctypes.c_int32 for field in fields(rules)}
    structure = type(rules.__name__, (ctypes.Structure,), {"_fields_": tuple(kinds.items())})
    return lambda given: (structure(**given), ())


@dataclass(frozen=True)
class NativeVersion:
    """Native (C) version of an environment."""

    name: str  # of its task in C
    settings: Callable[[Given], Settings] = no_settings  # function from constructor arguments to the task's settings
    keywords: tuple[str, ...] = ()  # arguments that it takes besides the registered ones
    agents: bool = False  # it is a multi-agent environment
    original: str | None = None  # the package that it reproduces; None: ours


VERSIONS: dict[str, NativeVersion] = {}  # by MODULE:ID, where the module registers the environment


def register(
    entry_point: str,
    *,
    name: str | None = None,
    kwargs: Given | None = None,
    max_episode_steps: int | None = None,
    native: NativeVersion | None = None,
) -> None:
    """Register the class of an entry point MODULE:CLASS, and its native version, as paddock/NAME-v0 (by default CLASS)."""
    module, _, of_class = entry_point.partition(":")
    id = f"paddock/{name or of_class}-v0"
    gymnasium.register(id=id, entry_point=entry_point, kwargs=dict(kwargs or {}), max_episode_steps=max_episode_steps)
    if native is not None:
        VERSIONS[f"{module}:{id}"] = native


def import_modules(package: str, path: list[str]) -> None:
    """Import all modules of a package so that they register their environments."""
    for module in pkgutil.iter_modules(path):
        importlib.import_module(f"{package}.{module.name}")
