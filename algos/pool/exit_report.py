"""Report on the exit of a worker process: its exit code or signal, seen by its nanny, and the traceback of a crash.

A nanny outlives its worker. If it loads `paddock.algos.pool.worker` (`--preload-nanny paddock.algos.pool.worker`), it
answers queries of drivers.
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

QUESTION = "paddock_end"  # name of the query's handler
FOLDER = "PADDOCK_CRASHES"  # environment variable: folder for the tracebacks of crashes; unset: they go to stderr
KNOWN_S = 10.0  # maximum wait for the cause of an exit, which takes time on a busy machine
LAST_LINES = 12
_causes: dict[int, str] = {}  # by process id, of the workers of this process's nannies


class _ExitListener(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        """Record the cause of an exit."""
        if match := re.match(r"Worker process (\d+) (.*)", record.getMessage()):
            killed = re.search(r"by signal (\d+)", match[2])
            name = name_signal(int(killed[1])) if killed else ""
            cause = f"killed by {name}{' (out of memory?)' if name == 'SIGKILL' else ''}" if killed else match[2]
            _causes.pop(int(match[1]), None)
            _causes[int(match[1])] = cause


def listen() -> None:
    """Start recording the exits of this process's workers."""
    logger = logging.getLogger("distributed.nanny")
    if not any(isinstance(handler, _ExitListener) for handler in logger.handlers):
        logger.addHandler(_ExitListener(logging.INFO))
        logger.setLevel(logging.INFO)
        logger.propagate = False


async def answer(pid: int, crash_log: str | None) -> str:
    """Answer QUESTION in a nanny: wait for the cause of a worker's exit.

    Returns:
        The cause in one line, followed by the traceback of a crash, if any.
    """
    deadline = time.monotonic() + KNOWN_S
    while pid not in _causes and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    return describe_end(_causes.get(pid), crash_log)


def describe_end(cause: str | None, crash_log: str | None) -> str:
    """Return a cause, followed by a crash's innermost frames or the last lines of its log, if readable here."""
    lines = [line[:200] for line in tail(Path(crash_log or "")) if not line.startswith("Extension modules")]
    crash = max((i for i, line in enumerate(lines) if "(most recent call first)" in line), default=len(lines))
    shown = lines[crash + 1 :][:LAST_LINES] or lines[-LAST_LINES:]
    return "\n".join([cause or "its process or machine ended", *shown])


def last_cause() -> str | None:
    """Return the cause of the last recorded exit; None if there is none."""
    return next(reversed(_causes.values()), None)


def log_crashes() -> str | None:
    """Write the traceback of a crash of this process to a file in FOLDER, or to stderr; return the file."""
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
