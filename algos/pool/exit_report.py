"""How a worker process ended: its exit code or signal, which its nanny sees, and the traceback of a crash.

A nanny outlives its worker. One that loads `paddock.algos.pool.worker` (`--preload-nanny paddock.algos.pool.worker`)
answers the questions of drivers.
"""

import asyncio
import faulthandler
import logging
import os
import re
import time
from pathlib import Path

from paddock.algos.common.disk import tail
from paddock.envs.process import name_signal

QUESTION = "paddock_end"  # the name under which drivers ask
FOLDER = "PADDOCK_CRASHES"  # environment variable: folder for the tracebacks of crashes; unset: they go to stderr
KNOWN_S = 10.0  # an end that is not known by then, as on a busy machine, is not waited for
LAST_LINES = 12
_causes: dict[int, str] = {}  # by process id, of the workers of this process's nannies


class _ExitListener(logging.Handler):
    """Keeps what nannies log about the ends of their workers."""

    def emit(self, record: logging.LogRecord) -> None:
        if match := re.match(r"Worker process (\d+) (.*)", record.getMessage()):
            killed = re.search(r"by signal (\d+)", match[2])
            name = name_signal(int(killed[1])) if killed else ""
            cause = f"killed by {name}{' (out of memory?)' if name == 'SIGKILL' else ''}" if killed else match[2]
            _causes.pop(int(match[1]), None)
            _causes[int(match[1])] = cause


def listen() -> None:
    """Learn from now on how this process's workers end."""
    logger = logging.getLogger("distributed.nanny")
    if not any(isinstance(handler, _ExitListener) for handler in logger.handlers):
        logger.addHandler(_ExitListener(logging.INFO))
        logger.setLevel(logging.INFO)
        logger.propagate = False


async def answer(pid: int, crash_log: str | None) -> str:
    """Wait until it is known how a worker ended; a nanny's answer to QUESTION.

    Returns:
        The cause in one line, and the traceback of a crash after it, if any.
    """
    deadline = time.monotonic() + KNOWN_S
    while pid not in _causes and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    return describe_end(_causes.get(pid), crash_log)


def describe_end(cause: str | None, crash_log: str | None) -> str:
    """Return a cause with a crash's innermost frames, or the last lines of its log, as far as it can be read here."""
    lines = [line[:200] for line in tail(Path(crash_log or "")) if not line.startswith("Extension modules")]
    crash = max((i for i, line in enumerate(lines) if "(most recent call first)" in line), default=len(lines))
    shown = lines[crash + 1 :][:LAST_LINES] or lines[-LAST_LINES:]
    return "\n".join([cause or "its process or machine ended", *shown])


def last_cause() -> str | None:
    """Return how the last worker ended that ended by itself here."""
    return next(reversed(_causes.values()), None)


def log_crashes() -> str | None:
    """Have a crash of this process leave its traceback in a file of FOLDER, or on stderr; return the file."""
    if folder := os.environ.get(FOLDER):
        path = f"{folder}/{os.getpid()}"
        faulthandler.enable(open(path, "w"), all_threads=False)  # noqa: SIM115
        return path
    faulthandler.enable(all_threads=False)
    try:
        path = os.readlink("/proc/self/fd/2")
    except OSError:
        return None
    return path if os.path.isfile(path) else None
