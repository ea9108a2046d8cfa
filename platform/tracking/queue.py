"""Bounded queue of calls, executed in order on a daemon thread.

It isolates the run from a mirror that is slow, fails or hangs: calls beyond the limit are dropped and counted, the
first exception ends the thread, and a daemon thread does not delay the exit.
"""

import queue
import threading
from collections.abc import Callable

Call = Callable[[], object]


class WriteQueue:
    """Queue of at most `limit` calls with one thread; the first exception ends it and is passed to `on_error`."""

    def __init__(self, name: str, limit: int, on_error: Callable[[Exception], None]) -> None:
        self.dropped = 0
        self._limit = limit
        self._on_error = on_error
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def offer(self, call: Call) -> bool:
        """Queue a call and return True, or drop it; never blocks."""
        if self._stopped.is_set():
            return False
        if self._calls.qsize() >= self._limit:
            self.dropped += 1
            return False
        self._calls.put(call)
        return True

    def close(self, last: Call) -> None:
        """Queue the last call, which is never dropped, and let the thread end after it; does not wait."""
        self._calls.put(last)
        self._calls.put(None)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the thread's end; return False after `timeout_s`."""
        return self._stopped.wait(max(0.0, timeout_s))

    def silence(self) -> None:
        """Ignore further errors."""
        self._on_error = lambda error: None

    def _run(self) -> None:
        try:
            while (call := self._calls.get()) is not None:
                call()
        except Exception as error:
            self._on_error(error)
        finally:
            self._stopped.set()
