"""Slurm job: the run as a child process, which saves before the time limit and resumes after a requeue."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from submitit.core.utils import DelayedSubmission

from paddock.envs.errors import IN_USE
from paddock.envs.process import name_signal

POLL_S = 0.1
END_WAIT_S = 600.0  # for Slurm to end the job of a stopped run
REQUEUE_S = 15.0  # reserved before the time limit for requeueing the job
IN_USE_WAIT_S = 600.0  # for another process that uses the run, for example on an unreachable node
RETRY_S = 15.0  # between attempts while the run is in use
STOPPED = (128 + signal.SIGTERM, -signal.SIGTERM)  # after and before the first iteration


class SlurmJob:
    """Callable for submitit that runs a command and ends the job with its exit code."""

    def __init__(self, command: Sequence[str], signal_delay_s: float) -> None:
        """Store the command; `signal_delay_s` is the time between Slurm's signal and the time limit."""
        self.command = command
        self.signal_delay_s = signal_delay_s
        self._child: subprocess.Popen[bytes] | None = None
        self._terminated: threading.Event | None = None  # set by SIGTERM

    def __call__(self) -> None:
        """Run the command; forward SIGTERM, which precedes preemption and scancel, so that the run saves."""
        self._terminated = threading.Event()
        signal.signal(signal.SIGTERM, self._terminate)
        deadline = time.monotonic() + IN_USE_WAIT_S
        while (code := self._run()) == IN_USE and time.monotonic() < deadline and not self._terminated.wait(RETRY_S):
            pass
        if self._terminated.is_set():
            code = STOPPED[0] if code == IN_USE else code
            if code in STOPPED:
                # Slurm requeues a preempted job only if Slurm itself ends it.
                time.sleep(END_WAIT_S)
        if code != 0:
            _leave(code)

    def checkpoint(self) -> DelayedSubmission:
        """Save the run before the time limit, so that submitit can requeue the job.

        Submitit calls this in a signal handler that interrupts `__call__`.
        """
        code = 0 if self._child is None else self._stop(self._child)
        # A run that has just reached its budget ends immediately when resumed.
        if code not in (0, IN_USE, -signal.SIGKILL, *STOPPED):
            _leave(code)
        return DelayedSubmission(SlurmJob(self.command, self.signal_delay_s))

    def _run(self) -> int:
        # Submitit's signal reaches all processes of the job, but is meant for this one only.
        self._child = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            preexec_fn=lambda: signal.signal(signal.SIGUSR2, signal.SIG_IGN),
        )
        while (code := _exit_code(self._child)) is None:
            time.sleep(POLL_S)
        return code

    def _stop(self, child: subprocess.Popen[bytes]) -> int:
        """Stop the child after its iteration; kill it if that takes too long."""
        if _exit_code(child) is None:
            os.kill(child.pid, signal.SIGTERM)
        deadline = time.monotonic() + max(self.signal_delay_s - REQUEUE_S, self.signal_delay_s / 2)
        while (code := _exit_code(child)) is None:
            if time.monotonic() > deadline:
                os.kill(child.pid, signal.SIGKILL)
            time.sleep(POLL_S)
        return code

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        """Forward SIGTERM; a run that also got it from Slurm treats both as one."""
        assert self._terminated is not None
        if not self._terminated.is_set():
            self._terminated.set()
            if self._child is not None and _exit_code(self._child) is None:
                os.kill(self._child.pid, signal.SIGTERM)


def _exit_code(child: subprocess.Popen[bytes]) -> int | None:
    """Return the exit code like `Popen.poll`, but without its lock, which a signal handler may find taken."""
    ended = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _leave(code: int) -> NoReturn:
    if code < 0:
        print(f"paddock: the run was ended by {name_signal(-code)}", file=sys.stderr)
    sys.exit(code if code > 0 else 128 - code)
