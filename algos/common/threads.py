"""Single-threaded arithmetic, for results that do not depend on the number of threads."""

import contextlib
import functools
import sys
import threading
from collections.abc import Iterator

from threadpoolctl import ThreadpoolController, threadpool_limits

_lock = threading.Lock()
_inside = 0  # number of threads within `one_thread`
_limits: dict[tuple[str, ...], threadpool_limits] = {}  # of BLAS, the first for each set of libraries


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Limit arithmetic to one thread, since the last bits of products may depend on the number of threads.

    BLAS has one setting for the whole process, so the last thread to leave the block restores it.
    """
    global _inside
    libraries = _find(len(sys.modules))
    # The settings of OpenMP and of torch's MKL are per thread; only torch can set the latter.
    with _torch_in_one(), libraries.limit(limits=1, user_api="openmp"):
        with _lock:
            files = tuple(library.filepath for library in libraries.lib_controllers)
            # Threads may overlap indefinitely, so keep only the first limit of each set of libraries.
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
    """Limit torch to one thread, if it has been imported; the import takes seconds, and many workers do without."""
    if "torch" not in sys.modules:
        return contextlib.nullcontext()
    from paddock.algos.networks import actor_critic

    return actor_critic.one_thread()


@functools.lru_cache(maxsize=1)
def _find(modules: int) -> ThreadpoolController:
    """Find the arithmetic libraries that so many imported modules have loaded; cached, since it takes milliseconds."""
    return ThreadpoolController()
