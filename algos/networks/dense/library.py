"""The shared library in which dense networks learn: found beside this file, and called without the interpreter lock.

It is used with the set of instructions that the environments' library chose.
"""

import ctypes
import functools
from pathlib import Path

from paddock.envs.errors import ConfigError, require
from paddock.envs.native import library as environments

FOLDER = Path(__file__).parent
ABI = 10  # DENSE_ABI of dense.h

_POINTER = ctypes.c_void_p
_INT = ctypes.c_int
FIND = {"find_dense": (_POINTER, ctypes.c_char_p)}  # result, then arguments


class Functions(ctypes.Structure):
    """What learns with one set of instructions: `struct dense_set` of dense.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        *((name, ctypes.CFUNCTYPE(_INT, _POINTER, _POINTER)) for name in ("evaluate", "update")),
        ("q_open", ctypes.CFUNCTYPE(_POINTER, _POINTER, _INT)),
        ("q_close", ctypes.CFUNCTYPE(None, _POINTER)),
        *((name, ctypes.CFUNCTYPE(None, _POINTER, _POINTER)) for name in ("q_load", "q_save")),
        ("q_update", ctypes.CFUNCTYPE(_INT, _POINTER, _POINTER)),
        ("actor_critic_open", ctypes.CFUNCTYPE(_POINTER, _POINTER)),
        ("actor_critic_close", ctypes.CFUNCTYPE(None, _POINTER)),
        ("actor_critic_load", ctypes.CFUNCTYPE(None, _POINTER, _POINTER, _POINTER)),
        ("actor_critic_save", ctypes.CFUNCTYPE(None, _POINTER, _POINTER, _POINTER)),
        ("actor_critic_update", ctypes.CFUNCTYPE(_INT, _POINTER, _POINTER)),
        ("lstm_run", ctypes.CFUNCTYPE(_INT, _POINTER, _POINTER)),
        ("lstm_tape", ctypes.CFUNCTYPE(ctypes.c_size_t, _POINTER)),
    )


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
    return environments.open_library(found[0], ABI, FIND, "dense networks", "run pip install again")


def functions() -> Functions:
    """Return the functions of the widest set of instructions that this processor has.

    Raises:
        ConfigError: there is no library.
    """
    return Functions.from_address(load().find_dense(environments.widest().encode()))


def find_problem() -> str:
    """Return why dense networks cannot learn in C here; empty where they can."""
    try:
        functions()
    except ConfigError as error:
        return str(error)
    return ""
