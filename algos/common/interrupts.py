"""Waits of the main thread that a signal handler can interrupt."""

import contextlib
import logging
import threading
from collections.abc import Iterator

log = logging.getLogger(__name__)

LOG_AFTER_S = 10.0  # waits longer than this are logged


class Interrupted(KeyboardInterrupt):
    """Wait interrupted by a signal; like Ctrl-C no error of the task or environment that runs in this process."""


class Unfinished(dict[str, float]):
    """Row of metrics that lacks the evaluation results, because waiting for them was interrupted."""


class Interrupts:
    """Flag that a signal handler sets to interrupt waits of the main thread."""

    def __init__(self) -> None:
        self._requested = self._waiting = self._logged = False

    def request(self) -> None:
        """Interrupt all later waits, and the current one by raising Interrupted in the main thread."""
        self._requested = True
        if self._waiting:
            raise Interrupted

    @contextlib.contextmanager
    def waiting(self, description: str) -> Iterator[None]:
        """Make a block interruptible, by Interrupted, and log the first long wait."""
        timer = threading.Timer(LOG_AFTER_S, self._log, [description])
        timer.daemon = True
        if not self._logged:
            timer.start()
        self._waiting = True
        try:
            if self._requested:
                raise Interrupted
            yield
        finally:
            self._waiting = False
            timer.cancel()

    def _log(self, description: str) -> None:
        self._logged = True
        log.info("waiting for %s", description)
