"""A command as a task: a worker runs it as a process of its own, which ends when the worker or its driver does."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paddock.algos.pool.executor import is_awaited
from paddock.envs.errors import IN_USE
from paddock.envs.process import start_python

POLL_S = 0.2
LONGEST_POLL_S = 10.0  # between two starts of a command that cannot have its turn yet
EXECUTE = "import os; os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"


@dataclass(frozen=True)
class PythonCommand:
    """A command of this Python, and what is around it.

    Attributes:
        arguments: what follows the interpreter, which is the worker's own.
        folder: where it is started.
        environment: what is added to the worker's.
        log: the file that takes what it prints, at the end.
        stop: a file whose appearance asks it to end, as SIGTERM does.
    """

    arguments: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    log: Path
    stop: Path


def run_to_end(command: PythonCommand) -> int:
    """Run it to its end; its exit code, or -n if signal n ended it.

    A run whose last worker was lost may still be saving when it is started again. This then waits for as long as that
    takes, since a worker that was only silent may continue the run to its end. A command whose driver has gone is asked
    to end.
    """
    pause_s = POLL_S
    while (code := _run_once(command)) == IN_USE and is_awaited():
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_POLL_S)
    return code


def _run_once(command: PythonCommand) -> int:
    if command.stop.exists():  # while it waited for its turn
        command.stop.unlink(missing_ok=True)
        return 128 + signal.SIGTERM
    process, awaited = start_command(command), True
    while (code := process.poll()) is None:
        if command.stop.exists():
            command.stop.unlink(missing_ok=True)
            process.terminate()
        elif awaited and not is_awaited():
            awaited = False
            process.terminate()
        time.sleep(POLL_S)
    return code


def start_command(command: PythonCommand) -> subprocess.Popen[bytes]:
    """Start it in a session of its own, so that Ctrl-C in the terminal is left to who started it.

    It gets SIGTERM, after which a run saves and ends, when this process is gone, or lets go of what is returned.
    """
    command.log.parent.mkdir(parents=True, exist_ok=True)
    with open(command.log, "ab") as log:
        return start_python(
            EXECUTE,
            *command.arguments,
            flags=["-IS"],
            number=signal.SIGTERM,
            cwd=command.folder,
            env=os.environ | command.environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
