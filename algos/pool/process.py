"""Commands as tasks: a worker runs a command in a subprocess, which ends with the worker or its driver."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paddock.algos.pool.executor import has_driver
from paddock.envs.errors import IN_USE
from paddock.envs.process import start_python

POLL_S = 0.2
LONGEST_POLL_S = 10.0  # maximum delay between attempts to start a command whose run is in use
EXECUTE = "import os; os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"


@dataclass(frozen=True)
class PythonCommand:
    """Command line of the worker's Python interpreter, and its surroundings."""

    arguments: Sequence[str]  # of the interpreter
    folder: Path  # working directory
    environment: Mapping[str, str]  # variables to add to the worker's
    log: Path  # file to which output is appended
    stop: Path  # file whose creation asks the command to stop, like SIGTERM


def run_to_end(command: PythonCommand) -> int:
    """Run a command to its end; return its exit code, or -n if signal n ended it.

    If the run is still in use, by a worker that was wrongly declared lost, wait until it is released. A command whose
    driver is gone is asked to stop.
    """
    pause_s = POLL_S
    while (code := _run_once(command)) == IN_USE and has_driver():
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_POLL_S)
    return code


def _run_once(command: PythonCommand) -> int:
    if command.stop.exists():  # requested while it waited
        command.stop.unlink(missing_ok=True)
        return 128 + signal.SIGTERM
    process, wanted = start_command(command), True
    while (code := process.poll()) is None:
        if command.stop.exists():
            command.stop.unlink(missing_ok=True)
            process.terminate()
        elif wanted and not has_driver():
            wanted = False
            process.terminate()
        time.sleep(POLL_S)
    return code


def start_command(command: PythonCommand) -> subprocess.Popen[bytes]:
    """Start a command in a new session, so that Ctrl-C in the terminal does not reach it.

    It receives SIGTERM, on which a run saves and stops, when this process ends or drops the returned object.
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
