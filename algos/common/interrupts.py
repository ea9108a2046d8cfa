"""Waits that a signal handler can interrupt."""

import contextlib
import logging
import threading
from collections.abc import Iterator

log = logging.getLogger(__name__)

LOG_AFTER_S = 10.0  # length of a wait that is logged


class Interrupted(BaseException):
    """Interruption of a wait by a signal; no `Exception`, since tasks in this process catch those."""


class Unfinished(dict[str, float]):
    """Row of metrics of an interrupted plan, which lacks the result of the wait."""


class Interrupts:
    """Flag by which a signal handler interrupts waits of the main thread, in which it runs."""

    def __init__(self) -> None:
        """Start without a request."""
        self._requested = self._waits = self._logged = False

    def request(self) -> None:
        """Interrupt the present wait and all later ones.

        Raises:
            Interrupted: there is a wait now; it is raised from the signal handler.
        """
        self._requested = True
        if self._waits:
            raise Interrupted

    @contextlib.contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Make the block interruptible; the first long wait is logged.

        Raises:
            Interrupted: an interruption was requested.
        """
        timer = threading.Timer(LOG_AFTER_S, self._log, [what])
        timer.daemon = True
        if not self._logged:
            timer.start()
        self._waits = True
        try:
            if self._requested:
                raise Interrupted
            yield
        finally:
            self._waits = False
            timer.cancel()

    def _log(self, what: str) -> None:
        self._logged = True
        log.info("waiting for %s", what)
