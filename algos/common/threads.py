"""Arithmetic by one thread, where numbers must be the same everywhere."""

import contextlib
import ctypes
import functools
import itertools
import sys
import threading
from collections.abc import Iterator

from threadpoolctl import ThreadpoolController, threadpool_limits

_lock = threading.Lock()
_inside = 0  # threads that asked for one thread and have not left
_limits: dict[tuple[str, ...], threadpool_limits] = {}  # of BLAS, the first for each set of libraries since then
_calls = itertools.count()


class _LoadedLibrary(ctypes.Structure):
    """What dl_iterate_phdr(3) tells of a library, and with each how many were loaded so far."""

    _fields_ = [
        ("address", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("headers", ctypes.c_void_p),
        ("num_headers", ctypes.c_uint16),
        ("adds", ctypes.c_ulonglong),
        ("subs", ctypes.c_ulonglong),
    ]


_Told = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_LoadedLibrary), ctypes.c_size_t, ctypes.c_void_p)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Have products computed by one thread: their last bits may depend on how many share them.

    BLAS has one setting for the whole process, so where several threads ask, the last to leave restores it.
    """
    global _inside
    libraries = _find(_count_loaded())
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
    from paddock.algos.networks import actor_critic

    return actor_critic.one_thread()


@functools.lru_cache(maxsize=1)
def _find(loaded: int) -> ThreadpoolController:
    """Those of arithmetic among the libraries that are loaded, which take milliseconds to find."""
    return ThreadpoolController()


def _count_loaded() -> int:
    """How many libraries this process has loaded so far; where nobody counts them, another number each time."""
    found: list[int] = []

    def tell(library: "ctypes._Pointer[_LoadedLibrary]", size: int, _: object) -> int:
        found.append(library.contents.adds)
        return 1  # the others would tell the same

    try:
        ctypes.CDLL(None).dl_iterate_phdr(_Told(tell), None)
    except AttributeError:  # macOS has no such function
        return next(_calls)
    return found[0]
