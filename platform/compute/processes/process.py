"""Processes with the interface of `multiprocessing.Process`, on this machine or on the workers of a cluster in use.

The class is the standard library's, except for how the child is started. A child ends with the process that started it.
"""

import contextlib
import copyreg
import multiprocessing.process
import os
import pickle
import sys
import threading
from collections.abc import Iterator
from multiprocessing import heap, popen_spawn_posix, util
from multiprocessing.context import set_spawning_popen
from typing import Any

from paddock.algos.pool.pickling import dump_by_value

from .child import Child
from .hosting import host, interfaces
from .pipes import Pipe as Pipe  # ends of pipes are pickled as defined there

_clusters: list[Any] = []  # in use, the last one now

copyreg.pickle(heap.Arena, heap.reduce_arena)  # shared memory, by its file descriptor


class Process(multiprocessing.process.BaseProcess):
    """Process with the interface of `multiprocessing.Process`; the cluster in use starts it."""

    _start_method = None

    @staticmethod
    def _Popen(process_obj: "Process") -> "Popen":  # noqa: N802
        return Popen(process_obj)


class Popen(popen_spawn_posix.Popen):
    """Started process, as `multiprocessing.Process` uses it.

    Attributes:
        remote: whether it may run on another machine.
        kept: proxies that it uses.
        links: keys of connections that it may open.
    """

    _fds: list[int]

    def __init__(self, process_obj: Process) -> None:
        """Start the process."""
        self.remote = bool(_clusters)
        self.kept: list[Any] = []
        self.links: list[str] = []
        self._ended = threading.Event()
        super().__init__(process_obj)

    def _launch(self, process_obj: Process) -> None:
        setup: dict[str, Any] = {"name": process_obj.name, "argv": sys.argv, "path": sys.path, "folder": os.getcwd()}
        setup["authkey"] = bytes(multiprocessing.process.current_process().authkey)
        set_spawning_popen(self)
        try:
            data = pickle.dumps(setup) + dump_by_value(process_obj)
        finally:
            set_spawning_popen(None)
        self._child: Any = _clusters[-1].start(data) if self.remote else Child(data, self._fds)
        self.pid = self._child.pid
        self.sentinel, open_end = os.pipe()
        self.finalizer = util.Finalize(self, os.close, (self.sentinel,))
        threading.Thread(target=self._watch, args=(open_end,), name=process_obj.name, daemon=True).start()

    def duplicate_for_child(self, fd: int) -> int:
        """Let the process inherit a file descriptor.

        Raises:
            ValueError: it may run on another machine.
        """
        if self.remote:
            problem = "shared memory and file descriptors exist on one machine only"
            raise ValueError(f"{problem}; use Value, Queue, Pipe or Manager of paddock.compute")
        return int(super().duplicate_for_child(fd))

    def poll(self, flag: int = os.WNOHANG) -> int | None:
        """Return the exit code; None while the process runs, unless `flag` is 0: wait for it."""
        if flag == 0:
            self._ended.wait()
        return self.returncode

    def _send_signal(self, sig: int) -> None:
        self._child.signal(sig)

    def _watch(self, open_end: int) -> None:
        code = self._child.wait()
        for key in self.links:
            host().unlink(None, key)
        self.kept.clear()
        os.close(open_end)
        self.returncode = code
        self._ended.set()


@contextlib.contextmanager
def using(cluster: Any, interface: str) -> Iterator[None]:
    """Start processes with `cluster.start` in this context, and serve objects at an IP address that they reach."""
    interfaces.append(interface)
    _clusters.append(cluster)
    try:
        yield
    finally:
        _clusters.remove(cluster)
        interfaces.remove(interface)


def active_children() -> list[Process]:
    """Return the running processes that this one has started, without the workers of pools and clusters."""
    return [child for child in multiprocessing.process.active_children() if isinstance(child, Process)]


def cpu_count() -> int:
    """Return the number of processors for processes: this machine's, or the threads of a cluster's workers."""
    return int(_clusters[-1].cpu_count()) if _clusters else os.cpu_count() or 1
