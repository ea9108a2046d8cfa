"""Worker process of `MultiprocessVectorEnv`, which steps environments on the parent's orders."""

import contextlib
import faulthandler
import gc
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

from paddock.envs.errors import PaddockError, one_line
from paddock.envs.parent import leave_to_parent
from paddock.envs.spec import EnvSpec
from paddock.envs.vector.contract import EnvError
from paddock.envs.vector.multiagent_slots import slots_of
from paddock.envs.vector.multiprocess.shared import (
    CALL,
    DONE,
    FAILED,
    ORDERS,
    REPLIED,
    STEP,
    Arena,
    EventFd,
    SharedBuffers,
)
from paddock.envs.vector.slots import NO_ENV, EnvSlots, build
from paddock.envs.vector.storage import Layouts

WAIT_S = 60.0  # timeout of a single wait for orders


@dataclass(frozen=True)
class WorkerJob:
    """Job of a worker; file descriptors are the same in both processes."""

    number: int  # index of the worker
    workers: int  # W
    blocks: int  # B, of all workers
    num_envs: int  # N, rows of all workers
    spec: EnvSpec
    registered: Any  # Gymnasium's registry entry if the parent registered the environment, else None
    layouts: Layouts
    autoreset: AutoresetMode
    memory: int  # file descriptor of the buffers
    events: tuple[int, int]  # file descriptors of the worker's event and of the parent's
    log: int  # file descriptor for tracebacks

    @property
    def own(self) -> range:
        """Return the indices of the worker's blocks."""
        return range(self.number, self.blocks, self.workers)

    def rows(self, block: int) -> slice:
        """Return the rows of a block."""
        each = self.num_envs // self.blocks
        return slice(block * each, (block + 1) * each)

    def envs(self, block: int) -> range:
        """Return the indices of a block's environments."""
        rows, seats = self.rows(block), self.layouts.seats
        return range(rows.start // seats, rows.stop // seats)


def main(connection: Connection) -> None:
    """Serve the process that started this one."""
    try:
        job: WorkerJob = pickle.loads(connection.recv_bytes())
    except EOFError:
        return
    leave_to_parent(signal.SIGTERM)
    faulthandler.enable(job.log)  # the parent reads tracebacks of fatal signals
    faulthandler.register(signal.SIGUSR1, job.log)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError, EOFError):  # the parent is closing
        Worker(job, connection).serve()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a regular exit with large libraries takes a second


class Worker:
    """The environments of one process, and its side of the shared buffers."""

    def __init__(self, job: WorkerJob, connection: Connection) -> None:
        """Map the buffers."""
        memory = Arena(job.memory)
        self.buffers = SharedBuffers.lay_out(job.layouts, job.num_envs, job.workers, job.blocks, memory.new)
        self.job, self.connection = job, connection
        self.own, self.parent = map(EventFd, job.events)

    def serve(self) -> None:
        """Build the environments and execute orders until the parent closes."""
        job, state = self.job, self.buffers.state
        if job.registered is not None:
            gymnasium.registry.setdefault(job.registered.id, job.registered)
        blocks: list[tuple[int, EnvSlots]] = []
        try:
            for block in job.own:
                blocks.append((block, self._build(block)))
        except PaddockError as error:
            for _, slots in blocks:
                slots.close()
            self._send(job.number, FAILED, error)
            return
        gc.freeze()  # the garbage collector skips all objects so far
        for block in job.own:
            self._send(block, REPLIED, None)
        try:
            while not self.buffers.closed[0]:
                due = [(block, slots) for block, slots in blocks if state[block] in ORDERS]
                if not due:
                    self.own.wait(WAIT_S)
                for block, slots in due:
                    self._execute(block, slots)
        finally:  # also if the parent closed before reading an answer
            for _, slots in blocks:
                slots.close()

    def _build(self, block: int) -> EnvSlots:
        """Build a block's environments."""
        job, active_env = self.job, self.buffers.active_env[self.job.number : self.job.number + 1]
        envs, first = build(job.spec, job.envs(block), active_env), job.envs(block).start
        kind = slots_of(job.layouts)
        return kind(job.spec, envs, first, self.buffers.arrays, job.layouts, job.autoreset, active_env)

    def _execute(self, block: int, slots: EnvSlots) -> None:
        """Execute a block's order and answer."""
        rows, order = self.job.rows(block), self.buffers.state[block]
        try:
            if order == CALL:
                method, *arguments = pickle.loads(self.connection.recv_bytes())
                self._send(block, REPLIED, method(slots, *arguments))
                return
            chosen = rows if order == STEP else rows.start + np.flatnonzero(self.buffers.chosen[rows])
            infos = slots.step(chosen)
        except PaddockError as error:
            self._send(block, FAILED, error)
            return
        if infos:
            self._send(block, REPLIED, infos)
        else:
            self.buffers.state[block] = DONE
            self.parent.notify()

    def _send(self, block: int, state: int, what: Any) -> None:
        """Send an object to the parent, after the state that announces it: it may exceed the connection's buffer."""
        try:
            message = pickle.dumps(what, pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            text = f"worker {self.job.number}: infos or results cannot be pickled ({one_line(error)})"
            state, message = FAILED, pickle.dumps(EnvError(f"{text}; return plain data"))
        self.buffers.active_env[self.job.number] = NO_ENV
        self.buffers.state[block] = state
        self.parent.notify()
        self.connection.send_bytes(block.to_bytes(4, "little") + message)
