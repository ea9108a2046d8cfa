"""How a worker process ended: its exit code, which its nanny sees, and the last lines that it wrote to its errors.

A nanny outlives its worker. One that loads `paddock.algos.pool.worker` (`--preload-nanny paddock.algos.pool.worker`) answers the
questions of drivers.
"""

import logging
import os
import re
from pathlib import Path
from typing import Any

from paddock.envs.process import name_signal

QUESTION = "paddock_end"  # the name under which drivers ask
FOLDER = "PADDOCK_STDERR"  # environment variable: where workers write their errors, a file each; unset: where they did
LAST_LINES = 12
TAIL_BYTES = 32768  # faulthandler ends with a line of all extension modules, some thousands of bytes, which is left out
_causes: dict[int, str] = {}  # by process id, of this process's nannies; 0: of one that could not be started


class ExitListener(logging.Handler):
    """Keeps what nannies log of their workers' ends."""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a cause of death."""
        told = re.match(r"Worker process (\d+) (.*)", record.getMessage())
        if told:
            _causes[int(told[1])] = _in_words(told[2])


def listen() -> None:
    """Hear of the ends of this process's workers from now on."""
    logger = logging.getLogger("distributed.nanny")
    if not any(isinstance(handler, ExitListener) for handler in logger.handlers):
        logger.addHandler(ExitListener(logging.INFO))
        logger.setLevel(logging.INFO)
        logger.propagate = False


async def tell(pid: int, stderr: str | None) -> dict[str, Any]:
    """What is known here of a process's end; a nanny's answer to QUESTION."""
    return {"cause": _causes.get(pid), "last": last_lines(stderr)}


def last_cause() -> str | None:
    """How the worker ended that was the last to end by itself here, or why it could not be started."""
    return next(reversed(_causes.values()), None)


def note_unstarted(error: BaseException) -> None:
    """Note why there is no process of a worker here."""
    while error.__context__ is not None:  # Dask ends a process that never began, and raises what comes of that
        error = error.__context__
    _causes.pop(0, None)  # to be the last
    _causes[0] = f"cannot be started ({error})"


def last_lines(path: str | None) -> list[str]:
    """The last lines of a file of errors, as far as it can be read here."""
    try:
        with open(path or "", "rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - TAIL_BYTES, 0))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    return [line[:200] for line in lines if line.strip() and not line.startswith("Extension modules")][-LAST_LINES:]


def redirect() -> str | None:
    """Send this process's errors to a file of its own in FOLDER, if that is set; returns the file they go to."""
    folder = os.environ.get(FOLDER)
    if folder is not None and Path(folder).is_dir():
        file = os.open(f"{folder}/{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, 2)
        os.close(file)
    try:
        path = os.readlink("/proc/self/fd/2")
        return path if os.path.isfile(path) else None
    except OSError:
        return None


def _in_words(told: str) -> str:
    killed = re.search(r"by signal (\d+)", told)
    if not killed:
        return told
    name = name_signal(int(killed[1]))
    return f"killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
