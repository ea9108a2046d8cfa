"""A command as a task: a worker runs it as a process of its own, which ends when the worker does."""

import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from envs.errors import IN_USE

POLL_S = 0.2
LEAVES_S = 120.0  # for which a run may go on saving after its worker was lost
# SIGTERM when whoever started it is gone, however it went; a run then saves and ends. Not a preexec_fn, which may hang
# in a process with threads.
BOOT = """import os, signal, sys
sys.path.insert(0, {root!r})
from envs.parent import die_with_parent
die_with_parent({life}, signal.SIGTERM)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"""
ROOT = str(Path(__file__).resolve().parents[2])


@dataclass(frozen=True)
class Child:
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


def run_child(child: Child) -> int:
    """Run it to its end; its exit code, or -n if signal n ended it.

    A run whose last worker was lost may still be saving when the next one has its turn, which then waits for it.
    """
    deadline = time.monotonic() + LEAVES_S
    while (code := _run_once(child)) == IN_USE and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return code


def _run_once(child: Child) -> int:
    if child.stop.exists():  # while it waited for its turn
        child.stop.unlink(missing_ok=True)
        return 128 + signal.SIGTERM
    process = start_child(child)
    while (code := process.poll()) is None:
        if child.stop.exists():
            child.stop.unlink(missing_ok=True)
            process.terminate()
        time.sleep(POLL_S)
    return code


def start_child(child: Child) -> subprocess.Popen[bytes]:
    """Start it in a session of its own, so that Ctrl-C in the terminal is left to who started it.

    It ends when this process does, or lets go of what is returned.
    """
    child.log.parent.mkdir(parents=True, exist_ok=True)
    read, life = os.pipe()
    with open(child.log, "ab") as log, open(read, "rb"):
        process = subprocess.Popen(
            [sys.executable, "-IS", "-c", BOOT.format(root=ROOT, life=read), *child.arguments],
            cwd=child.folder,
            env=os.environ | child.environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=[read],
        )
    weakref.finalize(process, os.close, life)
    return process
