"""Descriptions of dense networks for C; mirrors `src/dense.h`."""

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.algos.networks.dense.shape import DenseShape, Floats
from paddock.envs.machine import usable_cores

_POINTER = ctypes.c_void_p


class _Network(ctypes.Structure):
    _fields_ = (
        *((name, _POINTER) for name in ("sizes", "choices", "leaf")),
        ("layers", ctypes.c_int32 * 3),
        *((name, ctypes.c_int32) for name in ("relu", "masked", "components", "log_stds")),
    )


def describe_network(shape: DenseShape) -> tuple[ctypes.Structure, list[NDArray[np.int32]]]:
    """Return the C description of a network, and the arrays it points to."""
    chains = [chain if len(chain) > 1 else () for chain in shape.chains]
    arrays = [np.array(each, np.int32) for each in (sum(chains, ()), shape.choices, shape.leaf)]
    network = _Network(
        *(array.ctypes.data for array in arrays),
        (ctypes.c_int32 * 3)(*(max(len(chain) - 1, 0) for chain in chains)),
        shape.activation == "relu",
        shape.masked,
        len(shape.choices),
        shape.log_stds,
    )
    return network, arrays


def limit_threads(threads: int) -> int:
    """Limit the number of threads to usable cores, since threads wait for each other."""
    return min(threads, usable_cores())


def floats(array: NDArray[Any], *shape: int) -> Floats:
    """Return a contiguous float32 array of the given shape, copied only if necessary."""
    contiguous = np.ascontiguousarray(array, np.float32)
    assert not shape or contiguous.shape == shape, (contiguous.shape, shape)
    return contiguous
