"""What runs on a Dask worker around each task: a start notice, a clock and a time limit.

A worker loads this module when it starts (`--preload algos.worker`), so that Ctrl-C in a terminal, which reaches every
process there, is left to the process that owns the run.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from distributed import get_worker
from distributed.worker import thread_state

TOPIC = "paddock"  # of the events that tell the pool what its workers do
TIMEOUT_EXIT_CODE = 75


def dask_setup(worker: Any) -> None:
    """Dask's hook for a preloaded module, called in the worker's main thread."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def run_task(fn: Callable[[Any], Any], task: Any, timeout_s: float | None) -> tuple[Any, float]:
    """Run fn(task) and return its value and the seconds it took.

    A thread cannot be interrupted, so a task that exceeds its limit takes its worker process along; a nanny starts
    a new one.
    """
    worker, key = get_worker(), thread_state.key
    worker.log_event(TOPIC, {"event": "start", "key": key, "worker": worker.address})
    limit = None
    if timeout_s is not None:
        limit = threading.Timer(timeout_s, _exceed, (worker, key))
        limit.daemon = True
        limit.start()
    started = time.perf_counter()
    try:
        value = fn(task)
        return value, time.perf_counter() - started
    finally:
        if limit is not None:
            limit.cancel()


def _exceed(worker: Any, key: str) -> None:
    worker.log_event(TOPIC, {"event": "timeout", "key": key, "worker": worker.address})
    time.sleep(0.5)  # lets the notice leave before the process does
    os._exit(TIMEOUT_EXIT_CODE)
