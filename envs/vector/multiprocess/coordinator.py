"""Coordinator of worker processes with shared buffers: sends commands, receives results, replaces failed workers.

Each worker owns one or more blocks of consecutive rows, and steps one block while the caller processes another.
Transitions of `_task`, the current task of a block:

    STARTING --- built ---> None <--- done, rows READY --- rows     more rows are queued until the task ends
       ^                    |  ^
       |                    |  +----- reply -------------- CALLING  a method of EnvSlots: `call`, `_replace`
       |                    +------- step, call --------> rows, CALLING
       |
       +--- restart -------------- failed <--- worker died or hung during a task, or an environment raised
            (rows READY or LOST)     |
                                     +--- no restart, or too many failures: error, rows NEW ---> None
"""

import logging
import pickle
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import cloudpickle
import numpy as np

from paddock.envs.errors import PaddockError
from paddock.envs.vector.contract import EnvError
from paddock.envs.vector.multiprocess.process import WorkerProcess
from paddock.envs.vector.multiprocess.shared import (
    ANSWERS,
    CALL,
    DONE,
    FAILED,
    IDLE,
    STEP,
    STEP_CHOSEN,
    EventFd,
    SharedBuffers,
)
from paddock.envs.vector.multiprocess.worker import WorkerJob
from paddock.envs.vector.slots import NO_ENV
from paddock.envs.vector.storage import RowIndex, numbers
from paddock.envs.vector.table import LOST, NEW, READY, SENT, Table

MAX_RESTARTS = 3  # after consecutive failures of a block; the next failure is raised
START_S = 60.0  # minimum time limit for a process to start
POLL_S = 0.1  # interval of checks for dead workers while waiting
CALLING, STARTING = "calling", "starting"  # values of `_task` other than rows to step

Message = tuple[Any, ...]  # method of EnvSlots, and its arguments

log = logging.getLogger("paddock.envs.vector")


class Coordinator:
    """Coordinator of the workers, which write results to the table; READY rows can be received."""

    def __init__(
        self,
        jobs: Sequence[WorkerJob],
        buffers: SharedBuffers,
        events: Sequence[EventFd],
        table: Table,
        processes: list[WorkerProcess],
        restore: Callable[[], Callable[[int], list[Message]] | None],
        *,
        restart: bool,
        timeout_s: float,
    ) -> None:
        """Start the workers and wait until their environments are built.

        Args:
            jobs: one per worker.
            buffers: shared memory.
            events: event of the parent, then one per worker.
            table: states of the rows and batches for the caller.
            processes: empty list, updated in place with the current processes.
            restore: weak reference to a function that returns a block's messages for restoring it in a new worker.
            restart: replace workers that die, hang or raise, and truncate their episodes.
            timeout_s: time limit for a step or reset of one environment.

        Raises:
            EnvError: a worker failed to start.
        """
        self.restarts = 0
        self.rows = [jobs[0].rows(block) for block in range(jobs[0].blocks)]  # rows of each block
        self._block_size = table.num_envs // len(self.rows)
        self._ids = [np.arange(part.start, part.stop) for part in self.rows]
        self._jobs, self._buffers, self._table, self._processes = jobs, buffers, table, processes
        self._ready, *self._events = events
        self._restore, self._restart, self._timeout_s = restore, restart, timeout_s
        self._task: list[RowIndex | str | None] = [None] * len(self.rows)
        self._queue: list[list[RowIndex]] = [[] for _ in self.rows]  # rows sent to a busy block
        self._arrived: dict[int, None] = {}  # blocks with READY rows, in order of arrival
        self._messages: dict[int, bytes] = {}  # unread messages from workers, by block
        self._results: dict[int, Any] = {}  # results of calls, by block
        self._failed: dict[int, tuple[int, PaddockError]] = {}  # by worker: (failed block, error)
        self._num_failures = [0] * len(self.rows)  # consecutive failures, by block
        self._since = [(NO_ENV, 0.0)] * len(jobs)  # (running environment, start time)
        self._next_check = 0.0
        for job in jobs:
            processes.append(WorkerProcess(job, timeout_s))
            self._watch_start(job.number)
        self._await_start(range(len(jobs)))

    def step(self, rows: RowIndex) -> None:
        """Start stepping these rows with the table's actions."""
        table = self._table
        if self._restart:
            table.back_up(rows)
        if LOST in table.states(rows):  # truncated when their worker failed; results are already in the buffers
            ids = np.arange(table.num_envs)[rows]
            lost = table.flag[ids] == LOST[0]
            self._receive_lost(ids[lost])
            rows = ids[~lost]
        table.set_state(SENT, rows)
        for block, part in self.split(rows).items():
            self._step_block(block, part)

    def split(self, rows: RowIndex) -> dict[int, RowIndex]:
        """Group rows by block."""
        size = self._block_size
        if isinstance(rows, slice) and rows.start % size == rows.stop % size == 0:
            return {block: self.rows[block] for block in range(rows.start // size, rows.stop // size)}
        ids = np.sort(np.arange(self._table.num_envs)[rows])
        firsts = ids[::size]
        if len(ids) % size == 0 and not (firsts % size).any() and (ids[size - 1 :: size] == firsts + size - 1).all():
            return {block: self.rows[block] for block in (firsts // size).tolist()}
        blocks = ids // size
        return {block: ids[blocks == block] for block in np.unique(blocks).tolist()}

    def wait_for(self, rows: RowIndex) -> None:
        """Wait until these rows are READY.

        Raises:
            EnvError: an environment raised, or its process died or hung.
        """
        waiting, count = self._table.states, len(numbers(rows))
        self._wait_until(lambda: waiting(rows).count(READY) == count)

    def wait_for_any(self, size: int) -> RowIndex:
        """Wait for `size` READY rows and return the earliest; raise the same errors as `wait_for`."""
        table, chosen, found = self._table, list[Any](), 0
        self._wait_until(lambda: table.flags.count(READY) >= size)
        for block in list(self._arrived):
            ids = self._ids[block]
            if table.flags.count(READY, self.rows[block].start, self.rows[block].stop) < self._block_size:
                ids = ids[table.flag[ids] == READY[0]]  # some rows were already received by index
            if not len(ids):
                del self._arrived[block]
                continue
            chosen.append(ids[: size - found])
            found += len(chosen[-1])
            if found == size:
                break
        rows = np.sort(np.concatenate(chosen))
        return slice(int(rows[0]), int(rows[-1]) + 1) if rows[-1] - rows[0] == size - 1 else rows

    def wait_for_first(self, groups: Iterable[RowIndex], interrupted: Callable[[], bool]) -> int | None:
        """See `MultiprocessVectorEnv.wait_for_first`; raise the same errors as `wait_for`."""
        while True:
            for k, rows in enumerate(groups):
                waiting = self._table.states(rows)
                if waiting.count(READY) == len(waiting):
                    return k
            if interrupted():
                return None
            self._wait(spin=False)  # spinning would block other threads, as it holds the GIL
            self._handle_failures()

    def interrupt_wait(self) -> None:
        """Wake the waiting thread; safe to call from any thread."""
        self._ready.notify()

    def wait_idle(self, blocks: Collection[int]) -> None:
        """Wait until these blocks have no task; raise the same errors as `wait_for`."""
        self._wait_until(lambda: all(self._task[block] is None for block in blocks))

    def call(self, messages: dict[int, Message], retry: bool) -> dict[int, Any]:
        """Call methods on blocks in their workers, and return the results by block.

        Args:
            messages: method and arguments, by block.
            retry: if an environment raises, replace its worker and repeat the call, as after a crash.

        Raises:
            EnvError: an environment raised, or its process died or hung.
        """
        calling: dict[int, WorkerProcess] = {}
        while any(calling.get(block) is not self._process(block) for block in messages):
            for block, message in messages.items():
                if calling.get(block) is not self._process(block):  # first call, or its process was replaced
                    self.wait_idle(self._jobs[self._worker(block)].own)
                    self._results.pop(block, None)
                    calling[block] = self._process(block)
                    self._send(block, message)
            self.wait_idle(messages)
            for block in messages:
                if retry and isinstance(error := self._results.get(block), PaddockError):
                    self._failed.setdefault(self._worker(block), (block, error))
            self._handle_failures()
        results = {block: self._results.pop(block) for block in messages}
        for result in results.values():
            if isinstance(result, PaddockError):
                raise result
        return results

    def _worker(self, block: int) -> int:
        return block % len(self._jobs)

    def _process(self, block: int) -> WorkerProcess:
        return self._processes[self._worker(block)]

    def _watch_start(self, w: int) -> None:
        self._buffers.active_env[w] = NO_ENV
        self._since[w] = NO_ENV, time.monotonic()
        for block in self._jobs[w].own:
            self._task[block] = STARTING

    def _await_start(self, workers: Collection[int]) -> None:
        """Wait until workers have built their environments; raise the first error."""
        blocks = [block for w in workers for block in self._jobs[w].own]
        while any(self._task[block] is not None for block in blocks):
            self._wait()
            self._raise_failure(workers)

    def _raise_failure(self, workers: Iterable[int]) -> None:
        for w in workers:
            if w in self._failed:
                raise self._failed.pop(w)[1]

    def _send(self, block: int, message: Message) -> None:
        data = cloudpickle.dumps(message)  # may raise; after the command, the worker waits for the data
        w = self._worker(block)
        self._assign(block, CALLING, CALL)
        if not self._processes[w].send(data):
            self._fail(w, block, self._processes[w].hang(self._buffers.active_env[w], self._timeout_s))

    def _step_block(self, block: int, rows: RowIndex) -> None:
        """Step rows of a block, once its current task and queued rows are done."""
        if self._task[block] is not None:
            self._queue[block].append(rows)
        elif isinstance(rows, slice):
            self._assign(block, rows, STEP)
        else:
            self._buffers.chosen[self.rows[block]] = False
            self._buffers.chosen[rows] = True
            self._assign(block, rows, STEP_CHOSEN)

    def _assign(self, block: int, task: RowIndex | str, command: int) -> None:
        w = self._worker(block)
        if all(self._task[own] is None for own in self._jobs[w].own):
            self._since[w] = NO_ENV, time.monotonic()
        self._task[block] = task
        self._buffers.state[block] = command
        self._events[w].notify()

    def _wait_until(self, done: Callable[[], bool]) -> None:
        self._handle_failures()
        while not done():
            self._wait()
            self._handle_failures()

    def _wait(self, spin: bool = True) -> None:
        """Wait for results, process those that arrived, and check the workers every POLL_S seconds."""
        notified = self._ready.wait(POLL_S, spin=spin)
        for block, task in enumerate(self._task):
            if task is not None and self._buffers.state[block] in ANSWERS:
                self._receive(block)
        if not notified or time.monotonic() > self._next_check:
            self._check_workers()

    def _receive(self, block: int) -> None:
        w, state, task = self._worker(block), self._buffers.state[block], self._task[block]
        reply: Any = None
        if state != DONE:
            try:
                while block not in self._messages:  # messages of the worker's other blocks may arrive first
                    sender, message = self._processes[w].receive(self._timeout_s)
                    self._messages[sender] = message
                reply = pickle.loads(self._messages.pop(block))
            except EOFError:
                self._fail(w, block, self._processes[w].death(self._buffers.active_env[w]))
                return
        if task is STARTING and state == FAILED:  # record this before the process exits: its exit code says less
            self._fail(w, block, reply)
            return
        self._buffers.state[block] = IDLE
        self._task[block] = None
        self._since[w] = NO_ENV, time.monotonic()
        if isinstance(task, str):
            self._results[block] = reply
        elif state == FAILED:
            self._failed.setdefault(w, (block, reply))
            if not self._restart and task is not None:
                self._drop(task)
        elif task is not None:
            self._num_failures[block] = 0
            self._table.add_infos(task, reply or {})
            self._table.set_state(READY, task)
            self._arrived.pop(block, None)
            self._arrived[block] = None
        if self._queue[block] and not (w in self._failed and self._restart):
            self._step_block(block, self._queue[block].pop(0))

    def _receive_lost(self, ids: Any) -> None:
        """Set rows READY without a step, without changing the arrival order of their blocks."""
        self._table.set_state(READY, ids)
        self._arrived |= dict.fromkeys((ids // self._block_size).tolist())

    def _check_workers(self) -> None:
        """Find workers that died or hang, and record their failures."""
        self._next_check = time.monotonic() + POLL_S
        for w, process in enumerate(self._processes):
            alive = process.child.popen.poll() is None  # first, because a worker may exit after writing its result
            busy = [block for block in self._jobs[w].own if self._task[block] is not None]
            if not busy or any(self._buffers.state[block] in ANSWERS for block in busy):
                continue
            starting = any(self._task[block] is STARTING for block in busy)
            limit_s = max(self._timeout_s, START_S) if starting else self._timeout_s
            active_env = self._buffers.active_env[w]
            env, since = self._since[w]
            if not alive:
                self._fail(w, busy[0], process.death(active_env))
            elif active_env != env:
                self._since[w] = active_env, time.monotonic()
            elif time.monotonic() - since > limit_s:
                self._fail(w, busy[0], process.hang(active_env, limit_s))

    def _fail(self, w: int, block: int, error: PaddockError) -> None:
        """Kill a failed worker, and record the error for the waiting caller."""
        env = self._buffers.active_env[w]
        failed = next((own for own in self._jobs[w].own if env in self._jobs[w].envs(own)), block)
        self._failed.setdefault(w, (failed, error))
        self._end(w)
        if not self._restart:
            for own in self._jobs[w].own:
                self._drop(self.rows[own])

    def _end(self, w: int) -> None:
        self._processes[w].child.kill()
        for block in self._jobs[w].own:
            self._task[block] = None
            self._queue[block].clear()
            self._results.pop(block, None)
            self._messages.pop(block, None)
            self._buffers.state[block] = IDLE

    def _drop(self, rows: RowIndex) -> None:
        self._table.drop_infos(rows)
        self._table.set_state(NEW, rows)

    def _handle_failures(self) -> None:
        while self._failed:
            self._recover(next(iter(self._failed)))

    def _recover(self, w: int) -> None:
        """Replace a failed worker and truncate its episodes, or raise its error if `restart` is off."""
        block, error = self._failed.pop(w)
        if not self._restart:
            self._failed.clear()
            raise error
        self._end(w)  # otherwise it could continue to step its other blocks
        ready = self._table.truncate_lost(np.concatenate([self._ids[own] for own in self._jobs[w].own]))
        self._arrived |= dict.fromkeys((ready // self._block_size).tolist())
        while self._num_failures[block] < MAX_RESTARTS:
            self._num_failures[block] += 1
            problem = str(error).partition("\n")[0].partition(";")[0]
            log.warning("%s; the worker will be replaced and its episodes truncated", problem)
            try:
                self._replace(w)
                return
            except PaddockError as next_error:
                error = next_error
        self._end(w)
        for own in self._jobs[w].own:
            self._num_failures[own] = 0
            self._drop(self.rows[own])
        problem, _, traceback = str(error).partition("\n")
        raise EnvError(f"{problem} (the worker failed {MAX_RESTARTS + 1} times in a row)\n{traceback}".rstrip())

    def _replace(self, w: int) -> None:
        """Start a new process for a worker; the caller handles failures of other workers.

        Raises:
            PaddockError: the process failed to start or to restore its environments.
        """
        self._end(w)
        process = WorkerProcess(self._jobs[w], self._timeout_s)
        self._processes[w].close()
        self._processes[w] = process
        self._watch_start(w)
        self._await_start([w])
        restore = self._restore()
        assert restore is not None
        for block in self._jobs[w].own:
            for message in restore(block):
                self._send(block, message)
                while self._task[block] is not None:
                    self._wait()
                    self._raise_failure([w])
                result = self._results.pop(block)
                if isinstance(result, PaddockError):
                    raise result
                self._table.add_infos(message[1], result)
        self.restarts += 1
