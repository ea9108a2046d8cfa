"""A worker process of `MultiprocessVectorEnv`: it steps its environments when told to, until it or its parent ends."""

import contextlib
import faulthandler
import gc
import io
import os
import pickle
import signal
import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from envs.errors import PaddockError
from envs.parent import leave_to_parent
from envs.spec import EnvSpec
from envs.vector.contract import EnvError
from envs.vector.multiprocess.shared import (
    CLOSE,
    DONE,
    FAILED,
    LISTEN,
    SAID,
    STEP,
    STEP_CHOSEN,
    MappedMemory,
    SharedBuffers,
)
from envs.vector.slots import IDLE, build
from envs.vector.storage import Layouts
from envs.vector.worlds import slots_of
from envs.worlds.roles import Seats, seats_of

WAIT_S = 60.0  # for an order, at a time
LOG_BYTES = 1 << 16  # of the worker's last words, at most


@dataclass(frozen=True)
class WorkerJob:
    """What a worker is to be; its file descriptors are the same numbers in both processes."""

    number: int  # which of the workers
    workers: int  # W
    num_envs: int  # N, rows of all workers
    spec: EnvSpec
    registered: Any  # Gymnasium's entry for the environment where the parent registered it; None if it need not be
    seats: Seats  # as the parent saw them
    layouts: Layouts
    autoreset: AutoresetMode
    memory: int  # file descriptor of the buffers
    size: int  # its bytes
    log: int  # a file for last words

    @property
    def rows(self) -> slice:
        """The rows of the worker's environments."""
        each = self.num_envs // self.workers
        return slice(self.number * each, (self.number + 1) * each)

    @property
    def envs(self) -> range:
        """The numbers of the worker's environments."""
        return range(self.rows.start // self.layouts.seats, self.rows.stop // self.layouts.seats)


def main(connection: Connection) -> None:
    """Serve the process that started this one."""
    try:
        job: WorkerJob = pickle.loads(connection.recv_bytes())
    except EOFError:
        return
    leave_to_parent(signal.SIGTERM)
    keep_last_words(job.log)
    memory = MappedMemory(job.memory, job.size)
    buffers = SharedBuffers.lay_out(job.layouts, job.num_envs, job.workers, memory.new)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError, EOFError):  # the parent is closing
        serve(job, buffers, connection)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # without the second that an interpreter with large libraries takes to end


def serve(job: WorkerJob, buffers: SharedBuffers, connection: Connection) -> None:
    """Build the environments and follow orders until the one to close."""
    number, rows = job.number, job.rows
    at_work = buffers.at_work[number : number + 1]
    if job.registered is not None:
        gymnasium.registry.setdefault(job.registered.id, job.registered)
    try:
        first = job.envs.start
        envs = build(job.spec, job.envs, at_work)
        slots = slots_of(job.layouts)(job.spec, envs, first, buffers.arrays, job.layouts, job.autoreset, at_work)
        check_spaces(envs, first, job)
    except PaddockError as error:
        say(buffers, number, connection, FAILED, error)
        return
    gc.freeze()  # what is there now stays; collections need not look at it
    say(buffers, number, connection, SAID, None)
    go, order, state, ready = buffers.go[number], buffers.order, buffers.state, buffers.ready
    while True:
        while not go.wait(WAIT_S):
            pass
        what = order[number]
        try:
            if what == STEP:
                infos = slots.step(rows)
            elif what == STEP_CHOSEN:
                infos = slots.step(rows.start + np.flatnonzero(buffers.chosen[rows]))
            elif what == LISTEN:
                method, *arguments = pickle.loads(connection.recv_bytes())
                say(buffers, number, connection, SAID, method(slots, *arguments))
                continue
            else:
                assert what == CLOSE
                slots.close()
                return
        except PaddockError as error:
            say(buffers, number, connection, FAILED, error)
            continue
        if infos:
            say(buffers, number, connection, SAID, infos)
        else:
            state[number] = DONE
            ready.post()


def say(buffers: SharedBuffers, number: int, connection: Connection, state: int, what: Any) -> None:
    """Tell the parent; first that something comes, for it may be more than the connection holds."""
    try:
        message = pickle.dumps(what, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        text = f"worker {number}: what its environments say cannot be pickled ({error}); have them say plain data"
        state, message = FAILED, pickle.dumps(EnvError(" ".join(text.split())))
    buffers.at_work[number] = IDLE
    buffers.state[number] = state
    buffers.ready.post()
    connection.send_bytes(message)


def check_spaces(envs: list[Any], first: int, job: WorkerJob) -> None:
    """Raise EnvError unless all environments have the spaces that the parent saw."""
    for i, env in enumerate(envs, first):
        if (seats := seats_of(env)) != job.seats:
            remedy = "give all the same spaces, or choose vec=serial with vec.num_envs=1"
            raise EnvError(f"environment {i} ({job.spec.id}) has {seats} where {job.seats} are expected; {remedy}")


def keep_last_words(log: int) -> None:
    """Copy what is written to `sys.stderr` to a file that the parent can read, and tracebacks of fatal signals."""
    faulthandler.enable(log)
    faulthandler.register(signal.SIGUSR1, log)
    sys.stderr = _Tee(sys.stderr, log)


class _Tee(io.TextIOBase):
    """The user's terminal, and the file for last words beside it."""

    def __init__(self, terminal: Any, log: int) -> None:
        self._terminal = terminal
        self._log = log

    def write(self, text: str) -> int:
        if os.fstat(self._log).st_size > LOG_BYTES:
            os.ftruncate(self._log, 0)
            os.lseek(self._log, 0, os.SEEK_SET)
        os.write(self._log, text.encode(errors="replace"))
        return self._terminal.write(text)

    def flush(self) -> None:
        self._terminal.flush()

    def fileno(self) -> int:
        return self._terminal.fileno()
