"""Messages of the program's own: to the console, and to a run's log once it has a folder."""

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .console import Console


class LogFile(logging.FileHandler):
    """A file of messages, which a full disk costs those messages and nothing else."""

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):  # the file is made with its first message
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        pass

    def close(self) -> None:
        with contextlib.suppress(OSError):
            super().close()


@contextlib.contextmanager
def messages(console: Console) -> Iterator[Any]:
    """Send log messages to the console, and, once a folder is known, to its log file."""

    class ToConsole(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            show = console.warn if record.levelno >= logging.WARNING else console.message
            show(self.format(record).partition("\n")[0])  # tracebacks are for the log

    handlers: list[logging.Handler] = [ToConsole()]
    names = ("paddock", "algos", "envs")

    def add(handler: logging.Handler) -> None:
        for name in names:
            logging.getLogger(name).addHandler(handler)
            logging.getLogger(name).setLevel(logging.INFO)

    def record(path: Path) -> None:
        handler = LogFile(path, delay=True)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        handlers.append(handler)
        add(handler)
        console.keep(handler)

    add(handlers[0])
    try:
        yield record
    finally:
        for handler in handlers:
            for name in names:
                logging.getLogger(name).removeHandler(handler)
            handler.close()
