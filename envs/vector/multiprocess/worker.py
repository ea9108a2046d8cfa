"""Worker process of `MultiprocessVectorEnv`: steps environments on commands from the parent process."""

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
from paddock.envs.machine import usable_cores
from paddock.envs.parent import leave_to_parent
from paddock.envs.spec import EnvSpec
from paddock.envs.vector.contract import EnvError
from paddock.envs.vector.multiagent_slots import slots_of
from paddock.envs.vector.multiprocess.shared import (
    CALL,
    COMMANDS,
    DONE,
    FAILED,
    REPLIED,
    STEP,
    Arena,
    EventFd,
    SharedBuffers,
)
from paddock.envs.vector.slots import NO_ENV, EnvSlots, build
from paddock.envs.vector.storage import Layouts

WAIT_S = 60.0  # timeout of a single wait for commands


@dataclass(frozen=True)
class WorkerJob:
    """Configuration of a worker; its file descriptors have the same numbers in the parent process."""

    number: int  # index of the worker
    workers: int  # W, number of workers
    blocks: int  # B, number of blocks of all workers
    num_envs: int  # N, number of rows of all workers
    spec: EnvSpec
    registered: Any  # Gymnasium's registry entry if the environment was registered in the parent, else None
    layouts: Layouts
    autoreset: AutoresetMode
    memory: int  # file descriptor of the buffers
    events: tuple[int, int]  # file descriptors of the worker's event and the parent's event
    log: int  # file descriptor to which tracebacks are written

    @property
    def own(self) -> range:
        """Return the indices of the worker's blocks."""
        return range(self.number, self.blocks, self.workers)

    def rows(self, block: int) -> slice:
        """Return the rows of a block."""
        size = self.num_envs // self.blocks
        return slice(block * size, (block + 1) * size)

    def envs(self, block: int) -> range:
        """Return the indices of a block's environments."""
        rows, seats = self.rows(block), self.layouts.seats
        return range(rows.start // seats, rows.stop // seats)


def main(connection: Connection) -> None:
    """Run a worker until the parent process closes it."""
    try:
        job: WorkerJob = pickle.loads(connection.recv_bytes())
    except EOFError:
        return
    leave_to_parent(signal.SIGTERM)
    faulthandler.enable(job.log)  # the parent reads the tracebacks of fatal signals
    faulthandler.register(signal.SIGUSR1, job.log)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError, EOFError):  # the parent has closed the connection
        Worker(job, connection).serve()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # faster than a regular exit, which takes a second with large libraries


class Worker:
    """Environments of one worker process, and its view of the shared buffers."""

    def __init__(self, job: WorkerJob, connection: Connection) -> None:
        memory = Arena(job.memory)
        self.buffers = SharedBuffers.lay_out(job.layouts, job.num_envs, job.workers, job.blocks, memory.new)
        self.job, self.connection = job, connection
        self.event, self.parent_event = map(EventFd, job.events)

    def serve(self) -> None:
        """Build the environments and execute commands until the parent closes the worker."""
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
        spin = job.workers <= usable_cores()  # more would take the cores from one another
        gc.freeze()  # exclude the existing objects from garbage collection
        for block in job.own:
            self._send(block, REPLIED, None)
        try:
            while not self.buffers.closed[0]:
                pending = [(block, slots) for block, slots in blocks if state[block] in COMMANDS]
                if not pending:
                    self.event.wait(WAIT_S, spin)
                for block, slots in pending:
                    self._execute(block, slots)
        finally:  # also if the parent closes the worker before reading a reply
            for _, slots in blocks:
                slots.close()

    def _build(self, block: int) -> EnvSlots:
        job, active_env = self.job, self.buffers.active_env[self.job.number : self.job.number + 1]
        envs, first = build(job.spec, job.envs(block), active_env), job.envs(block).start
        slots_class = slots_of(job.layouts)
        return slots_class(job.spec, envs, first, self.buffers.arrays, job.layouts, job.autoreset, active_env)

    def _execute(self, block: int, slots: EnvSlots) -> None:
        rows, command = self.job.rows(block), self.buffers.state[block]
        try:
            if command == CALL:
                method, *arguments = pickle.loads(self.connection.recv_bytes())
                self._send(block, REPLIED, method(slots, *arguments))
                return
            chosen = rows if command == STEP else rows.start + np.flatnonzero(self.buffers.chosen[rows])
            infos = slots.step(chosen)
        except PaddockError as error:
            self._send(block, FAILED, error)
            return
        if infos:
            self._send(block, REPLIED, infos)
        else:
            self.buffers.state[block] = DONE
            self.parent_event.notify()

    def _send(self, block: int, state: int, value: Any) -> None:
        """Send a value after setting the state, because a large message blocks until the parent reads it."""
        try:
            message = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            text = f"worker {self.job.number} cannot pickle infos or results ({one_line(error)})"
            state, message = FAILED, pickle.dumps(EnvError(f"{text}; return only picklable data"))
        self.buffers.active_env[self.job.number] = NO_ENV
        self.buffers.state[block] = state
        self.parent_event.notify()
        self.connection.send_bytes(block.to_bytes(4, "little") + message)
