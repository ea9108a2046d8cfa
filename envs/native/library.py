"""The shared library of native environments: found beside this file, and called without the interpreter lock.

It holds the same code for several sets of instructions, which all give the same bits: it is compiled without fused
operations, and tests compare the sets.
"""

import ctypes
import functools
import os
from collections.abc import Mapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

from paddock.envs.errors import ConfigError, require

FOLDER = Path(__file__).parent
ABI = 12  # PADDOCK_ABI of native.h
SETS = ("avx512", "avx2", "baseline")  # of instructions, the widest first
CHOICE = "PADDOCK_LANES"  # the environment variable that picks one of them
AGAIN = "run pip install again, or choose vec=serial"

_POINTER, _INT, _LONG = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
_FUNCTIONS = {  # result, then arguments
    "has_set": (_INT, ctypes.c_char_p),
    "find_task": (_POINTER, ctypes.c_char_p, ctypes.c_char_p),
    "run_networks": (None, ctypes.c_char_p, _POINTER),
    "run_forward": (None, ctypes.c_char_p, _POINTER),
    "expand_rows": (None, _POINTER, _POINTER, _LONG, _POINTER, _POINTER, _POINTER),
    "apply_function": (None, ctypes.c_char_p, _INT, _POINTER, _POINTER, _LONG),
    "carry_back": (None, _POINTER, _POINTER, _POINTER, _LONG, _LONG),
    "discount": (None, _POINTER, _POINTER, ctypes.c_double, _POINTER, _POINTER, _LONG, _LONG),
    "moments": (None, _POINTER, _INT, _LONG, _LONG, _POINTER, _POINTER),
    "vector_open": (_POINTER, _POINTER, _INT, _POINTER, _INT, _INT, _INT),
    "vector_close": (None, _POINTER),
    "vector_start": (_INT, _POINTER, _POINTER, _POINTER, _POINTER),
    "vector_begin": (_INT, _POINTER, _LONG, _POINTER, _POINTER),
    "vector_step": (_LONG, _POINTER, _POINTER, _POINTER),
    "vector_play": (_LONG, _POINTER, _POINTER, _POINTER),
    "vector_row_bytes": (ctypes.c_size_t, _POINTER),
    "vector_saved_bytes": (ctypes.c_size_t, _POINTER),
    "vector_save": (None, _POINTER, _POINTER),
    "vector_load": (_INT, _POINTER, _POINTER),
    "seed_generator": (None, _POINTER, ctypes.c_uint64),
    "draw": (ctypes.c_double, _POINTER),
    "draw_uniform": (ctypes.c_double, _POINTER, ctypes.c_double, ctypes.c_double),
    "draw_integer": (_LONG, _POINTER, _LONG, _LONG),
}


class TaskShape(ctypes.Structure):
    """What the C code says of a task: the first members of `struct task` of native.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("lanes", ctypes.c_int),  # environments in a group
        ("observations", ctypes.c_int),  # numbers in an observation; 0 where it is a row of bytes
        ("actions", ctypes.c_int),  # numbers in an action
        ("choices", ctypes.c_int),  # of a discrete action; 0: actions are numbers
        ("row_bytes", ctypes.c_size_t),  # of an observation; 0 where it lies in lanes
        ("group_bytes", ctypes.c_size_t),
        ("saved_bytes", ctypes.c_size_t),  # of one environment, without its generator
    )


def built() -> list[Path]:
    """Where libraries for this Python are; `load` takes the first."""
    return find_built(FOLDER, "_lanes")


def find_built(folder: Path, name: str) -> list[Path]:
    """The files in a folder that this Python takes for the extension of a name."""
    return [path for path in (folder / f"{name}{suffix}" for suffix in EXTENSION_SUFFIXES) if path.exists()]


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
    return open_library(found[0], ABI, _FUNCTIONS, "vec=native: the native environments")


def open_library(
    path: Path, abi: int, functions: Mapping[str, Sequence[Any]], what: str, again: str = AGAIN
) -> ctypes.CDLL:
    """Load a library of ours, and say what its functions take and give.

    Args:
        functions: of each its result, then its arguments.
        what, again: what it is and what mends it, for errors.

    Raises:
        ConfigError: it was built from other sources, or cannot be loaded.
    """
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise ConfigError(f"{what} cannot be loaded ({' '.join(str(error).split())}); {again}") from error
    number = library.native_abi() if hasattr(library, "native_abi") else "none"
    require(
        number == abi,
        f"{what}: {path} was built from other sources (its interface is {number}, this is {abi}); {again}",
    )
    for name, (result, *arguments) in functions.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def available() -> list[str]:
    """The sets of instructions that the library and this processor have, the widest first."""
    return [name for name in SETS if load().has_set(name.encode())]


def widest() -> str:
    """Return the widest set of instructions that this processor has, or the one that PADDOCK_LANES names.

    Raises:
        ConfigError: there is no library, or the processor has not got what PADDOCK_LANES names.
    """
    names, wanted = available(), os.environ.get(CHOICE, "")
    require(
        not wanted or wanted in names,
        f"{CHOICE}={wanted} is not a set of instructions that this processor has; choose one of {', '.join(names)}",
    )
    return wanted or names[0]


def usable() -> str | None:
    """Return the instruction set that `widest` chooses; None without a library."""
    try:
        return widest()
    except ConfigError:
        return None


def find(name: str) -> int:
    """Where the task of this name is, for the widest instructions."""
    task = load().find_task(widest().encode(), name.encode())
    assert task, name
    return int(task)


def describe(name: str) -> TaskShape:
    """What the task of this name is, for the widest instructions."""
    return TaskShape.from_address(find(name))
