"""Shared library for training dense networks, called without the GIL; the environments choose its instruction set."""

import ctypes
import functools
from pathlib import Path

from paddock.envs.errors import ConfigError, require
from paddock.envs.native import library as environments

FOLDER = Path(__file__).parent
ABI = 11  # DENSE_ABI of dense.h

_POINTER = ctypes.c_void_p
_INT = ctypes.c_int
FIND = {"find_dense": (_POINTER, ctypes.c_char_p)}  # result, then arguments


class Functions(ctypes.Structure):
    """Functions of one instruction set: `struct dense_set` of dense.h."""

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
    """Flat parameters, targets and moments; None if missing or not wanted."""

    _fields_ = tuple((name, _POINTER) for name in ("parameters", "targets", "momentum", "variance"))


@functools.cache
def load() -> ctypes.CDLL:
    """Load the library once per process; raise ConfigError if it is missing, outdated or broken."""
    found = environments.find_built(FOLDER, "_dense")
    require(bool(found), "the dense network library was not built; install gcc and run pip install again")
    return environments.open_library(found[0], ABI, FIND, "dense networks", "run pip install again")


def functions() -> Functions:
    """Return the functions of the widest instruction set of this CPU; raise ConfigError without library."""
    return Functions.from_address(load().find_dense(environments.widest().encode()))


def find_problem() -> str:
    """Return the reason why dense networks cannot be trained in C; empty if they can."""
    try:
        functions()
    except ConfigError as error:
        return str(error)
    return ""
