"""Processes on Dask workers: each is a task that leaves its worker's thread pool and watches a child.

A process is started on the worker with the fewest processes per thread, so it does not share a worker while there are
enough; more processes share the workers, as they share processors with `multiprocessing`.
"""

import contextlib
import signal
import threading
import uuid
from multiprocessing import process
from multiprocessing.connection import Connection, wait
from typing import Any
from urllib.parse import urlsplit

from distributed import get_worker, secede

from paddock.algos.pool.protocol import PoolError

from ..processes.child import Child
from ..processes.hosting import Address, host
from ..processes.pipes import open_link
from .pool import DaskPool

START_S = 60.0  # timeout of starting a child on a worker


class Launcher:
    """Starts processes on the workers of a pool."""

    def __init__(self, pool: DaskPool) -> None:
        """Use the workers of a pool."""
        self._pool = pool

    def start(self, data: bytes) -> "RemoteChild":
        """Start a pickled process.

        Raises:
            PoolError: there is no worker, or it cannot start the process.
        """
        return RemoteChild(self._pool, data)

    def cpu_count(self) -> int:
        """Return the number of threads of all workers."""
        return self._pool.threads


class RemoteChild:
    """Process on a worker.

    Attributes:
        pid: its process id on the worker's machine.
    """

    pid: int

    def __init__(self, pool: DaskPool, data: bytes) -> None:
        """Start the process, and wait until it exists."""
        key, server = f"process-{uuid.uuid4().hex}", host()
        self._data = data
        self._remote: Connection | None = None
        self._code = -int(signal.SIGKILL)  # if its worker is lost
        self._connected, self._ended = threading.Event(), threading.Event()
        worker, self._release = pool.occupy_worker()
        server.links[key] = self._serve
        self._task: Any = pool.submit(run_child, worker, key, server.address, bytes(server.authkey))
        self._task.add_done_callback(lambda _: self._connected.set())
        if not self._connected.wait(START_S) or self._remote is None:
            server.unlink(None, key)
            self._finish()
            failed = self._task.status == "error"
            cause = self._task.exception() if failed else f"it cannot reach {server.address!r}"
            raise PoolError(f"worker {worker} cannot start a process: {cause}; see its log")

    def wait(self) -> int:
        """Wait for the exit code, which is -n after signal n, and -9 if the worker is lost."""
        self._ended.wait()
        self._finish()
        return self._code

    def signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        with contextlib.suppress(OSError):
            self._remote.send(int(number))  # type: ignore[union-attr]

    def _serve(self, remote: Connection) -> None:
        with contextlib.suppress(EOFError, OSError):
            remote.send(("#RETURN", self._data))
            self.pid, self._remote = remote.recv(), remote
            self._connected.set()
            self._code = remote.recv()
        self._ended.set()

    def _finish(self) -> None:
        with contextlib.suppress(RuntimeError):  # the pool is closed
            self._task.cancel()  # otherwise Dask would repeat it after the loss of its worker
        self._release()


def run_child(key: str, address: Address, authkey: bytes) -> None:
    """Run a process in a child of this worker until it ends, or until its driver does."""
    interface = urlsplit(get_worker().address).hostname or ""
    secede()  # other tasks may use this thread
    process.current_process().authkey = authkey
    driver, data = open_link(address, key)
    with driver:
        child = Child(data, interface=interface)
        try:
            driver.send(child.pid)
            while driver in wait([driver, child.sentinel]):
                child.signal(driver.recv())
            driver.send(child.wait())
        except OSError:  # the driver has ended
            child.signal(signal.SIGKILL)
            child.wait()
