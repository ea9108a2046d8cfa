"""A worker process as its parent sees it: started, talked to, questioned when it hangs, ended."""

import contextlib
import logging
import os
import pickle
import signal
import subprocess
import time
from dataclasses import replace
from typing import Any

import cloudpickle

from paddock.envs.errors import ConfigError
from paddock.envs.process import ChildProcess, describe_end
from paddock.envs.vector.contract import EnvError
from paddock.envs.vector.multiprocess.interrupts import Uninterrupted, waits
from paddock.envs.vector.multiprocess.shared import CLOSE, CLOSING, SharedBuffers
from paddock.envs.vector.multiprocess.worker import WorkerJob

LAST_LINES = 30  # of a worker's last words, in an error
MAIN = "paddock.envs.vector.multiprocess.worker:main"
CLOSE_S = 1.0  # for processes to begin to close their environments
CLOSING_S = 30.0  # for processes to end by themselves, at most
ANSWER_S = 1.0  # for a process that hangs to say where
log = logging.getLogger("paddock.envs.vector")
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "NUMEXPR")}


class WorkerProcess:
    """One worker; nothing of it outlives it, and it does not outlive its parent."""

    def __init__(self, job: WorkerJob, timeout_s: float) -> None:
        """Start the process; it tells through the shared buffers when its environments are built.

        Args:
            job: without its file descriptor `log`, which is made here.
            timeout_s: for which a message that the connection does not hold may stand still half-way.

        Raises:
            ConfigError: the recipe cannot be pickled.
            EnvError: the system has no room for another process, or its files.
        """
        self._job = job
        try:
            self._log = os.fdopen(os.memfd_create("paddock-worker-log"), "rb")
        except OSError as error:
            raise _not_started(job, error) from error
        log = self._log.fileno()
        try:
            message = cloudpickle.dumps(replace(job, log=log))
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            self._log.close()
            what = " ".join(f"env={job.spec.id} cannot be sent to a process ({error})".split())
            raise ConfigError(f"{what}; choose vec=serial") from error
        try:
            self.child = ChildProcess(MAIN, message, env=os.environ | ONE_THREAD, pass_fds=[job.memory, log])
        except OSError as error:
            self._log.close()
            raise _not_started(job, error) from error
        self.child.limit_waits(max(timeout_s, 0.001))

    def send(self, message: bytes) -> bool:
        """Send something, which a dead process does not get; returns False where one that lives took it not in time."""
        try:
            self.child.connection.send_bytes(message)
        except BlockingIOError:
            return False
        except ConnectionError:
            pass  # as whoever waits for its answer will find
        return True

    def receive(self, timeout_s: float) -> Any:
        """What the process said.

        Raises:
            EOFError: it died, or said no more in time.
            EnvError: what its environments say is nothing here.
        """
        try:
            if not self._poll(timeout_s):
                raise EOFError
            message = self.child.connection.recv_bytes()
        except OSError as error:  # also where it died in the midst of saying it
            raise EOFError from error
        try:
            return pickle.loads(message)
        except Exception as error:  # of whatever an info is made of
            why = f"what its environments say cannot be unpickled ({type(error).__name__}: {error})"
            text = f"worker {self._job.number}: {why}; have them say plain data"
            raise EnvError(" ".join(text.split())) from error

    @waits(throughout=True)
    def _poll(self, timeout_s: float) -> bool:
        Uninterrupted.let_come()
        return self.child.connection.poll(timeout_s)

    def death(self, at_work: int) -> EnvError:
        """How the process ended, at work on which environment, with its last words."""
        cause = describe_end(self.child.kill(ANSWER_S))
        remedy = "mend the environment, or set vec.restart=true to go on without its episodes"
        return EnvError(f"{self._who(at_work)}: the worker process {cause}; {remedy}\n{self._last_words()}".rstrip())

    def hang(self, at_work: int, waited_s: float) -> EnvError:
        """Where the process is that has not answered for so long; it is killed."""
        where = self._where()
        self.child.kill()
        what = f"{self._who(at_work)} gave no answer for {waited_s:g} s (vec.timeout_s)"
        return EnvError(f"{what}; mend it, allow more time, or set vec.restart=true\n{where}".rstrip())

    def end(self, begun: float, buffers: SharedBuffers, timeout_s: float) -> None:
        """Wait for a process that was asked to end; where it does not in time, say so.

        Args:
            begun: when it was asked, by the clock that never goes back.
            timeout_s: that it has to close its environments.
        """
        number = self._job.number
        for patience_s in (CLOSE_S, max(CLOSE_S, min(timeout_s, CLOSING_S))):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.child.popen.wait(max(0.0, begun + patience_s - time.monotonic()))
                return
            if buffers.state[number] != CLOSING:
                break
        what = (
            f"{self._who(buffers.at_work[number])}: the worker process had not ended {patience_s:g} s after the close"
        )
        log.warning("%s, and is killed; what environments write when they are closed may be lost", what)

    def close(self) -> None:
        """Close what the parent has of it; its end of the pipe is what a worker lives by."""
        self.child.connection.close()
        self._log.close()

    def _who(self, at_work: int) -> str:
        blocks = [self._job.envs(block) for block in self._job.own]
        if any(at_work in envs for envs in blocks):
            return f"environment {at_work} ({self._job.spec.id})"
        every = " and ".join(f"{envs[0]} to {envs[-1]}" if len(envs) > 1 else str(envs[0]) for envs in blocks)
        return f"environments {every} ({self._job.spec.id})"

    def _last_words(self, after: int = 0) -> str:
        """The last lines that it wrote to `sys.stderr`, or was made to, from a position in its log."""
        text = os.pread(self._log.fileno(), self._log_bytes(), after).decode(errors="replace")
        return "\n".join(text.splitlines()[-LAST_LINES:])

    def _where(self) -> str:
        """Where the process is at the moment: a traceback of each of its threads; empty if it cannot answer."""
        before = self._log_bytes()
        self.child.popen.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + ANSWER_S
        size = before
        while time.monotonic() < deadline:
            time.sleep(0.02)
            last, size = size, self._log_bytes()
            if size == last > before:
                break
        return self._last_words(before)

    def _log_bytes(self) -> int:
        return os.fstat(self._log.fileno()).st_size


def _not_started(job: WorkerJob, error: OSError) -> EnvError:
    remedy = "ask for fewer by vec.workers=, or raise the limit: `ulimit -n` of open files, `ulimit -u` of processes"
    return EnvError(f"worker {job.number} of {job.workers} cannot be started ({error.strerror}); {remedy}")


def end(
    processes: list[WorkerProcess], buffers: SharedBuffers, memory: int, parent: int, timeout_s: float = 0.0
) -> None:
    """End workers: they are asked, and killed with a warning if they do not in time.

    Args:
        timeout_s: for which those that close their environments are waited for, at most CLOSING_S; one that is at work
            until then may hang, and has CLOSE_S, as all have where none is given: of a vector that is let go, not
            closed, Python runs this where it drops a KeyboardInterrupt.
    """
    if os.getpid() != parent:  # a fork of it
        return
    for block in range(len(buffers.order)):
        buffers.order[block] = CLOSE
    for w, process in enumerate(processes):
        buffers.go[w].post()
        process.child.connection.close()
    begun = time.monotonic()
    try:
        for process in processes:
            process.end(begun, buffers, timeout_s)
    finally:  # where Ctrl-C ends the wait, too
        for process in processes:
            process.child.kill()
            process.close()
        os.close(memory)
