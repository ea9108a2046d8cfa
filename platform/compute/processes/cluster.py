"""Clusters on which `Process`, `Queue` and the other names of `paddock.compute` work while they are in use."""

import contextlib
import logging
import multiprocessing.process
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from paddock.envs.errors import require

from . import managers, process, queues, synchronize
from .hosting import LOCALHOST
from .pool import Pool, open_backend

log = logging.getLogger(__name__)

END_S = 10.0  # after which processes that ignore SIGTERM are killed
SOURCES = (process, queues, synchronize, managers, multiprocessing.process)


class Cluster:
    """Interface of `multiprocessing` on the workers of an option of conf/compute, in a `with` statement.

    In the statement, the functions and classes of `paddock.compute`, which are also attributes of the cluster, use it.
    At its end, daemonic processes are terminated and others awaited; after an exception, all are terminated.
    """

    def __init__(self, compute: str = "local", **settings: Any) -> None:
        """Describe the cluster.

        Args:
            compute: an option of conf/compute: local, dask or slurm.
            settings: keys of that option, such as address="tcp://...".

        Raises:
            ConfigError: the option starts no processes.
        """
        require(compute != "serial", "compute=serial has no processes; use local, dask or slurm")
        self._compute, self._settings = compute, settings
        self._pool: Any = None
        self._undo = contextlib.ExitStack()

    def __enter__(self) -> "Cluster":
        """Open the cluster.

        Raises:
            ConfigError: an option, key or value is invalid.
            PoolError: the workers cannot be reached.
        """
        with contextlib.ExitStack() as undo:
            if self._compute != "local":
                from ..dask.launcher import Launcher  # slow to import

                self._pool = open_backend(self._compute, None, self._settings)
                undo.callback(self._pool.close)
                address = self._pool.local_address
                if address != LOCALHOST and (self._compute == "slurm" or self._settings.get("tls")):
                    log.warning(
                        "queues, pipes and managers of this cluster are authenticated, but not encrypted by TLS"
                    )
                undo.enter_context(process.using(Launcher(self._pool), address))
            undo.push(partial(_end_processes, process.active_children()))
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        """End the processes, and close the cluster."""
        self._undo.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        """Return a class or function of `paddock.compute`."""
        for module in SOURCES if name[:1].isalpha() else ():
            if hasattr(module, name):
                return getattr(module, name)
        raise AttributeError(f"paddock.compute has no {name}")

    def Pool(  # noqa: N802
        self,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: int | None = None,
    ) -> Pool:
        """Open a `Pool` on the workers, whose tasks may use queues, locks and managers of this cluster.

        `processes` applies to compute="local"; a cluster's workers are all used.
        """
        key = bytes(multiprocessing.process.current_process().authkey)
        settings = self._settings if self._pool is None else {"compute": self._pool}
        return Pool(processes, _join_cluster, (key, initializer, tuple(initargs)), maxtasksperchild, **settings)


cluster = Cluster  # as a function, like those of `multiprocessing`


def _end_processes(before: list[Any], error: type[BaseException] | None, *_: object) -> None:
    """Terminate or await the processes that were started in the `with` statement."""
    started = [child for child in process.active_children() if child not in before]
    ending = [one for one in started if error or one.daemon or isinstance(one, managers.ServerProcess)]
    for child in ending:
        child.terminate()
    for child in started:
        child.join(END_S if child in ending else None)
        if child.is_alive():
            child.kill()
            child.join()


def _join_cluster(key: bytes, initializer: Callable[..., object] | None, arguments: tuple[Any, ...]) -> None:
    """Let a worker of a pool use objects of the cluster's processes, before the pool's own initializer."""
    multiprocessing.process.current_process().authkey = key
    if initializer is not None:
        initializer(*arguments)
