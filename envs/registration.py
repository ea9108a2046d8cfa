"""Registration of our own environments: with Gymnasium, and with the C code that plays them for `vec=native`."""

import ctypes
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, get_type_hints

import gymnasium
from numpy.typing import NDArray

ELSEWHERE = "choose vec=serial or vec=multiprocess"  # the way out of what the C code has not
Given = Mapping[str, Any]  # all arguments of an environment's constructor
Settings = tuple[ctypes.Structure, tuple[NDArray[Any], ...]]  # for the C code, and arrays that they point into


class NoSettings(ctypes.Structure):
    """Of a game that has none."""

    _fields_ = ()


def no_settings(given: Given) -> Settings:
    """Return the settings of a game that has none."""
    return NoSettings(), ()


def settings_of(rules: type) -> Callable[[Given], Settings]:
    """Return what makes settings of arguments, in a C structure with the fields of a dataclass of numbers."""
    hints = get_type_hints(rules)
    kinds = {field.name: ctypes.c_double if hints[field.name] is float else ctypes.c_int32 for field in fields(rules)}
    structure = type(rules.__name__, (ctypes.Structure,), {"_fields_": tuple(kinds.items())})
    return lambda given: (structure(**given), ())


@dataclass(frozen=True)
class NativeVersion:
    """The version of an environment in C.

    Attributes:
        name: of its task in C.
        settings: of the task, by the arguments of the constructor.
        keywords: arguments that it takes besides the registered ones.
        limit: steps after which the environment itself truncates an episode; None: never.
        agents: whether it is a world of several agents.
        original: the package whose numbers it has; None: ours.
    """

    name: str
    settings: Callable[[Given], Settings] = no_settings
    keywords: tuple[str, ...] = ()
    limit: Callable[[Given], int | None] = lambda given: None
    agents: bool = False
    original: str | None = None


VERSIONS: dict[str, NativeVersion] = {}  # by id; the module in front of it registers the environment


def register(
    entry_point: str,
    *,
    name: str | None = None,
    kwargs: Given | None = None,
    max_episode_steps: int | None = None,
    native: NativeVersion | None = None,
) -> None:
    """Register an environment as paddock/NAME-v0.

    Args:
        entry_point: its module and class.
        name: that of the class if None.
        native: its version in C, if there is one.
    """
    module, _, of_class = entry_point.partition(":")
    id = f"paddock/{name or of_class}-v0"
    gymnasium.register(id=id, entry_point=entry_point, kwargs=dict(kwargs or {}), max_episode_steps=max_episode_steps)
    if native is not None:
        VERSIONS[f"{module}:{id}"] = native


def import_modules(package: str, path: list[str]) -> None:
    """Import all modules of a package, which register their environments."""
    for module in pkgutil.iter_modules(path):
        importlib.import_module(f"{package}.{module.name}")
