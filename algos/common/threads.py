"""Arithmetic by one thread, where numbers must be the same everywhere."""

import contextlib
import threading
from collections.abc import Iterator

from threadpoolctl import ThreadpoolController, threadpool_limits

_lock = threading.Lock()
_limits: list[threadpool_limits] = []  # of BLAS, for each thread that asked for one thread and has not left
_leaving = 0  # those among them that have left


@contextlib.contextmanager
def one_thread(libraries: ThreadpoolController | None = None) -> Iterator[None]:
    """Have products computed by one thread: their last bits may depend on how many share them.

    BLAS has one setting for the whole process, so where several threads ask, the last to leave restores it.

    Args:
        libraries: those loaded by now, which take half a millisecond to find; None: find them.
    """
    global _leaving
    libraries = libraries or ThreadpoolController()
    with libraries.limit(limits=1, user_api="openmp"):  # OpenMP's setting is the calling thread's
        with _lock:
            _limits.append(libraries.limit(limits=1, user_api="blas"))
        try:
            yield
        finally:
            with _lock:
                _leaving += 1
                if _leaving == len(_limits):
                    _leaving = 0
                    while _limits:
                        _limits.pop().restore_original_limits()
