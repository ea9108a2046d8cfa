"""Where tasks run: in this process, or on Dask workers. Each YAML of conf/compute names one of these.

`Pool` is the standard library's `multiprocessing.Pool` on any of them.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .processes.pool import Pool as Pool


def __getattr__(name: str) -> Any:
    if name != "Pool":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .processes.pool import Pool

    return Pool
