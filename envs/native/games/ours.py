"""Which of our own games have a native version, and what the C code is told of them."""

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

Settings = tuple[ctypes.Structure, tuple[NDArray[Any], ...]]
Family = tuple[str, tuple[str, ...], Callable[[Mapping[str, Any]], Settings]]


class NoSettings(ctypes.Structure):
    """Of a game that has none."""

    _fields_ = ()


def _plain(arguments: Mapping[str, Any]) -> Settings:
    return NoSettings(), ()


# By id: the task in tasks.h, arguments of the constructor that the native version has, and the settings by them.
GAMES: dict[str, Family] = {
    "paddock/Game2048-v0": ("game_2048", (), _plain),
}
NAMES = frozenset(name for name, *_ in GAMES.values())
