"""What runs inside a Slurm job: the run as a child process, told in time to save, and gone on with after a requeue."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from submitit import JobEnvironment
from submitit.core.utils import DelayedSubmission
from submitit.slurm.slurm import SlurmJobEnvironment

from paddock.envs.errors import IN_USE
from paddock.envs.process import name_signal

POLL_S = 0.1
HEARD_S = 1.0  # within which a signal that Slurm sends to every process of a job has reached them all
PATIENCE_S = 600.0  # how long a run that was told to stop, and has, waits for Slurm to end its job
ANSWER_S = 5.0  # within which Slurm says what a job's state is
MARGIN_S = 15.0  # of the time before the limit, what putting the job into the queue again may take
RETRY_S = 2.0  # between tries at that
OTHER_S = 600.0  # how long a job waits for another process at its run, as on a node that Slurm has lost sight of
AGAIN_S = 15.0  # between looks whether that has gone
STOPPED = (128 + signal.SIGTERM, -signal.SIGTERM)  # after its last iteration; before its first


class SlurmJob:
    """A run of Paddock, as submitit calls it. Ends with the run's own exit code."""

    def __init__(self, command: Sequence[str], signal_delay_s: float, endless: bool = False) -> None:
        """Take note only: this is pickled, and called on another machine.

        Args:
            command: goes on with the run if there is one in its folder.
            signal_delay_s: how long before the time limit Slurm signals.
            endless: whether it is not done where it ends with 0 after it was told to.
        """
        self.command = command
        self.signal_delay_s = signal_delay_s
        self.stopped = (*STOPPED, 0) if endless else STOPPED
        self.endless = endless
        self._child: subprocess.Popen[bytes] | None = None
        self._told_s: float | None = None  # when Slurm said SIGTERM
        self._stopping = False  # the child has had its one SIGTERM; a second one would end it without saving

    def __call__(self) -> None:
        """Run until the child has ended; SIGTERM, which precedes preemption and scancel, lets it save first."""
        signal.signal(signal.SIGTERM, self._be_told)
        # Some clusters signal every process of a job and some the first one only, and the child must hear it once.
        # This process only waits: if SIGTERM has ended it, the child has had it too.
        witness = _start(["sleep", "infinity"])
        deadline = time.monotonic() + OTHER_S
        while (code := self._run(witness)) == IN_USE and time.monotonic() < deadline:
            self._rest(AGAIN_S)
            if self._told_s is not None:
                break  # one that began now might never hear of it
        if code == IN_USE and self._told_s is not None:
            code = STOPPED[0]  # a preempted job comes back, and may find it free
        if self._told_s is not None and code in self.stopped:
            # A preempted job is requeued if it is Slurm that ends it; were it to end by itself, it would have failed.
            while time.monotonic() < self._told_s + PATIENCE_S:
                time.sleep(POLL_S)
        witness.kill()
        if code != 0:
            _leave(code)

    def _run(self, witness: "subprocess.Popen[bytes]") -> int:
        """Start the child, and wait for its end."""
        self._child = _start(self.command)
        while (code := _exit_code(self._child)) is None:
            if self._told_s is not None and not self._stopping and time.monotonic() > self._told_s + HEARD_S:
                self._stopping = True
                if _exit_code(witness) is None:
                    os.kill(self._child.pid, signal.SIGTERM)
            time.sleep(POLL_S)
        return code

    def _rest(self, seconds: float) -> None:
        """Wait, unless this job is told to end."""
        deadline = time.monotonic() + seconds
        while self._told_s is None and time.monotonic() < deadline:
            time.sleep(POLL_S)

    def checkpoint(self) -> DelayedSubmission:
        """Have the run saved, before the time limit; submitit then puts the job into the queue again.

        It calls this in the handler of the signal, while `__call__` is interrupted.
        """
        deadline = time.monotonic() + self.signal_delay_s
        if self._child is not None:
            code = self._stop(self._child)
            # A run that reached its budget just now finds that out when it is gone on with.
            if code not in (0, IN_USE, -signal.SIGKILL, *STOPPED):
                _leave(code)
        # Put into the queue again while scancel ends it, it would come back.
        if _is_being_ended(min(ANSWER_S, (deadline - time.monotonic()) / 2)):
            _leave(STOPPED[0])
        # Submitit tries it once, and a controller that is busy just then would have the job end at its limit.
        setattr(SlurmJobEnvironment, "_requeue", lambda env, countdown: _requeue(env.job_id, deadline))  # noqa: B010
        return DelayedSubmission(SlurmJob(self.command, self.signal_delay_s, self.endless))

    def _stop(self, child: subprocess.Popen[bytes]) -> int:
        """Let the child finish its iteration, or, where time does not allow it, lose what followed its checkpoint."""
        if not self._stopping and _exit_code(child) is None:
            self._stopping = True
            os.kill(child.pid, signal.SIGTERM)
        deadline = time.monotonic() + max(self.signal_delay_s - MARGIN_S, self.signal_delay_s / 2)
        while (code := _exit_code(child)) is None:
            if time.monotonic() > deadline:
                os.kill(child.pid, signal.SIGKILL)
            time.sleep(POLL_S)
        return code

    def _be_told(self, number: int, frame: FrameType | None) -> None:
        if self._told_s is None:
            self._told_s = time.monotonic()


def _start(command: Sequence[str]) -> subprocess.Popen[bytes]:
    """A child, whose children neither are ended by submitit's signal, which goes to every process of the job."""
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, preexec_fn=lambda: signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    )


def _exit_code(child: subprocess.Popen[bytes]) -> int | None:
    """As `Popen.poll`, but without its lock, which may be held by what a signal's handler has interrupted."""
    ended = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _requeue(job: str, deadline: float) -> None:
    """Put a job into the queue again, as soon as Slurm takes it; CalledProcessError where that is never."""
    while subprocess.run(command := ["scontrol", "requeue", job]).returncode != 0:
        if time.monotonic() + RETRY_S > deadline:
            raise subprocess.CalledProcessError(1, command)
        time.sleep(RETRY_S)


def _is_being_ended(timeout_s: float) -> bool:
    """Whether Slurm is ending this job already; False where it does not say."""
    command = ["squeue", "-h", "-j", JobEnvironment().job_id, "-o", "%T"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    except (OSError, subprocess.SubprocessError):
        return False
    return said.stdout.strip() == "COMPLETING"


def _leave(code: int) -> NoReturn:
    """End the job as failed, with a child's exit code."""
    if code < 0:
        print(f"paddock: the run was ended by {name_signal(-code)}", file=sys.stderr)
    sys.exit(code if code > 0 else 128 - code)
