"""Settings of the sanity tasks in C, and checks that the C code supports their arguments."""

import ctypes
from typing import Any

import numpy as np
from numpy.random import _generator as generators

from paddock.envs.errors import require
from paddock.envs.registration import ELSEWHERE, Given, Settings

# Fixed sizes of observations and actions in C; and maxima of other arguments.
FIXED = {"arms": 10, "numbers": 8, "distance": 3}
MAXIMA = {"digits": 32, "longest": 2**20, "moves": 2**20, "delay": 2**20, "steps": 2**20}
STEPS = ("longest", "moves")  # arguments named `steps` in C
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
    """Return a task's settings in C: its arguments and `more`.

    Raises:
        ConfigError: the C code does not support an argument.
    """
    for key, value in given.items():
        if key in FIXED:
            _check(key, value, value == FIXED[key], str(FIXED[key]))
        if key in MAXIMA:
            _check(key, value, value <= MAXIMA[key], f"{MAXIMA[key]} at most")
    known = {field[0] for field in SanitySettings._fields_}
    named = {"steps" if key in STEPS else key: value for key, value in given.items()} | more
    return SanitySettings(**{key: value for key, value in named.items() if key in known}), ()


def bandit(given: Given) -> Settings:
    """Return the settings of Bandit, with NumPy's function for the noise."""
    return settings(given, normal=find_distribution("random_standard_normal"))


def forget(given: Given) -> Settings:
    """Return the settings of Forget, with NumPy's function for the lengths."""
    return settings(given, geometric=find_distribution("random_geometric"))


def password(given: Given) -> Settings:
    """Return the settings of Password."""
    bits = given["password"]
    _check("password", bits, len(bits) == PASSWORD, f"{PASSWORD} bits")
    return settings({}, password=sum(int(bit) << k for k, bit in enumerate(bits)))


def find_distribution(name: str) -> int | None:
    """Return the address of a function of numpy/random/distributions.h."""
    # The functions are public; the name of the library that holds them is private.
    module = ctypes.CDLL(generators.__file__)
    require(hasattr(module, name), f"vec=native: NumPy {np.__version__} does not export {name} to C; {ELSEWHERE}")
    return ctypes.cast(getattr(module, name), ctypes.c_void_p).value


def _check(key: str, value: Any, fits: bool, allowed: str) -> None:
    require(fits, f"env.kwargs.{key}={value}: the native version has {allowed}; {ELSEWHERE}")
