"""The shared library of native environments: found beside this file, and called without the interpreter lock."""

import ctypes
import functools
import os
from dataclasses import dataclass, fields
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from envs.errors import ConfigError, require

FOLDER = Path(__file__).parent
ABI = 2  # PADDOCK_ABI of native.h
SETS = ("avx512", "avx2", "baseline")  # of instructions, the widest first
CHOICE = "PADDOCK_LANES"  # the environment variable that picks one of them
AGAIN = "run pip install again, or choose vec=serial"

_POINTER, _INT, _LONG = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
_FUNCTIONS = {  # result, then arguments
    "has_set": (_INT, ctypes.c_char_p),
    "find_task": (_POINTER, ctypes.c_char_p, ctypes.c_char_p),
    "run_networks": (None, ctypes.c_char_p, _POINTER),
    "vector_open": (_POINTER, _POINTER, _INT, _POINTER, _INT, _INT, _INT),
    "vector_close": (None, _POINTER),
    "vector_start": (_INT, _POINTER, _POINTER, _POINTER, _POINTER),
    "vector_begin": (_INT, _POINTER, _LONG, _POINTER, _POINTER),
    "vector_step": (_LONG, _POINTER, _POINTER, _POINTER),
    "vector_saved_bytes": (ctypes.c_size_t, _POINTER),
    "vector_save": (None, _POINTER, _POINTER),
    "vector_load": (_INT, _POINTER, _POINTER),
    "seed_generator": (None, _POINTER, ctypes.c_uint64),
    "draw": (ctypes.c_double, _POINTER),
    "draw_uniform": (ctypes.c_double, _POINTER, ctypes.c_double, ctypes.c_double),
    "draw_integer": (_LONG, _POINTER, _LONG, _LONG),
}


class _CTask(ctypes.Structure):
    """The first members of `struct task` of native.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("lanes", ctypes.c_int),
        ("observations", ctypes.c_int),
        ("actions", ctypes.c_int),
        ("choices", ctypes.c_int),
        ("group_bytes", ctypes.c_size_t),
        ("saved_bytes", ctypes.c_size_t),
    )


@dataclass(frozen=True)
class TaskShape:
    """What the C code says of a task."""

    lanes: int  # environments in a group
    observations: int  # numbers in an observation
    actions: int  # numbers in an action
    choices: int  # of a discrete action; 0: actions are numbers
    group_bytes: int
    saved_bytes: int  # of one environment, without its generator


def built() -> list[Path]:
    """Where libraries for this Python are; `load` takes the first."""
    return [path for path in (FOLDER / f"_lanes{suffix}" for suffix in EXTENSION_SUFFIXES) if path.exists()]


@functools.cache
def load() -> ctypes.CDLL:
    """The library, loaded once a process.

    Raises:
        ConfigError: it was not built, was built from other sources, or cannot be loaded.
    """
    found = built()
    require(
        bool(found),
        "vec=native needs the native environments, which were not built: there was no C compiler when Paddock was "
        "installed, or its code was copied without them; install gcc and run pip install again, or choose vec=serial",
    )
    try:
        library = ctypes.CDLL(str(found[0]))
    except OSError as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"vec=native: the native environments cannot be loaded ({reason}); {AGAIN}") from error
    number = library.native_abi() if hasattr(library, "native_abi") else "none"
    require(
        number == ABI,
        f"vec=native: {found[0]} was built from other sources (its interface is {number}, this is {ABI}); {AGAIN}",
    )
    for name, (result, *arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def widest() -> str:
    """The widest set of instructions that this processor has, or the one that PADDOCK_LANES names."""
    usable = [name for name in SETS if load().has_set(name.encode())]
    wanted = os.environ.get(CHOICE, "")
    require(
        not wanted or wanted in usable,
        f"{CHOICE}={wanted} is not a set of instructions that this processor has; choose one of {', '.join(usable)}",
    )
    return wanted or usable[0]


def find(name: str) -> int:
    """Where the task of this name is, for the widest instructions."""
    task = load().find_task(widest().encode(), name.encode())
    assert task, name
    return int(task)


def describe(name: str) -> TaskShape:
    """What the task of this name is, for the widest instructions."""
    task = _CTask.from_address(find(name))
    return TaskShape(**{field.name: getattr(task, field.name) for field in fields(TaskShape)})
