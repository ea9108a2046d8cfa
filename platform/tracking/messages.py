"""Log messages on the console, and in a run's log once it has a folder."""

import contextlib
import io
import logging
import logging.handlers
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .console import Console

NAME = "paddock"  # of the logger above all of ours
EARLY = 1000  # messages that may wait for a run's folder


class LogFile(logging.FileHandler):
    """A log file that drops messages on a full disk."""

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):  # the file is made with its first message
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        pass

    def close(self) -> None:
        with contextlib.suppress(OSError):
            super().close()


@contextlib.contextmanager
def early_warnings() -> Iterator[None]:
    """Show warnings on the error stream before a run has a console."""
    handler = logging.StreamHandler(sys.stderr or io.StringIO())
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("warning: %(message)s"))
    with _attached(handler, logging.WARNING):
        yield


@contextlib.contextmanager
def messages(console: Console) -> Iterator[Any]:
    """Send log messages to the console, and, once its path is known, to a log file, earlier ones included."""

    class ToConsole(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            show = console.warn if record.levelno >= logging.WARNING else console.message
            show(self.format(record).partition("\n")[0])  # tracebacks are for the log

    with contextlib.ExitStack() as stack:
        stack.enter_context(_attached(ToConsole(), logging.INFO))
        early = logging.handlers.BufferingHandler(EARLY)
        waiting = stack.enter_context(contextlib.ExitStack())
        waiting.enter_context(_attached(early, logging.INFO))

        def record(path: Path) -> None:
            handler = LogFile(path, delay=True)
            handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
            for message in early.buffer:
                handler.handle(message)
            waiting.close()
            stack.enter_context(_attached(handler, logging.INFO))

        yield record


@contextlib.contextmanager
def _attached(handler: logging.Handler, level: int) -> Iterator[None]:
    """Give a handler our messages from a level on; then close it and restore the level."""
    own = logging.getLogger(NAME)
    before = own.level
    for name, logger in list(logging.root.manager.loggerDict.items()):  # which other threads add to
        if isinstance(logger, logging.Logger) and name.partition(".")[0] == NAME:
            logger.disabled = False  # as logging.config leaves those that were there before it
    own.addHandler(handler)
    own.setLevel(level)  # Hydra's for all is ERROR
    try:
        yield
    finally:
        own.removeHandler(handler)
        own.setLevel(before)
        handler.close()
