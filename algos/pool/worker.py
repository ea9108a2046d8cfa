"""Service that lets drivers connect to a Dask worker directly and send it tasks.

Dask's scheduler starts, monitors and replaces workers but sees no tasks. A driver opens a Dask connection to each worker
(`serve`), which provides addressing and TLS; `driver` describes the messages.

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
from paddock.algos.pool.main_thread import exit_if_ended, run_loop_in_thread
from paddock.algos.pool.protocol import Needs
from paddock.envs.parent import die_with_parent, leave_to_parent

OPERATION = "paddock"  # name of the handler for drivers
DRAIN = "PADDOCK_DRAIN_S"  # environment variable: seconds for a leaving worker to finish its tasks
HANG_UP_S = 60.0  # maximum wait for a driver to disconnect after it was sent everything
RENEWAL_S = 10.0  # a replaced process that has not exited by then is killed


async def dask_setup(dask_worker: Any) -> None:
    """Set up a worker or a nanny; Dask calls this hook of a preloaded module."""
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
        # The sentinel alone is not enough: a fork of the parent may outlive it and keep the sentinel open.
        watch = PeriodicCallback(functools.partial(_end_as_orphan, os.getppid()), 1000)
        worker.periodic_callbacks["parent"] = watch
        watch.start()
    service = WorkerService(worker)
    worker.handlers[OPERATION] = service.serve
    await worker.plugin_add(service, name=OPERATION)


class MainThreadProcess(distributed.nanny.WorkerProcess):
    """Worker process whose main thread is free for tasks, while Dask's runs the event loop there."""

    @classmethod
    def _run(cls, *args: Any, **kwargs: Any) -> None:
        _leave_signals_to_parent()
        run_loop_in_thread(functools.partial(super()._run, *args, **kwargs))


def _leave_signals_to_parent() -> None:
    """Ignore signals to the whole process group, which the parent handles, and end with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # children would inherit the mask
    parent = multiprocessing.parent_process()
    if parent is not None:
        leave_to_parent(signal.SIGTERM, exit_if_ended)  # a nanny shuts the worker down in order
    if parent is not None and sys.platform == "linux":
        # Dask's thread for this cannot run while a task holds the interpreter.
        die_with_parent(parent.sentinel)


def _end_as_orphan(parent: int) -> None:
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


class WorkerService(WorkerPlugin):
    """Worker plugin that serves drivers."""

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
        """Return queued tasks and finish running ones; Dask calls this hook before a worker leaves."""
        await self._leave(float(os.environ.get(DRAIN, "30")))

    async def _leave(self, within_s: float) -> None:
        self._leaving = True
        drivers = list(self._drivers)
        for driver in drivers:
            driver.leave()
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline and not all(driver.over for driver in self._drivers):
            await asyncio.sleep(0.01)
        # The last messages may still be in transit and would be lost if this process ended.
        deadline = min(deadline, time.monotonic() + HANG_UP_S)
        while time.monotonic() < deadline and any(driver.connected for driver in drivers):
            await asyncio.sleep(0.01)

    def _renew_soon(self) -> None:
        self._loop.call_soon_threadsafe(lambda: asyncio.ensure_future(self._renew()))

    async def _renew(self) -> None:
        await self._leave(math.inf)  # finish all running tasks, so that none must restart
        if self._worker.nanny is not None:  # the nanny starts another process
            self._loop.call_later(RENEWAL_S, os._exit, 0)
        await self._worker.close(nanny=False)


@functools.cache
def describe_process(packages: tuple[str, ...], imports: tuple[str, ...]) -> dict[str, str]:
    """Return versions and importable packages, which must match for two processes to give the same results."""
    versions = {"python": platform.python_version()}
    for name in packages:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    for name in imports:
        if name == "__main__":  # imported by processes that a script starts
            versions[name] = os.path.basename(getattr(sys.modules[name], "__file__", None) or "")
        else:
            versions.setdefault(name, "importable" if importlib.util.find_spec(name) else "not importable")
    return versions
