"""Waits that a signal ends."""

import contextlib
import logging
import threading
from collections.abc import Iterator

log = logging.getLogger(__name__)

TELL_S = 10.0  # after which a wait is told of


class Interrupted(BaseException):
    """A signal ended a wait; no `Exception`, as tasks that run in this process keep those."""


class Unfinished(dict[str, float]):
    """A row of metrics that an algorithm's plan was interrupted in: it lacks what the plan was waiting for."""


class Interrupts:
    """Ends the main thread's waits from a signal handler, which runs in that thread."""

    def __init__(self) -> None:
        self._asked = self._waits = self._told = False

    def ask(self) -> None:
        """End the wait under way, and all later ones.

        Raises:
            Interrupted: there is one under way; it is raised where the handler was called.
        """
        self._asked = True
        if self._waits:
            raise Interrupted

    @contextlib.contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Wait inside, for what may be given up; the first wait that takes long is told of.

        Raises:
            Interrupted: the wait was to end.
        """
        timer = threading.Timer(TELL_S, self._tell, [what])
        timer.daemon = True
        if not self._told:
            timer.start()
        self._waits = True
        try:
            if self._asked:
                raise Interrupted
            yield
        finally:
            self._waits = False
            timer.cancel()

    def _tell(self, what: str) -> None:
        self._told = True
        log.info("waiting for %s", what)
