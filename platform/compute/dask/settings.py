"""Dask's own settings, which are the whole process's, while pools are open."""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import dask

CONNECT_S = 5.0  # a scheduler that has not answered by then is out of reach

LEAN = {
    "distributed.comm.timeouts.connect": CONNECT_S,
    # Watching itself costs Dask a tenth of a core on two idle workers, and it shares the tasks' cores.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.worker.preload": ["paddock.algos.pool.worker"],
    "distributed.nanny.preload": ["paddock.algos.pool.worker"],
    # Dask closes a nanny whose worker was lost so long ago and is not there now, though it may be starting a third.
    # The fleet sees to those that ended.
    "distributed.deploy.lost-worker-timeout": "1d",
    # And it ends workers that it has not heard of for five minutes: all of them, where this process was stopped for so
    # long. The fleet replaces what is stuck.
    "distributed.scheduler.worker-ttl": "1d",
}

_asked: list[Mapping[str, Any]] = []  # by each pool that is open
_before: dict[str, Any] = {}  # what held before the first of them
_changing = threading.Lock()


@contextlib.contextmanager
def held(settings: Mapping[str, Any]) -> Iterator[None]:
    """Have settings hold while a pool is open, and the last of several, in whatever order they open and close.

    Dask's own context manager puts back what it found, though that was another pool's and is no more, or still is.
    """
    mine = dict(settings)
    with _changing:
        for name in mine.keys() - _before.keys():
            _before[name] = dask.config.get(name, None)
        _asked.append(mine)
        dask.config.set(mine)
    try:
        yield
    finally:
        with _changing:
            _asked[:] = [other for other in _asked if other is not mine]
            left = {name: value for other in _asked for name, value in other.items()}
            dask.config.set({name: left[name] if name in left else _before.pop(name) for name in mine})
