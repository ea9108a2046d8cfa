"""Calls in threads of their own, for worlds of which each waits for clients that may wait in another."""

import contextlib
import queue
import threading
from collections.abc import Callable


class CallsApart:
    """Calls under way; the first error is raised at once, whatever the others still wait for."""

    def __init__(self) -> None:
        self._ends: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._running = 0

    def begin(self, call: Callable[[], None]) -> None:
        """Begin one more."""
        self._running += 1
        threading.Thread(target=self._run, args=(call,), name="apart", daemon=True).start()

    def wait(self, look: Callable[[], None] = lambda: None, every_s: float | None = None) -> None:
        """Wait until all have ended; `look`, which may begin others, is called meanwhile, and after the last end."""
        look()
        while self._running:
            with contextlib.suppress(queue.Empty):
                error = self._ends.get(timeout=every_s)
                self._running -= 1
                if error is not None:
                    raise error
            look()

    def _run(self, call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:
            self._ends.put(error)
        else:
            self._ends.put(None)
