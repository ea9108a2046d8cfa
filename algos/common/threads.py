"""Arithmetic by one thread, where numbers must be the same everywhere."""

import contextlib
import sys
import threading
from collections.abc import Iterator

from threadpoolctl import ThreadpoolController, threadpool_limits

_lock = threading.Lock()
_inside = 0  # threads that asked for one thread and have not left
_limits: dict[tuple[str, ...], threadpool_limits] = {}  # of BLAS, the first for each set of libraries since then


@contextlib.contextmanager
def one_thread(libraries: ThreadpoolController | None = None) -> Iterator[None]:
    """Have products computed by one thread: their last bits may depend on how many share them.

    BLAS has one setting for the whole process, so where several threads ask, the last to leave restores it.

    Args:
        libraries: those loaded by now, which take half a millisecond to find; None: find them.
    """
    global _inside
    libraries = libraries or ThreadpoolController()
    # OpenMP's setting is the calling thread's, and so is that of the MKL in torch, which only torch can reach.
    with _torch_in_one(), libraries.limit(limits=1, user_api="openmp"):
        with _lock:
            files = tuple(library.filepath for library in libraries.lib_controllers)
            # Where threads take turns there is always one inside: only what is restored at the end is kept.
            _limits.setdefault(files, libraries.limit(limits=1, user_api="blas"))
            _inside += 1
        try:
            yield
        finally:
            with _lock:
                _inside -= 1
                while not _inside and _limits:
                    _limits.popitem()[1].restore_original_limits()


def _torch_in_one() -> contextlib.AbstractContextManager[None]:
    """The same of torch, where it was imported: it takes seconds, and many workers never need it."""
    if "torch" not in sys.modules:
        return contextlib.nullcontext()
    from algos.networks import actor_critic

    return actor_critic.one_thread()
