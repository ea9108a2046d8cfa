"""Single-threaded arithmetic, for results that do not depend on the number of threads."""

import contextlib
import ctypes
import functools
import itertools
import sys
import threading
from collections.abc import Iterator

from threadpoolctl import ThreadpoolController, threadpool_limits

_lock = threading.Lock()
_inside = 0  # number of threads within `one_thread`
_limits: dict[tuple[str, ...], threadpool_limits] = {}  # of BLAS, the first for each set of libraries
_calls = itertools.count()


class _LoadedLibrary(ctypes.Structure):
    """Structure dl_phdr_info of dl_iterate_phdr(3); `adds` is the number of libraries loaded so far."""

    _fields_ = [
        ("address", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("headers", ctypes.c_void_p),
        ("num_headers", ctypes.c_uint16),
        ("adds", ctypes.c_ulonglong),
        ("subs", ctypes.c_ulonglong),
    ]


_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_LoadedLibrary), ctypes.c_size_t, ctypes.c_void_p)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Limit arithmetic to one thread, since the last bits of products may depend on the number of threads.

    BLAS has one setting for the whole process, so the last thread to leave the block restores it.
    """
    global _inside
    libraries = _find(_count_loaded())
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
def _find(loaded: int) -> ThreadpoolController:
    """Find the arithmetic libraries among those loaded; cached, since it takes milliseconds."""
    return ThreadpoolController()


def _count_loaded() -> int:
    """Return the number of libraries loaded so far; if the system does not count them, a new number on each call."""
    found: list[int] = []

    def read(library: "ctypes._Pointer[_LoadedLibrary]", size: int, _: object) -> int:
        found.append(library.contents.adds)
        return 1  # stop: the number is the same for all libraries

    try:
        ctypes.CDLL(None).dl_iterate_phdr(_Callback(read), None)
    except AttributeError:  # macOS has no such function
        return next(_calls)
    return found[0]
