"""Calls made in order on a daemon thread, so that the caller never waits.

It isolates the run from a mirror that is slow, fails or hangs: the queue is bounded, a call that finds it full is
dropped and counted, the first exception ends the thread, and a daemon thread delays no exit.
"""

import queue
import threading
from collections.abc import Callable

Call = Callable[[], object]


class WriteQueue:
    """One thread, one bounded queue of calls.

    Args:
        name: of the thread, for debuggers.
        limit: calls that may wait; further ones are dropped.
        on_error: called on the thread with the first exception; no call is made after it.
    """

    def __init__(self, name: str, limit: int, on_error: Callable[[Exception], None]) -> None:
        self.dropped = 0
        self._limit = limit
        self._on_error = on_error
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def offer(self, call: Call) -> None:
        """Queue a call; never blocks."""
        if self._stopped.is_set():
            return
        if self._calls.qsize() >= self._limit:
            self.dropped += 1
        else:
            self._calls.put(call)

    def close(self, last: Call) -> None:
        """Let the thread end after what is queued and then `last`, which is never dropped; does not wait."""
        self._calls.put(last)
        self._calls.put(None)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the thread's end; False if it is still busy after `timeout_s`."""
        return self._stopped.wait(max(0.0, timeout_s))

    def silence(self) -> None:
        """Report no further error."""
        self._on_error = lambda error: None

    def _run(self) -> None:
        try:
            while (call := self._calls.get()) is not None:
                call()
        except Exception as error:
            self._on_error(error)
        finally:
            self._stopped.set()
