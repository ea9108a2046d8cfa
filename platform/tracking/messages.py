"""Routing of log messages to the console, and to a run's log file once it has a folder."""

import contextlib
import io
import logging
import logging.handlers
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .console import Console

NAME = "paddock"  # root of Paddock's loggers
EARLY = 1000  # buffered messages before a run has a folder


class LogFile(logging.FileHandler):
    """Log file that drops messages on a full disk."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or drop it."""
        with contextlib.suppress(OSError):  # the first message creates the file
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Ignore errors."""

    def close(self) -> None:
        """Close the file."""
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
    """Send log messages to the console and, once its path is known, to a log file with the earlier ones."""

    class ToConsole(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            show = console.warn if record.levelno >= logging.WARNING else console.message
            show(self.format(record).partition("\n")[0])  # tracebacks go to the log file only

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
    """Attach a handler to Paddock's logger at a level; on exit, close it and restore the level."""
    ours = logging.getLogger(NAME)
    before = ours.level
    for name, logger in list(logging.root.manager.loggerDict.items()):  # other threads may add loggers
        if isinstance(logger, logging.Logger) and name.partition(".")[0] == NAME:
            logger.disabled = False  # logging.config disables existing loggers
    ours.addHandler(handler)
    ours.setLevel(level)  # Hydra sets the root logger to ERROR
    try:
        yield
    finally:
        ours.removeHandler(handler)
        ours.setLevel(before)
        handler.close()
