"""Coordinator of W worker processes with shared buffers: sends orders, receives answers, replaces lost workers.

Each worker has one or more blocks of consecutive rows, and steps one block while the caller uses another.
States of a block's task, `_task`:

    STARTING --- built ---> None <--- done, rows READY --- rows     further rows are queued and follow at once
       ^                    |  ^
       |                    |  +----- reply -------------- CALLING  a method of its slots: `call`, `_restore`
       |                    +------- step, call --------> rows, CALLING
       |
       +--- restart -------------- failed <--- worker died or hung with a task, or an environment raised
            (rows READY or LOST)     |
                                     +--- no restart, or failed too often: raised, rows NEW ---> None
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

LOSSES_IN_A_ROW = 3  # consecutive failures of a block, after which the error is raised
START_S = 60.0  # minimum time limit for a process to start
POLL_S = 0.1  # interval of checks for dead workers while waiting
CALLING, STARTING = "calling", "starting"  # tasks of a block other than rows to step

Message = tuple[Any, ...]  # a method of the slots and its arguments

log = logging.getLogger("paddock.envs.vector")


class Coordinator:
    """The workers; their results are written to the table, whose READY rows can be received."""

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
            buffers: the shared memory.
            events: the parent's, then each worker's.
            table: the caller's side of the buffers.
            processes: an empty list, in which the current processes are kept.
            restore: weak reference to a function that returns the messages that restore a block in a new worker.
            restart: replace workers that die, hang or raise; their episodes are truncated.
            timeout_s: time limit of one environment's step or reset.

        Raises:
            EnvError: a worker did not start.
        """
        self.restarts = 0
        self.rows = [jobs[0].rows(block) for block in range(jobs[0].blocks)]  # each block's environments
        self._each = table.num_envs // len(self.rows)
        self._ids = [np.arange(part.start, part.stop) for part in self.rows]
        self._jobs, self._buffers, self._table, self._processes = jobs, buffers, table, processes
        self._ready, *self._events = events
        self._restore, self._restart, self._timeout_s = restore, restart, timeout_s
        self._task: list[RowIndex | str | None] = [None] * len(self.rows)
        self._queue: list[list[RowIndex]] = [[] for _ in self.rows]  # rows sent to a block while it was busy
        self._arrived: dict[int, None] = {}  # blocks with READY rows, in order of arrival
        self._messages: dict[int, bytes] = {}  # unread messages from workers, by block
        self._answers: dict[int, Any] = {}  # results of calls, by block
        self._failed: dict[int, tuple[int, PaddockError]] = {}  # by worker: the block that failed, and the error
        self._losses = [0] * len(self.rows)  # consecutive failures, by block
        self._since = [(NO_ENV, 0.0)] * len(jobs)  # (running environment, start time)
        self._next_check = 0.0
        for job in jobs:
            processes.append(WorkerProcess(job, timeout_s))
            self._watch_start(job.number)
        self._await_start(range(len(jobs)))

    def step(self, rows: RowIndex) -> None:
        """Order these rows to step with the table's actions."""
        table = self._table
        if self._restart:
            table.back_up(rows)
        if LOST in table.states(rows):  # truncated with a lost process; the buffers have the results
            ids = np.arange(table.num_envs)[rows]
            lost = table.flag[ids] == LOST[0]
            self._receive_lost(ids[lost])
            rows = ids[~lost]
        table.set_state(SENT, rows)
        for block, part in self.split(rows).items():
            self._order(block, part)

    def split(self, rows: RowIndex) -> dict[int, RowIndex]:
        """Return the blocks of these rows, and the rows in each."""
        each = self._each
        if isinstance(rows, slice) and rows.start % each == rows.stop % each == 0:
            return {block: self.rows[block] for block in range(rows.start // each, rows.stop // each)}
        ids = np.sort(np.arange(self._table.num_envs)[rows])
        firsts = ids[::each]
        if len(ids) % each == 0 and not (firsts % each).any() and (ids[each - 1 :: each] == firsts + each - 1).all():
            return {block: self.rows[block] for block in (firsts // each).tolist()}
        owners = ids // each
        return {block: ids[owners == block] for block in np.unique(owners).tolist()}

    def wait_for(self, rows: RowIndex) -> None:
        """Wait until these rows are READY.

        Raises:
            EnvError: an environment raised, or its process died or hung.
        """
        waiting, count = self._table.states, len(numbers(rows))
        self._wait_until(lambda: waiting(rows).count(READY) == count)

    def wait_for_any(self, size: int) -> RowIndex:
        """Wait for `size` rows and return those that were READY first; raise as `wait_for` does."""
        table, chosen, found = self._table, list[Any](), 0
        self._wait_until(lambda: table.flags.count(READY) >= size)
        for block in list(self._arrived):
            ids = self._ids[block]
            if table.flags.count(READY, self.rows[block].start, self.rows[block].stop) < self._each:
                ids = ids[table.flag[ids] == READY[0]]  # some were received by index
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
        """See `MultiprocessVectorEnv.wait_for_first`; raise as `wait_for` does."""
        while True:
            for k, rows in enumerate(groups):
                waiting = self._table.states(rows)
                if waiting.count(READY) == len(waiting):
                    return k
            if interrupted():
                return None
            self._wait(spin=False)  # spinning would keep the GIL from other threads
            self._handle_failures()

    def interrupt_wait(self) -> None:
        """Wake the waiting thread; may be called by any thread."""
        self._ready.notify()

    def wait_idle(self, blocks: Collection[int]) -> None:
        """Wait until these blocks have no task; raise as `wait_for` does."""
        self._wait_until(lambda: all(self._task[block] is None for block in blocks))

    def call(self, messages: dict[int, Message], retry: bool) -> dict[int, Any]:
        """Call a method of the slots of some blocks in their workers; return the results.

        Args:
            messages: by block.
            retry: replace a worker whose environment raises and call it again, as after a crash.

        Raises:
            EnvError: an environment raised, or its process died or hung.
        """
        calling: dict[int, WorkerProcess] = {}
        while any(calling.get(block) is not self._process(block) for block in messages):
            for block, message in messages.items():
                if calling.get(block) is not self._process(block):  # else its answer was lost with its process
                    self.wait_idle(self._jobs[self._worker(block)].own)
                    self._answers.pop(block, None)
                    calling[block] = self._process(block)
                    self._send(block, message)
            self.wait_idle(messages)
            for block in messages:
                if retry and isinstance(error := self._answers.get(block), PaddockError):
                    self._failed.setdefault(self._worker(block), (block, error))
            self._handle_failures()
        answers = {block: self._answers.pop(block) for block in messages}
        for answer in answers.values():
            if isinstance(answer, PaddockError):
                raise answer
        return answers

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
        """Wait until workers have built their environments; raise the error of one that could not."""
        blocks = [block for w in workers for block in self._jobs[w].own]
        while any(self._task[block] is not None for block in blocks):
            self._wait()
            self._raise_failure(workers)

    def _raise_failure(self, workers: Iterable[int]) -> None:
        for w in workers:
            if w in self._failed:
                raise self._failed.pop(w)[1]

    def _send(self, block: int, message: Message) -> None:
        """Send a call to a block whose worker has no task."""
        data = cloudpickle.dumps(message)  # may raise, so before the order, after which the worker waits for it
        w = self._worker(block)
        self._assign(block, CALLING, CALL)
        if not self._processes[w].send(data):
            self._fail(w, block, self._processes[w].hang(self._buffers.active_env[w], self._timeout_s))

    def _order(self, block: int, rows: RowIndex) -> None:
        """Order rows of a block to step, after its earlier orders."""
        if self._task[block] is not None:
            self._queue[block].append(rows)
        elif isinstance(rows, slice):
            self._assign(block, rows, STEP)
        else:
            self._buffers.chosen[self.rows[block]] = False
            self._buffers.chosen[rows] = True
            self._assign(block, rows, STEP_CHOSEN)

    def _assign(self, block: int, task: RowIndex | str, order: int) -> None:
        w = self._worker(block)
        if all(self._task[own] is None for own in self._jobs[w].own):
            self._since[w] = NO_ENV, time.monotonic()
        self._task[block] = task
        self._buffers.state[block] = order
        self._events[w].notify()

    def _wait_until(self, done: Callable[[], bool]) -> None:
        self._handle_failures()
        while not done():
            self._wait()
            self._handle_failures()

    def _wait(self, spin: bool = True) -> None:
        """Wait for an answer, process the answers that have arrived, and regularly check for dead workers."""
        came = self._ready.wait(POLL_S, spin=spin)
        for block, task in enumerate(self._task):
            if task is not None and self._buffers.state[block] in ANSWERS:
                self._receive(block)
        if not came or time.monotonic() > self._next_check:
            self._check_workers()

    def _receive(self, block: int) -> None:
        """Process the answer of a block."""
        w, state, task = self._worker(block), self._buffers.state[block], self._task[block]
        reply: Any = None
        if state != DONE:
            try:
                while block not in self._messages:  # messages of the worker's other blocks may arrive first
                    of, message = self._processes[w].receive(self._timeout_s)
                    self._messages[of] = message
                reply = pickle.loads(self._messages.pop(block))
            except EOFError:
                self._fail(w, block, self._processes[w].death(self._buffers.active_env[w]))
                return
        if task is STARTING and state == FAILED:  # the process then exits, which explains less
            self._fail(w, block, reply)
            return
        self._buffers.state[block] = IDLE
        self._task[block] = None
        self._since[w] = NO_ENV, time.monotonic()
        if isinstance(task, str):
            self._answers[block] = reply
        elif state == FAILED:
            self._failed.setdefault(w, (block, reply))
            if not self._restart and task is not None:
                self._drop(task)
        elif task is not None:
            self._losses[block] = 0
            self._table.add_infos(task, reply or {})
            self._table.set_state(READY, task)
            self._arrived.pop(block, None)
            self._arrived[block] = None
        if self._queue[block] and not (w in self._failed and self._restart):
            self._order(block, self._queue[block].pop(0))

    def _receive_lost(self, ids: Any) -> None:
        """Set rows READY without a step; their blocks keep their order of arrival."""
        self._table.set_state(READY, ids)
        self._arrived |= dict.fromkeys((ids // self._each).tolist())

    def _check_workers(self) -> None:
        """Fail workers that have died or make no progress."""
        self._next_check = time.monotonic() + POLL_S
        for w, process in enumerate(self._processes):
            alive = process.child.popen.poll() is None  # before reading the answers, as it may die in between
            busy = [block for block in self._jobs[w].own if self._task[block] is not None]
            if not busy or any(self._buffers.state[block] in ANSWERS for block in busy):
                continue
            starting = any(self._task[block] is STARTING for block in busy)
            patience_s = max(self._timeout_s, START_S) if starting else self._timeout_s
            active_env = self._buffers.active_env[w]
            at, since = self._since[w]
            if not alive:
                self._fail(w, busy[0], process.death(active_env))
            elif active_env != at:
                self._since[w] = active_env, time.monotonic()
            elif time.monotonic() - since > patience_s:
                self._fail(w, busy[0], process.hang(active_env, patience_s))

    def _fail(self, w: int, block: int, error: PaddockError) -> None:
        """Kill a worker that died or hangs, and record the failure for the waiting caller."""
        at = self._buffers.active_env[w]
        at_fault = next((own for own in self._jobs[w].own if at in self._jobs[w].envs(own)), block)
        self._failed.setdefault(w, (at_fault, error))
        self._end(w)
        if not self._restart:
            for own in self._jobs[w].own:
                self._drop(self.rows[own])

    def _end(self, w: int) -> None:
        """Kill a process if it runs, and drop its tasks."""
        self._processes[w].child.kill()
        for block in self._jobs[w].own:
            self._task[block] = None
            self._queue[block].clear()
            self._answers.pop(block, None)
            self._messages.pop(block, None)
            self._buffers.state[block] = IDLE

    def _drop(self, rows: RowIndex) -> None:
        self._table.drop_infos(rows)
        self._table.set_state(NEW, rows)

    def _handle_failures(self) -> None:
        while self._failed:
            self._recover(next(iter(self._failed)))

    def _recover(self, w: int) -> None:
        """Replace a failed worker and truncate its episodes, or raise its error if workers are not replaced."""
        block, error = self._failed.pop(w)
        if not self._restart:
            self._failed.clear()
            raise error
        self._end(w)  # else it might step another block, whose steps are lost
        ready = self._table.truncate_lost(np.concatenate([self._ids[own] for own in self._jobs[w].own]))
        self._arrived |= dict.fromkeys((ready // self._each).tolist())
        while self._losses[block] < LOSSES_IN_A_ROW:
            self._losses[block] += 1
            what = str(error).partition("\n")[0].partition(";")[0]
            log.warning("%s; its worker is replaced and its episodes end truncated", what)
            try:
                self._replace(w)
                return
            except PaddockError as other:
                error = other
        self._end(w)
        for own in self._jobs[w].own:
            self._losses[own] = 0
            self._drop(self.rows[own])
        what, _, trace = str(error).partition("\n")
        raise EnvError(f"{what} (the same worker failed {LOSSES_IN_A_ROW + 1} times in a row)\n{trace}".rstrip())

    def _replace(self, w: int) -> None:
        """Start a new process for a worker; failures of other workers are left to the caller.

        Raises:
            PaddockError: the process did not start, or could not restore its environments.
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
                answer = self._answers.pop(block)
                if isinstance(answer, PaddockError):
                    raise answer
                self._table.add_infos(message[1], answer)
        self.restarts += 1
