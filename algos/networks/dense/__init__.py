"""Dense policies and values that are evaluated and learn without torch: in C, or in NumPy to the same bits."""

import functools
import logging

from algos.networks.dense.compiled import CompiledDense
from algos.networks.dense.plain import PlainDense
from algos.networks.dense.shape import DenseBackend, DenseShape
from envs.errors import ConfigError

log = logging.getLogger(__name__)


def make_backend(shape: DenseShape, threads: int) -> DenseBackend:
    """Return what computes networks of a shape: C where it was built, else NumPy."""
    try:
        return CompiledDense(shape, threads)
    except ConfigError as error:
        _tell(str(error))
        return PlainDense(shape)


@functools.cache
def _tell(why: str) -> None:
    """Say it once a process."""
    log.warning("dense networks learn in NumPy, to the same bits and much more slowly: %s", why)
