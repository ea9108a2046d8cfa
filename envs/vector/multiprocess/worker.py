"""A worker process of `MultiprocessVectorEnv`: it steps its environments when told to, until it or its parent ends."""

import contextlib
import faulthandler
import gc
import os
import pickle
import signal
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from paddock.envs.errors import PaddockError, one_line
from paddock.envs.making import RAISED
from paddock.envs.parent import leave_to_parent
from paddock.envs.spec import EnvSpec
from paddock.envs.vector.contract import EnvError
from paddock.envs.vector.multiprocess.shared import (
    CLOSE,
    CLOSING,
    DONE,
    FAILED,
    LISTEN,
    SAID,
    STEP,
    STEP_CHOSEN,
    MappedMemory,
    SharedBuffers,
)
from paddock.envs.vector.slots import IDLE, EnvSlots, build, shortened
from paddock.envs.vector.storage import Layouts
from paddock.envs.vector.worlds import slots_of
from paddock.envs.worlds.roles import Seats, seats_of

WAIT_S = 60.0  # for an order, at a time
LOG_BYTES = 1 << 16  # of the worker's last words, at most


@dataclass(frozen=True)
class WorkerJob:
    """What a worker is to be; its file descriptors are the same numbers in both processes."""

    number: int  # which of the workers
    workers: int  # W
    blocks: int  # B, of all workers
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
    def own(self) -> range:
        """The numbers of the worker's blocks."""
        return range(self.number, self.blocks, self.workers)

    def rows(self, block: int) -> slice:
        """The rows of a block's environments."""
        each = self.num_envs // self.blocks
        return slice(block * each, (block + 1) * each)

    def envs(self, block: int) -> range:
        """The numbers of a block's environments."""
        rows, seats = self.rows(block), self.layouts.seats
        return range(rows.start // seats, rows.stop // seats)


def main(connection: Connection) -> None:
    """Serve the process that started this one."""
    try:
        job: WorkerJob = pickle.loads(connection.recv_bytes())
    except EOFError:
        return
    leave_to_parent(signal.SIGTERM)
    keep_last_words(job.log)
    memory = MappedMemory(job.memory, job.size)
    buffers = SharedBuffers.lay_out(job.layouts, job.num_envs, job.workers, job.blocks, memory.new)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError, EOFError):  # the parent is closing
        serve(job, buffers, connection)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # without the second that an interpreter with large libraries takes to end


def serve(job: WorkerJob, buffers: SharedBuffers, connection: Connection) -> None:
    """Build the environments and follow orders until the one to close."""
    number = job.number
    at_work = buffers.at_work[number : number + 1]
    if job.registered is not None:
        gymnasium.registry.setdefault(job.registered.id, job.registered)
    blocks: list[tuple[int, EnvSlots, slice]] = []
    try:
        for block in job.own:
            blocks.append(take_block(job, block, buffers, at_work))
    except PaddockError as error:
        for _, own, _ in blocks:
            own.close()
        say(buffers, job, job.number, connection, FAILED, error)
        return
    gc.freeze()  # what is there now stays; collections need not look at it
    for block in job.own:
        say(buffers, job, block, connection, SAID, None)
    go, order, turns, state, ready = buffers.go[number], buffers.order, buffers.turns, buffers.state, buffers.ready
    turn = -1
    try:
        while True:
            while not go.wait(WAIT_S):
                pass
            turn = (turn + 1) % len(blocks)
            block, slots, rows = blocks[turns[number, turn]]
            what = order[block]
            try:
                if what == STEP:
                    infos = slots.step(rows)
                elif what == STEP_CHOSEN:
                    infos = slots.step(rows.start + np.flatnonzero(buffers.chosen[rows]))
                elif what == LISTEN:
                    said = answer(job, slots, connection.recv_bytes())
                    say(buffers, job, block, connection, SAID, said)
                    continue
                else:
                    assert what == CLOSE
                    return
            except PaddockError as error:
                say(buffers, job, block, connection, FAILED, error)
                continue
            if infos:
                say(buffers, job, block, connection, SAID, infos)
            else:
                state[block] = DONE
                ready.post()
    finally:  # also where the parent has closed before it heard the answer of a step
        state[number] = CLOSING
        for _, own, _ in blocks:
            own.close()


def answer(job: WorkerJob, slots: EnvSlots, message: bytes) -> Any:
    """Return what a method of the `Slots` gives; EnvError of whatever goes wrong, for which no worker is to end."""
    try:
        method, *arguments = pickle.loads(message)
        return method(slots, *arguments)
    except PaddockError:
        raise
    except RAISED as error:
        text = f"worker {job.number}: what it was asked cannot be done ({type(error).__name__}: {one_line(error)})"
        raise EnvError(f"{text}\n{shortened(error)}") from error


def take_block(job: WorkerJob, block: int, buffers: SharedBuffers, at_work: memoryview) -> tuple[int, EnvSlots, slice]:
    """Build a block's environments; return its number, what steps them, and its rows."""
    envs, first = build(job.spec, job.envs(block), at_work), job.envs(block).start
    slots = slots_of(job.layouts)(job.spec, envs, first, buffers.arrays, job.layouts, job.autoreset, at_work)
    try:
        check_spaces(envs, first, job)
    except PaddockError:
        slots.close()
        raise
    return block, slots, job.rows(block)


def say(buffers: SharedBuffers, job: WorkerJob, block: int, connection: Connection, state: int, what: Any) -> None:
    """Tell the parent; first that something comes, for it may be more than the connection holds."""
    try:
        message = pickle.dumps(what, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        what = f"worker {job.number}: what its environments say cannot be pickled ({one_line(error)})"
        state, message = FAILED, pickle.dumps(EnvError(f"{what}; have them say plain data"))
    buffers.at_work[job.number] = IDLE
    buffers.state[block] = state
    buffers.ready.post()
    connection.send_bytes(message)


def check_spaces(envs: list[Any], first: int, job: WorkerJob) -> None:
    """Raise EnvError unless all environments have the spaces that the parent saw."""
    for i, env in enumerate(envs, first):
        if (seats := seats_of(env, job.spec.id)) != job.seats:
            remedy = "give all the same spaces, or choose vec=serial with vec.num_envs=1"
            raise EnvError(f"environment {i} ({job.spec.id}) has {seats} where {job.seats} are expected; {remedy}")


def keep_last_words(log: int) -> None:
    """Copy what is written to `sys.stderr` to a file that the parent can read, and tracebacks of fatal signals."""
    faulthandler.enable(log)
    faulthandler.register(signal.SIGUSR1, log)
    sys.stderr = _Tee(sys.stderr, log)


class _Tee:
    """The user's terminal, and the file for last words beside it."""

    def __init__(self, terminal: Any, log: int) -> None:
        self._terminal = terminal
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._terminal, name)

    def write(self, text: str) -> int:
        if os.fstat(self._log).st_size > LOG_BYTES:
            os.ftruncate(self._log, 0)
            os.lseek(self._log, 0, os.SEEK_SET)
        os.write(self._log, text.encode(errors="replace"))
        return self._terminal.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)
