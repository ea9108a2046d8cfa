"""Run tasks in the main thread of a worker process, the only thread that may set signal handlers."""

import contextlib
import signal
import threading
from collections.abc import Callable
from queue import SimpleQueue

INTERRUPT_S = 0.2  # grace period of a running task after the end of its worker

_busy = threading.Lock()  # held unless the main thread waits for a call
_busy.acquire()
_calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
_ended = threading.Event()  # set when the worker's loop has ended


def run_loop_in_thread(run_loop: Callable[[], None]) -> None:
    """Run a worker's event loop in another thread, and calls from `lend_main_thread` in this one."""

    def run() -> None:
        try:
            run_loop()
        finally:
            _ended.set()
            _calls.put(None)
            if not _busy.acquire(timeout=INTERRUPT_S):
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    loop = threading.Thread(target=run, name="paddock-worker-loop", daemon=True)
    loop.start()
    with contextlib.suppress(SystemExit):  # of `exit_if_ended`
        _busy.release()
        while (call := _calls.get()) is not None:
            call()
            _busy.release()
    loop.join()


def lend_main_thread(call: Callable[[], None]) -> bool:
    """Run a function in the main thread if it is idle; return whether it was."""
    if not _busy.acquire(blocking=False):
        return False
    _calls.put(call)
    return True


def exit_if_ended(*_: object) -> None:
    """Handle a signal: interrupt a task that is still running after its worker has ended."""
    if _ended.is_set():
        raise SystemExit
