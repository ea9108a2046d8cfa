"""What the C code is told of the sanity suite's tasks, and which arguments of theirs it has."""

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.random import _generator as generators

from paddock.envs.errors import require
from paddock.envs.native.originals import ELSEWHERE

MOST = 2**20  # steps of an episode
DIGITS = 32  # bits of `struct lesson`
PASSWORD, NUMBERS, DISTANCE, ARMS = 5, 8, 3, 10  # sizes of observations and of choices in C


class SanitySettings(ctypes.Structure):
    """`struct sanity_settings` of sanity.h."""

    _fields_ = (
        *((name, ctypes.c_double) for name in ("offset", "leave", "stay", "noise", "end")),
        *((name, ctypes.c_void_p) for name in ("rewards", "normal", "geometric")),
        *((name, ctypes.c_int32) for name in ("arm", "zeros", "delay", "digits", "steps", "terminates")),
        ("password", ctypes.c_uint32),
    )


Given = Mapping[str, Any]
Settings = tuple[SanitySettings, tuple[np.ndarray, ...]]


def bandit(given: Given) -> Settings:
    """Return the settings of Bandit."""
    _check("noise", given["noise"], given["noise"] == 0, "0, and with noise paddock/Bandit-v0")
    _check("arms", given["arms"], given["arms"] == ARMS, str(ARMS))
    return SanitySettings(arm=given["arm"], offset=given["offset"]), ()


def noisy_bandit(given: Given) -> Settings:
    """Return the settings of Bandit with noise, which NumPy's own function draws."""
    _check("arms", given["arms"], given["arms"] == ARMS, str(ARMS))
    settings = {key: given[key] for key in ("arm", "offset", "noise")}
    return SanitySettings(normal=find_distribution("random_standard_normal"), **settings), ()


def forget(given: Given) -> Settings:
    """Return the settings of Forget, whose lengths NumPy's own function draws."""
    _check_length("longest", given["longest"])
    return SanitySettings(end=given["end"], steps=given["longest"], geometric=find_distribution("random_geometric")), ()


def password(given: Given) -> Settings:
    """Return the settings of Password."""
    bits = given["password"]
    _check("password", bits, len(bits) == PASSWORD, f"{PASSWORD} bits")
    return SanitySettings(password=sum(int(bit) << k for k, bit in enumerate(bits))), ()


def squared(given: Given) -> Settings:
    """Return the settings of Squared."""
    _check("distance", given["distance"], given["distance"] == DISTANCE, str(DISTANCE))
    return SanitySettings(), ()


def blend(given: Given) -> Settings:
    """Return the settings of Blend."""
    _check_length("moves", given["moves"])
    return SanitySettings(steps=given["moves"], zeros=given["zeros"]), ()


def stochastic(given: Given) -> Settings:
    """Return the settings of Stochastic: rewards are Python's, whose squares are no products to the last bit."""
    share, horizon = given["share"], given["horizon"]
    _check("horizon", horizon, horizon <= 1000, "1000 at most")
    rewards = np.zeros((horizon + 1, horizon + 1, 2))
    for moves in range(1, horizon + 1):
        for zeros in range(moves + 1):
            towards = 0 if zeros / moves < share else 1  # the move that is paid for
            rewards[moves, zeros, towards] = 1 - (share - zeros / moves) ** 2
    return SanitySettings(steps=horizon, rewards=rewards.ctypes.data), (rewards,)


def delay(given: Given) -> Settings:
    """Return the settings of Delay."""
    _check("numbers", given["numbers"], given["numbers"] == NUMBERS, str(NUMBERS))
    _check_length("delay", given["delay"])
    return SanitySettings(delay=given["delay"]), ()


def cutoff(given: Given) -> Settings:
    """Return the settings of Cutoff."""
    _check_length("steps", given["steps"])
    return SanitySettings(**{key: given[key] for key in ("leave", "stay", "steps", "terminates")}), ()


def cutoff_limit(given: Given) -> int | None:
    """Return where Cutoff truncates an episode; None: nowhere."""
    return None if given["terminates"] else int(given["steps"])


def digits(given: Given) -> Settings:
    """Return the settings of Copy, and of PufferLib's Memory."""
    _check("digits", given["digits"], given["digits"] <= DIGITS, f"{DIGITS} at most")
    _check_length("delay", given["delay"])
    return SanitySettings(digits=given["digits"], delay=given["delay"]), ()


def recall(given: Given) -> Settings:
    """Return the settings of Recall."""
    _check_length("delay", given["delay"])
    return SanitySettings(delay=given["delay"]), ()


def find_distribution(name: str) -> int | None:
    """Return where a distribution of NumPy's is, which it shows to C as numpy/random/distributions.h has it."""
    # The functions are public, the name of the library that they are loaded from is NumPy's own.
    module = ctypes.CDLL(generators.__file__)
    require(
        hasattr(module, name), f"vec=native: NumPy {np.__version__} does not show its {name} to C code; {ELSEWHERE}"
    )
    return ctypes.cast(getattr(module, name), ctypes.c_void_p).value


def _check_length(key: str, value: int) -> None:
    _check(key, value, value <= MOST, f"{MOST} at most")


def _check(key: str, value: Any, fits: bool, allowed: str) -> None:
    require(fits, f"env.kwargs.{key}={value}: the native version has {allowed}; {ELSEWHERE}")
