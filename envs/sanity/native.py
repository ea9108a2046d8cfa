"""Settings of the sanity suite's tasks in C, and which arguments of theirs have a native version."""

import ctypes
from typing import Any

import numpy as np
from numpy.random import _generator as generators

from paddock.envs.errors import require
from paddock.envs.registration import ELSEWHERE, Given, Settings

# Sizes of observations and of choices in C; and the most that other arguments may be there.
FIXED = {"arms": 10, "numbers": 8, "distance": 3}
MOST = {"digits": 32, "longest": 2**20, "moves": 2**20, "delay": 2**20, "steps": 2**20}
STEPS = ("longest", "moves")  # arguments that are `steps` in C
PASSWORD = 5  # bits


class SanitySettings(ctypes.Structure):
    """`struct sanity_settings` of sanity_tasks.c."""

    _fields_ = (
        *((name, ctypes.c_double) for name in ("opening", "leave", "stay", "noise", "end")),
        *((name, ctypes.c_void_p) for name in ("normal", "geometric")),
        *((name, ctypes.c_int32) for name in ("arm", "zeros", "delay", "digits", "steps", "terminates")),
        ("password", ctypes.c_uint32),
    )


def settings(given: Given, **more: Any) -> Settings:
    """Return a task's settings: its arguments by their names in C, and more.

    Raises:
        ConfigError: an argument is beyond what the C code has.
    """
    for key, value in given.items():
        if key in FIXED:
            _check(key, value, value == FIXED[key], str(FIXED[key]))
        if key in MOST:
            _check(key, value, value <= MOST[key], f"{MOST[key]} at most")
    known = {field[0] for field in SanitySettings._fields_}
    named = {"steps" if key in STEPS else key: value for key, value in given.items()} | more
    return SanitySettings(**{key: value for key, value in named.items() if key in known}), ()


def bandit(given: Given) -> Settings:
    """Return the settings of Bandit, whose noise NumPy's own function draws."""
    return settings(given, normal=find_distribution("random_standard_normal"))


def forget(given: Given) -> Settings:
    """Return the settings of Forget, whose lengths NumPy's own function draws."""
    return settings(given, geometric=find_distribution("random_geometric"))


def password(given: Given) -> Settings:
    """Return the settings of Password."""
    bits = given["password"]
    _check("password", bits, len(bits) == PASSWORD, f"{PASSWORD} bits")
    return settings({}, password=sum(int(bit) << k for k, bit in enumerate(bits)))


def find_distribution(name: str) -> int | None:
    """Return where a distribution of NumPy's is, which it shows to C as numpy/random/distributions.h has it."""
    # The functions are public, the name of the library that they are loaded from is NumPy's own.
    module = ctypes.CDLL(generators.__file__)
    require(
        hasattr(module, name), f"vec=native: NumPy {np.__version__} does not show its {name} to C code; {ELSEWHERE}"
    )
    return ctypes.cast(getattr(module, name), ctypes.c_void_p).value


def _check(key: str, value: Any, fits: bool, allowed: str) -> None:
    require(fits, f"env.kwargs.{key}={value}: the native version has {allowed}; {ELSEWHERE}")
