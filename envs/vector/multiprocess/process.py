"""The parent's side of a worker process: start, messages, diagnosis and end."""

import logging
import os
import pickle
import signal
import subprocess
import time
from dataclasses import replace

import cloudpickle

from paddock.envs.errors import ConfigError
from paddock.envs.process import ChildProcess, describe_exit
from paddock.envs.vector.contract import EnvError
from paddock.envs.vector.multiprocess.shared import EventFd, SharedBuffers
from paddock.envs.vector.multiprocess.worker import WorkerJob

MAIN = "paddock.envs.vector.multiprocess.worker:main"
CLOSE_S = 10.0  # time limit for workers to close their environments
ANSWER_S = 1.0  # time limit for a hanging process to print its traceback
log = logging.getLogger("paddock.envs.vector")
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "NUMEXPR")}


class WorkerProcess:
    """Worker process, which ends with its parent."""

    def __init__(self, job: WorkerJob, timeout_s: float) -> None:
        """Start the process; it answers for each of its blocks once its environments are built.

        Args:
            job: its job; the file descriptor `log` is created here.
            timeout_s: time limit for sending and receiving a message.

        Raises:
            ConfigError: the recipe cannot be pickled.
            EnvError: the system's limit of processes or files is reached.
        """
        self._job = job
        remedy = "reduce vec.workers, or raise the limit: `ulimit -n` of open files, `ulimit -u` of processes"
        try:
            self._log = os.fdopen(os.memfd_create("paddock-worker-log"), "rb")
            try:
                message = cloudpickle.dumps(replace(job, log=self._log.fileno()))
                fds = [job.memory, *job.events, self._log.fileno()]
                self.child = ChildProcess(MAIN, message, env=os.environ | ONE_THREAD, pass_fds=fds)
            except BaseException:
                self._log.close()
                raise
        except OSError as error:
            text = f"worker {job.number} of {job.workers} cannot be started ({error.strerror}); {remedy}"
            raise EnvError(text) from error
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            what = " ".join(f"env={job.spec.id} cannot be sent to a process ({error})".split())
            raise ConfigError(f"{what}; use vec=serial") from error
        self.child.limit_waits(max(timeout_s, 0.001))

    def send(self, message: bytes) -> bool:
        """Send a message; return False if a living process did not read it in time."""
        try:
            self.child.connection.send_bytes(message)
        except BlockingIOError:
            return False
        except ConnectionError:
            pass  # the wait for its answer will notice
        return True

    def receive(self, timeout_s: float) -> tuple[int, bytes]:
        """Return the next message and its block; raise EOFError if the process died or the message is incomplete."""
        try:
            if not self.child.connection.poll(timeout_s):
                raise EOFError
            message = self.child.connection.recv_bytes()
        except OSError as error:  # also if it died while sending
            raise EOFError from error
        return int.from_bytes(message[:4], "little"), message[4:]

    def death(self, active_env: int) -> EnvError:
        """Return an error that says how the process ended and in which environment, with its traceback."""
        cause = describe_exit(self.child.kill(ANSWER_S))
        remedy = "fix the environment, or set vec.restart=true to discard its episodes and continue"
        return EnvError(f"{self._name(active_env)}: the worker process {cause}; {remedy}\n{self._traceback()}".rstrip())

    def hang(self, active_env: int, waited_s: float) -> EnvError:
        """Kill a process that has not answered for `waited_s`; return an error with its traceback."""
        where = self._where()
        self.child.kill()
        what = f"{self._name(active_env)} did not respond for {waited_s:g} s (vec.timeout_s)"
        return EnvError(f"{what}; fix the environment, increase the limit, or set vec.restart=true\n{where}".rstrip())

    def end(self, until: float, buffers: SharedBuffers) -> None:
        """Wait until a time for a process that was asked to end; log a warning if it does not."""
        try:
            self.child.popen.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            what = f"{self._name(buffers.active_env[self._job.number])}: the worker process did not end"
            log.warning("%s in time and is killed; files that environments write in close may be lost", what)

    def close(self) -> None:
        """Kill the process if it still runs, and close its files in the parent."""
        self.child.kill()
        self.child.connection.close()
        self._log.close()

    def _name(self, active_env: int) -> str:
        blocks = [self._job.envs(block) for block in self._job.own]
        if any(active_env in envs for envs in blocks):
            return f"environment {active_env} ({self._job.spec.id})"
        every = " and ".join(f"{envs[0]} to {envs[-1]}" if len(envs) > 1 else str(envs[0]) for envs in blocks)
        return f"environments {every} ({self._job.spec.id})"

    def _traceback(self, after: int = 0) -> str:
        """Return its faulthandler's output from a position on."""
        return os.pread(self._log.fileno(), self._log_bytes(), after).decode(errors="replace")

    def _where(self) -> str:
        """Return the tracebacks of the process's threads; empty if it does not answer."""
        before = size = self._log_bytes()
        self.child.popen.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + ANSWER_S
        while time.monotonic() < deadline:
            time.sleep(0.02)
            last, size = size, self._log_bytes()
            if size == last > before:
                break
        return self._traceback(before)

    def _log_bytes(self) -> int:
        return os.fstat(self._log.fileno()).st_size


def end(
    processes: list[WorkerProcess], buffers: SharedBuffers, events: list[EventFd], memory: int, parent: int
) -> None:
    """Ask workers to end; kill those that do not end in time, with a warning."""
    if os.getpid() != parent:  # a fork of it
        return
    buffers.closed[0] = True
    for event in events:
        event.notify()
    for process in processes:
        process.child.connection.close()
    until = time.monotonic() + CLOSE_S
    try:
        for process in processes:
            process.end(until, buffers)
    finally:  # also after Ctrl-C
        for process in processes:
            process.close()
        os.close(memory)
