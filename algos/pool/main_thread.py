"""Run tasks in the main thread of a worker process, the only thread that may set signal handlers."""

import contextlib
import signal
import threading
from collections.abc import Callable
from queue import SimpleQueue

GRACE_PERIOD_S = 0.2  # for a running task to finish after the event loop has ended

_busy = threading.Lock()  # held except while the main thread is idle
_busy.acquire()
_calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
_ended = threading.Event()  # set when the worker's event loop has ended


def run_loop_in_thread(run_loop: Callable[[], None]) -> None:
    """Run a worker's event loop in a background thread, and the calls of `lend_main_thread` in the main thread."""

    def run() -> None:
        try:
            run_loop()
        finally:
            _ended.set()
            _calls.put(None)
            if not _busy.acquire(timeout=GRACE_PERIOD_S):
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    loop = threading.Thread(target=run, name="paddock-worker-loop", daemon=True)
    loop.start()
    with contextlib.suppress(SystemExit):  # raised by `exit_if_ended`
        _busy.release()
        while (call := _calls.get()) is not None:
            call()
            _busy.release()
    loop.join()


def lend_main_thread(call: Callable[[], None]) -> bool:
    """Submit a function to the main thread if it is idle; return whether it was submitted."""
    if not _busy.acquire(blocking=False):
        return False
    _calls.put(call)
    return True


def exit_if_ended(*_: object) -> None:
    """Raise SystemExit if the event loop has ended; as a signal handler, this interrupts a running task."""
    if _ended.is_set():
        raise SystemExit
