"""Single-precision exp, log and tanh with the same bits on every CPU, in native code or operation for operation in NumPy.

NumPy's own functions differ in their last bits between CPU models.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.envs.native import library

Floats = NDArray[np.float32]


def _constant(digits: str) -> np.float32:
    return np.float32(float.fromhex(digits))


_ONE, _TWO, _HALF = np.float32(1), np.float32(2), np.float32(0.5)
_ROUNDING = np.float32(12582912)  # 1.5 * 2^23: adding it rounds to the nearest integer
_TWO_OVER_LN2, _ONE_OVER_LN2 = _constant("0x1.715476p1"), _constant("0x1.715476p0")
_LN2_HIGH, _LN2_LOW = _constant("0x1.62e4p-1"), _constant("0x1.7f7d1cp-20")
_LOG_2 = np.float32(0.69314718)
_EXP = [np.float32(1 / factorial) for factorial in (1, 2, 6, 24, 120, 720, 5040)]
_LOG = [  # Cephes' logf
    *(np.float32(c) for c in (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1)),
    *(np.float32(c) for c in (-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1)),
]


def fast_tanh(x: Floats) -> Floats:
    """Compute tanh within 3 ULP; NaN stays NaN."""
    return _apply(0, _numpy_tanh, x)


def fast_exp(x: Floats) -> Floats:
    """Compute exp within 2 ULP where the result is normal: 0 below -104, infinity above 88.8, NaN for NaN."""
    return _apply(1, _numpy_exp, x)


def fast_log(x: Floats) -> Floats:
    """Compute the natural logarithm within 2 ULP: -inf for 0, NaN for negative numbers and NaN."""
    return _apply(2, _numpy_log, x)


def _apply(number: int, reference: Callable[[Floats], Floats], x: Floats) -> Floats:
    """Apply a function by its number in networks.h, or its NumPy reference where native code was not built."""
    name = library.usable()
    if name is None:
        return reference(np.asarray(x, np.float32))
    x = np.asarray(x, np.float32, order="C")
    out = np.empty(x.shape, np.float32)
    library.load().apply_function(name.encode(), number, x.ctypes.data, out.ctypes.data, x.size)
    return out if x.ndim else out[()]  # a scalar for a scalar, as in NumPy


def _numpy_tanh(x: Floats) -> Floats:
    with np.errstate(over="ignore", invalid="ignore"):
        size = np.minimum(np.abs(x), np.float32(10))
        shifted = size * -_TWO_OVER_LN2 + _ROUNDING
        n = shifted - _ROUNDING
        r = (size * -_TWO - n * _LN2_HIGH) - n * _LN2_LOW
        power = ((shifted.view(np.uint32) << np.uint32(23)) + np.uint32(0x3F800000)).view(np.float32)
        e = power * _exp_less_one(r) + (power - _ONE)  # exp(-2 size) - 1
        return np.copysign(e / (e + _TWO), x)


def activate(x: Floats, activation: str) -> Floats:
    """Apply "relu", which keeps NaN, or "tanh"."""
    return np.where(x < 0, np.float32(0), x) if activation == "relu" else fast_tanh(x)


def log_tanh_derivative(x: Floats) -> Floats:
    """Return log(1 - tanh^2 x), which does not saturate."""
    twice = x * -_TWO
    softplus = np.where(twice > 0, twice, np.float32(0)) + fast_log(_ONE + fast_exp(-np.abs(twice)))
    return ((_LOG_2 - x) - softplus) * _TWO


def _numpy_exp(x: Floats) -> Floats:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        x = np.minimum(np.maximum(x, np.float32(-104)), np.float32(89))
        shifted = x * _ONE_OVER_LN2 + _ROUNDING
        n = shifted - _ROUNDING
        r = (x - n * _LN2_HIGH) - n * _LN2_LOW
        whole = shifted.view(np.int32) - np.int32(0x4B400000)
        half = whole >> np.int32(1)  # two factors, as one would leave the range of powers
        one, other = (_power_of_two(part) for part in (half, whole - half))
        return (_ONE + _exp_less_one(r)) * one * other


def _numpy_log(x: Floats) -> Floats:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        small, plain = x < _constant("0x1p-126"), (x > 0) & (x < np.float32(np.inf))
        scaled = np.where(small, x * _constant("0x1p23"), x)
        power = (scaled.view(np.int32) - np.int32(0x3F3504F3)) >> np.int32(23)  # sqrt(1/2) <= m < sqrt(2)
        f = (scaled.view(np.int32) - (power << np.int32(23))).view(np.float32) - _ONE
        e = (power - np.where(small, np.int32(23), np.int32(0))).astype(np.float32)
        z = f * f
        y = _LOG[0] * f + _LOG[1]
        for coefficient in _LOG[2:]:
            y = y * f + coefficient
        y = (y * f) * z + e * np.float32(-2.12194440e-4)
        y = (f + (y - _HALF * z)) + e * np.float32(0.693359375)
        other = np.where(x == 0, np.float32(-np.inf), np.where(x > 0, x, np.float32(np.nan)))
        return np.where(plain, y, other)


def _exp_less_one(r: Floats) -> Floats:
    """exp(r) - 1 for |r| <= ln(2) / 2."""
    rest: Any = _EXP[5] + r * _EXP[6]
    rest = _EXP[3] + r * (_EXP[4] + r * rest)
    rest = _EXP[1] + r * (_EXP[2] + r * rest)
    return r + (r * r) * rest


def _power_of_two(exponent: NDArray[np.int32]) -> Floats:
    return ((exponent + np.int32(127)) << np.int32(23)).view(np.float32)
