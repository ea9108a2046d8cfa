"""Shared library that samples and gathers batches; without a compiler NumPy gives the same results."""

import ctypes
import functools
from pathlib import Path

from paddock.envs.errors import ConfigError, require
from paddock.envs.native.library import find_built, open_library

FOLDER = Path(__file__).parent
ABI = 2  # REPLAY_ABI of replay.c

_POINTER, _INTEGER = ctypes.c_void_p, ctypes.c_int64
_FUNCTIONS = {  # result, then arguments
    "scale_words": (None, _POINTER, _INTEGER, ctypes.c_uint64, _INTEGER, _POINTER),
    "set_leaves": (None, _POINTER, _INTEGER, _POINTER, _POINTER, _INTEGER),
    "sum_leaves": (None, _POINTER, _INTEGER),
    "draw_leaves": (None, _POINTER, _INTEGER, _POINTER, _INTEGER, _INTEGER, _POINTER),
    "gather_windows": (None, _POINTER, _POINTER, _INTEGER, _POINTER),
}


@functools.cache
def load() -> ctypes.CDLL:
    """Load the library, once per process; raise ConfigError if it is missing, outdated or broken."""
    found = find_built(FOLDER, "_replay")
    require(bool(found), "the replay library was not built; install gcc and run pip install again")
    return open_library(found[0], ABI, _FUNCTIONS, "replay", "run pip install again")


def usable() -> ctypes.CDLL | None:
    """Return the library, or None if it cannot be loaded."""
    try:
        return load()
    except ConfigError:
        return None
