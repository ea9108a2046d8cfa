"""Single-precision exp, log and tanh with the same bits on every CPU, in native code.

NumPy's functions, whose last bits depend on the CPU, replace them where it was not built.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from paddock.envs.native import library

Floats = NDArray[np.float32]


_ONE, _TWO, _LOG_2 = np.float32(1), np.float32(2), np.float32(0.69314718)


def fast_tanh(x: Floats) -> Floats:
    """Compute tanh within 3 ULP; NaN stays NaN."""
    return _apply(0, np.tanh, x)


def fast_exp(x: Floats) -> Floats:
    """Compute exp within 2 ULP where the result is normal: 0 below -104, infinity above 88.8, NaN for NaN."""
    return _apply(1, np.exp, x)


def fast_log(x: Floats) -> Floats:
    """Compute the natural logarithm within 2 ULP: -inf for 0, NaN for negative numbers and NaN."""
    return _apply(2, np.log, x)


def _apply(number: int, reference: Callable[[Floats], Floats], x: Floats) -> Floats:
    """Apply a function by its number in networks.h, or NumPy's where native code was not built."""
    name = library.usable()
    if name is None:
        with np.errstate(all="ignore"):
            return reference(np.asarray(x, np.float32))
    x = np.asarray(x, np.float32, order="C")
    out = np.empty(x.shape, np.float32)
    library.load().apply_function(name.encode(), number, x.ctypes.data, out.ctypes.data, x.size)
    return out if x.ndim else out[()]  # a scalar for a scalar, as in NumPy


def activate(x: Floats, activation: str) -> Floats:
    """Apply "relu", which keeps NaN, or "tanh"."""
    return np.where(x < 0, np.float32(0), x) if activation == "relu" else fast_tanh(x)


def log_tanh_derivative(x: Floats) -> Floats:
    """Return log(1 - tanh^2 x), which does not saturate."""
    twice = x * -_TWO
    softplus = np.where(twice > 0, twice, np.float32(0)) + fast_log(_ONE + fast_exp(-np.abs(twice)))
    return ((_LOG_2 - x) - softplus) * _TWO
