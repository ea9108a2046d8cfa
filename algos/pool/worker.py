"""Makes a Dask worker serve drivers, which connect to it directly and send it tasks.

Dask's scheduler places, watches and replaces workers, and sees no task: a driver opens one of Dask's own connections to
each worker (`serve`), so that addresses and TLS come with it; `driver` describes the messages.

A worker loads this module when it starts (`--preload paddock.algos.pool.worker`).
"""

import asyncio
import dataclasses
import functools
import importlib.metadata
import importlib.util
import math
import multiprocessing
import os
import platform
import signal
import socket
import sys
import threading
import time
from typing import Any

import dask
import distributed.nanny
from distributed import Nanny
from distributed.comm import CommClosedError
from distributed.core import Status
from distributed.diagnostics.plugin import WorkerPlugin
from tornado.ioloop import PeriodicCallback

from paddock.algos.pool import exit_report
from paddock.algos.pool.driver import DriverConnection
from paddock.algos.pool.executor import memory_gb
from paddock.algos.pool.main_thread import exit_if_ended, run_beside
from paddock.algos.pool.protocol import Needs
from paddock.envs.parent import die_with_parent, leave_to_parent

OPERATION = "paddock"  # the name under which drivers call
DRAIN = "PADDOCK_DRAIN_S"  # environment variable: seconds in which a worker that leaves finishes its tasks
HANG_UP_S = 60.0  # a driver that has not disconnected by then, though it was sent everything, is not waited for
RENEWAL_S = 10.0  # a process that is renewed, and has not ended by itself by then, is ended


async def dask_setup(dask_worker: Any) -> None:
    """Dask's hook for a preloaded module: of a worker, or of the nanny that watches one."""
    worker = dask_worker
    if isinstance(worker, Nanny):
        exit_report.listen()
        worker.handlers[exit_report.QUESTION] = exit_report.answer
        dask.config.set({"distributed.worker.daemon": False})  # daemonic processes may not have children
        distributed.nanny.WorkerProcess = MainThreadProcess  # type: ignore[misc]
        return
    if OPERATION in worker.handlers:
        return
    if threading.current_thread() is threading.main_thread():
        _leave_signals_to_parent()
    if sys.platform == "linux" and multiprocessing.parent_process() is not None:
        # A fork of the parent that outlives it keeps the sentinel, and the scheduler's connections, open.
        watch = PeriodicCallback(functools.partial(_end_as_orphan, os.getppid()), 1000)
        worker.periodic_callbacks["parent"] = watch
        watch.start()
    service = WorkerService(worker)
    worker.handlers[OPERATION] = service.serve
    await worker.plugin_add(service, name=OPERATION)


class MainThreadProcess(distributed.nanny.WorkerProcess):
    """Process of a worker whose main thread is left to tasks; Dask's own runs the worker's loop there."""

    @classmethod
    def _run(cls, *args: Any, **kwargs: Any) -> None:
        _leave_signals_to_parent()
        run_beside(functools.partial(super()._run, *args, **kwargs))


def _leave_signals_to_parent() -> None:
    """Ignore signals that reach the whole process group, whose meaning the parent decides, and end with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # which children would inherit
    parent = multiprocessing.parent_process()
    if parent is not None:
        leave_to_parent(signal.SIGTERM, exit_if_ended)  # a nanny answers it by an orderly end
    if parent is not None and sys.platform == "linux":
        # Dask has a thread see to it, which never does while a task holds the interpreter.
        die_with_parent(parent.sentinel)


def _end_as_orphan(parent: int) -> None:
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


class WorkerService(WorkerPlugin):
    """Serves drivers; one in each worker process."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._drivers: set[DriverConnection] = set()
        self._loop = asyncio.get_running_loop()
        resources = {name.upper(): amount for name, amount in worker.state.total_resources.items()}
        memory = memory_gb(worker.memory_manager.memory_limit)
        self._capacity = Needs(cpu=int(worker.state.nthreads), memory_gb=memory, gpu=int(resources.get("GPU", 0)))
        self._leaving = False
        self._crash_log = exit_report.log_crashes()

    async def serve(self, comm: Any, hello: dict[str, Any]) -> Status:
        """Answer a driver's greeting, then serve it until it goes."""
        answer = {
            "versions": describe_process(tuple(hello["packages"]), tuple(hello["imports"])),
            "capacity": dataclasses.asdict(self._capacity),
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "crash_log": self._crash_log,
            "nanny": self._worker.nanny,
            "leaving": self._leaving,
            "name": str(self._worker.name),
        }
        driver = DriverConnection(comm, self._capacity, self._loop, self._renew_soon)
        self._drivers.add(driver)
        try:
            await driver.serve(answer)
        except (CommClosedError, OSError):
            pass
        finally:
            self._drivers.discard(driver)
        return Status.dont_reply

    async def teardown(self, worker: Any) -> None:
        """Dask's hook before a worker leaves, for whatever reason: give back what waits, finish what runs."""
        await self._leave(float(os.environ.get(DRAIN, "30")))

    async def _leave(self, within_s: float) -> None:
        self._leaving = True
        drivers = list(self._drivers)
        for driver in drivers:
            driver.leave()
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline and not all(driver.over for driver in self._drivers):
            await asyncio.sleep(0.01)
        # The last messages may still be on their way, and would be lost if this process ended.
        deadline = min(deadline, time.monotonic() + HANG_UP_S)
        while time.monotonic() < deadline and any(driver.connected for driver in drivers):
            await asyncio.sleep(0.01)

    def _renew_soon(self) -> None:
        self._loop.call_soon_threadsafe(lambda: asyncio.ensure_future(self._renew()))

    async def _renew(self) -> None:
        await self._leave(math.inf)  # the others that run here are not to begin again
        if self._worker.nanny is not None:  # which starts another process
            self._loop.call_later(RENEWAL_S, os._exit, 0)
        await self._worker.close(nanny=False)


@functools.cache
def describe_process(packages: tuple[str, ...], imports: tuple[str, ...]) -> dict[str, str]:
    """Return what decides whether this process computes what another does: versions, and importable packages."""
    versions = {"python": platform.python_version()}
    for name in packages:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    for name in imports:
        if name == "__main__":  # which Python imports in processes that a script starts
            versions[name] = os.path.basename(getattr(sys.modules[name], "__file__", None) or "")
        else:
            versions.setdefault(name, "importable" if importlib.util.find_spec(name) else "not importable")
    return versions
