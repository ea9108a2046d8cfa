"""The shared library in which dense networks learn: found beside this file, and called without the interpreter lock.

It is used with the set of instructions that the environments' library chose.
"""

import ctypes
import functools
from pathlib import Path

from paddock.envs.errors import ConfigError, require
from paddock.envs.native import library as environments

FOLDER = Path(__file__).parent
ABI = 9  # DENSE_ABI of dense.h

_POINTER = ctypes.c_void_p
_FUNCTIONS = {  # result, then arguments
    "lstm_run": (ctypes.c_int, ctypes.c_char_p, _POINTER, _POINTER),
    "lstm_tape": (ctypes.c_int64, ctypes.c_char_p, _POINTER),
    "evaluate_dense": (ctypes.c_int, ctypes.c_char_p, _POINTER, _POINTER),
    "update_dense": (ctypes.c_int, ctypes.c_char_p, _POINTER, _POINTER),
    "q_open": (_POINTER, ctypes.c_char_p, _POINTER, ctypes.c_int),
    "q_close": (None, ctypes.c_char_p, _POINTER),
    "q_load": (None, ctypes.c_char_p, _POINTER, _POINTER),
    "q_save": (None, ctypes.c_char_p, _POINTER, _POINTER),
    "q_update": (ctypes.c_int, ctypes.c_char_p, _POINTER, _POINTER),
    "actor_critic_open": (_POINTER, ctypes.c_char_p, _POINTER),
    "actor_critic_close": (None, ctypes.c_char_p, _POINTER),
    "actor_critic_load": (None, ctypes.c_char_p, _POINTER, _POINTER, _POINTER),
    "actor_critic_save": (None, ctypes.c_char_p, _POINTER, _POINTER, _POINTER),
    "actor_critic_update": (ctypes.c_int, ctypes.c_char_p, _POINTER, _POINTER),
}


class Vectors(ctypes.Structure):
    """Flat parameters, targets and moments; None where there are none, or nobody asks for them."""

    _fields_ = tuple((name, _POINTER) for name in ("parameters", "targets", "momentum", "variance"))


@functools.cache
def load() -> ctypes.CDLL:
    """The library, loaded once a process.

    Raises:
        ConfigError: it was not built, was built from other sources, or cannot be loaded.
    """
    found = environments.find_built(FOLDER, "_dense")
    require(bool(found), "the library of dense networks was not built; install gcc and run pip install again")
    return environments.open_library(found[0], ABI, _FUNCTIONS, "dense networks", "run pip install again")


def find_problem() -> str:
    """Return why dense networks cannot learn in C here; empty where they can."""
    try:
        load(), environments.widest()
    except ConfigError as error:
        return str(error)
    return ""
