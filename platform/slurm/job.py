"""What runs inside a Slurm job: the run as a child process, which saves in time and resumes after a requeue."""

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
PATIENCE_S = 600.0  # wait for Slurm to end the job of a run that has stopped
MARGIN_S = 15.0  # of the time before the limit, for putting the job back into the queue
OTHER_S = 600.0  # wait for another process at the run, as on a node that Slurm has lost sight of
AGAIN_S = 15.0  # between two looks whether that has gone
STOPPED = (128 + signal.SIGTERM, -signal.SIGTERM)  # after its last iteration; before its first


class SlurmJob:
    """A command as submitit calls it; the job ends with the exit code of the command."""

    def __init__(self, command: Sequence[str], signal_delay_s: float, endless: bool = False) -> None:
        """Keep the arguments; this is pickled, and called on another machine.

        Args:
            command: resumes its run if there is one.
            signal_delay_s: how long before the time limit Slurm signals.
            endless: a command that ends with 0 after SIGTERM is started again, too.
        """
        self.command = command
        self.signal_delay_s = signal_delay_s
        self.endless = endless
        self._child: subprocess.Popen[bytes] | None = None
        self._told: threading.Event | None = None  # SIGTERM came

    def __call__(self) -> None:
        """Run the command; SIGTERM, which precedes preemption and scancel, is passed on so that the run saves."""
        self._told = threading.Event()
        signal.signal(signal.SIGTERM, self._terminate)
        deadline = time.monotonic() + OTHER_S
        while (code := self._run()) == IN_USE and time.monotonic() < deadline and not self._told.wait(AGAIN_S):
            pass
        if self._told.is_set():
            code = STOPPED[0] if code == IN_USE else code
            if code in STOPPED or (self.endless and code == 0):
                # A preempted job is requeued if Slurm ends it; were it to end by itself, it would have failed.
                time.sleep(PATIENCE_S)
        if code != 0:
            _leave(code)

    def checkpoint(self) -> DelayedSubmission:
        """Have the run saved before the time limit; submitit then puts the job back into the queue.

        It is called in the handler of a signal that interrupts `__call__`.
        """
        code = 0 if self._child is None else self._stop(self._child)
        # A run that has just reached its budget ends again as soon as it is resumed.
        if code not in (0, IN_USE, -signal.SIGKILL, *STOPPED):
            _leave(code)
        return DelayedSubmission(SlurmJob(self.command, self.signal_delay_s, self.endless))

    def _run(self) -> int:
        # Submitit's signal goes to all processes of the job, and is not for the child and its children.
        self._child = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            preexec_fn=lambda: signal.signal(signal.SIGUSR2, signal.SIG_IGN),
        )
        while (code := _exit_code(self._child)) is None:
            time.sleep(POLL_S)
        return code

    def _stop(self, child: subprocess.Popen[bytes]) -> int:
        """Let the child finish its iteration; kill it if that takes too long."""
        if _exit_code(child) is None:
            os.kill(child.pid, signal.SIGTERM)
        deadline = time.monotonic() + max(self.signal_delay_s - MARGIN_S, self.signal_delay_s / 2)
        while (code := _exit_code(child)) is None:
            if time.monotonic() > deadline:
                os.kill(child.pid, signal.SIGKILL)
            time.sleep(POLL_S)
        return code

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        """Pass SIGTERM on; a run that Slurm has sent it to takes both for one."""
        assert self._told is not None
        if not self._told.is_set():
            self._told.set()
            if self._child is not None and _exit_code(self._child) is None:
                os.kill(self._child.pid, signal.SIGTERM)


def _exit_code(child: subprocess.Popen[bytes]) -> int | None:
    """Return what `Popen.poll` does, without its lock, which a signal's handler may find taken."""
    ended = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _leave(code: int) -> NoReturn:
    """End the job as failed, with a child's exit code."""
    if code < 0:
        print(f"paddock: the run was ended by {name_signal(-code)}", file=sys.stderr)
    sys.exit(code if code > 0 else 128 - code)
