"""Bindings to the shared library of native environments; calls release the GIL.

The library is compiled for several instruction sets. Their results are bit-identical: physics has no fused
multiply-add, and policies use it on every instruction set, emulated where the CPU has none.
"""

import ctypes
import functools
import logging
import os
from collections.abc import Mapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

from paddock.envs.errors import ConfigError, require

log = logging.getLogger(__name__)

FOLDER = Path(__file__).parent
ABI = 13  # PADDOCK_ABI of native.h
SETS = ("avx512", "avx2", "baseline")  # instruction sets, widest first
SET_VARIABLE = "PADDOCK_LANES"  # environment variable that selects an instruction set
REBUILD = "run pip install again, or use vec=serial"

_POINTER, _INT, _LONG = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
_FUNCTIONS = {  # result type, then argument types
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
    """Task description: the first members of `struct task` of native.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("lanes", ctypes.c_int),  # environments per group
        ("observations", ctypes.c_int),  # floats per observation; 0 if observations are stored as bytes
        ("actions", ctypes.c_int),  # floats per action
        ("choices", ctypes.c_int),  # number of discrete actions; 0 for continuous actions
        ("row_bytes", ctypes.c_size_t),  # bytes per observation; 0 if stored by SIMD lane
        ("group_bytes", ctypes.c_size_t),
        ("saved_bytes", ctypes.c_size_t),  # saved state of one environment, excluding its generator
    )


def built() -> list[Path]:
    """Return the libraries built for this Python version; `load` uses the first."""
    return find_built(FOLDER, "_lanes")


def find_built(folder: Path, name: str) -> list[Path]:
    """Return the files in a folder that this Python can import as extension module `name`."""
    return [path for path in (folder / f"{name}{suffix}" for suffix in EXTENSION_SUFFIXES) if path.exists()]


@functools.cache
def load() -> ctypes.CDLL:
    """Load the library, once per process.

    Raises:
        ConfigError: the library is not built, was built from different sources, or cannot be loaded.
    """
    found = built()
    require(
        bool(found),
        "vec=native needs the native environments, which were not built (there was no C compiler at install time, or "
        f"the code was copied without compiled files); install gcc and {REBUILD}",
    )
    return open_library(found[0], ABI, _FUNCTIONS, "vec=native: the native environments")


def open_library(
    path: Path, abi: int, functions: Mapping[str, Sequence[Any]], name: str, fix: str = REBUILD
) -> ctypes.CDLL:
    """Load a shared library and declare its functions as (result type, argument types...).

    Raises:
        ConfigError: the library was built from different sources or cannot be loaded.
    """
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise ConfigError(f"{name} cannot be loaded ({' '.join(str(error).split())}); {fix}") from error
    found = library.native_abi() if hasattr(library, "native_abi") else "none"
    require(found == abi, f"{name}: {path} was built from different sources (ABI {found}, expected {abi}); {fix}")
    for function_name, (result, *arguments) in functions.items():
        function = getattr(library, function_name)
        function.restype, function.argtypes = result, arguments
    return library


def available() -> list[str]:
    """Return the instruction sets that both the library and the CPU support, widest first."""
    return [name for name in SETS if load().has_set(name.encode())]


def widest() -> str:
    """Return the instruction set selected by PADDOCK_LANES, or the widest supported one.

    Raises:
        ConfigError: the library cannot be loaded, or PADDOCK_LANES is not supported by the CPU.
    """
    names, selected = available(), os.environ.get(SET_VARIABLE, "")
    require(
        not selected or selected in names,
        f"{SET_VARIABLE}={selected} is not supported by this CPU; choose one of {', '.join(names)}",
    )
    return selected or names[0]


def usable() -> str | None:
    """Return the instruction set selected by `widest`, or None if the library cannot be loaded."""
    try:
        return widest()
    except ConfigError:
        return None


@functools.cache
def warn_missing(problem: str) -> None:
    """Warn, once per process, that policies act in NumPy."""
    log.warning("policies act in NumPy, which is slower and differs in the last bits: %s", problem)


def find_task(name: str) -> int:
    """Return the address of a task compiled for the selected instruction set."""
    task = load().find_task(widest().encode(), name.encode())
    assert task, name
    return int(task)


def describe(name: str) -> TaskShape:
    """Return the description of a task compiled for the selected instruction set."""
    return TaskShape.from_address(find_task(name))
