"""W worker processes at shared buffers: orders go out, answers come in, losses are named and replaced.

What a worker is at, `_task`:

    STARTING --- built ---> idle <--- done, rows READY --- rows     more rows are queued, and follow at once
       ^                    |  ^
       |                    |  +----- said -------------- ASKED     a method of its `Slots`: `ask`, `_revive`
       |                    +------- step, ask ---------> rows, ASKED
       |
       +--- restart, rows LOST --- failed <--- died, hung (any but idle), or a step raised
                                     |
                                     +--- no restart: raised, rows NEW ---> idle
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import Any

import cloudpickle
import numpy as np

from envs.errors import PaddockError
from envs.vector.contract import EnvError
from envs.vector.multiprocess.arrivals import Arrivals
from envs.vector.multiprocess.interrupts import Uninterrupted
from envs.vector.multiprocess.process import WorkerProcess
from envs.vector.multiprocess.shared import DONE, FAILED, LISTEN, STEP, STEP_CHOSEN, WORKING, SharedBuffers
from envs.vector.multiprocess.watchdog import Watchdog
from envs.vector.multiprocess.worker import WorkerJob
from envs.vector.slots import IDLE
from envs.vector.storage import RowIndex, numbers
from envs.vector.table import LOST, NEW, READY, SENT, Table

LOSSES_IN_A_ROW = 3  # of one worker without a good step in between; after them its environments are beyond help
START_S = 60.0  # for a process to start and import what it needs, at least
LOOK_S = 0.1  # between looks whether workers still live, while waiting for them
ASKED, STARTING = "asked", "starting"  # a worker's task, where it is not rows to step

Message = tuple[Any, ...]  # a method of `Slots`, and its arguments

log = logging.getLogger("envs.vector")


class Coordinator:
    """The workers. What the rows they step give is entered at the table; READY rows are there to be received."""

    def __init__(
        self,
        jobs: Sequence[WorkerJob],
        buffers: SharedBuffers,
        table: Table,
        processes: list[WorkerProcess],
        revive: Callable[[int], list[Message]],
        *,
        restart: bool,
        timeout_s: float,
    ) -> None:
        """Start the workers and wait until their environments are built.

        Args:
            processes: an empty list, kept at the processes there are.
            revive: what a worker that replaces another is to be told, by its number.
            restart: whether a worker that dies, hangs or raises is replaced; its episodes then end truncated.
            timeout_s: seconds that one environment may take.

        Raises:
            EnvError: a worker did not start.
        """
        self.restarts = 0
        self.rows = [job.rows for job in jobs]  # each worker's environments
        self.arrivals = Arrivals(self.rows, table)
        self._jobs = jobs
        self._buffers = buffers
        self._table = table
        self._processes = processes
        self._revive = revive
        self._restart = restart
        self._timeout_s = timeout_s
        self._task: list[RowIndex | str | None] = [None] * len(jobs)  # rows that it steps, or ASKED, or None if idle
        self._watchdog = Watchdog(buffers.at_work, len(jobs), LOOK_S)
        self._queue: list[list[RowIndex]] = [[] for _ in jobs]  # rows sent to while it was busy
        self._answers: dict[int, Any] = {}  # of workers that were asked
        self._failed: dict[int, PaddockError] = {}  # what workers raised or died of
        self._losses = [0] * len(jobs)  # in a row
        self._next_look = 0.0
        for job in jobs:
            buffers.at_work[job.number] = IDLE
            processes.append(WorkerProcess(job, timeout_s))
            self._watch(job.number, STARTING)
        for job in jobs:
            self._answer(job.number)

    def step(self, rows: RowIndex) -> None:
        """Have these environments stepped, whose actions lie on the table."""
        table = self._table
        if self._restart:
            table.keep(rows)
        lost = LOST in table.waiting(rows)
        whole = None if lost else self.arrivals.whole(rows)
        if whole is not None:
            table.mark(SENT, rows)
            for w in whole:
                self._order(w, self.rows[w])
            return
        ids = np.arange(table.num_envs)[rows]
        if lost:
            # Their episodes ended with a process; what they ended with is in the buffers.
            gone, ids = ids[table.flag[ids] == LOST[0]], ids[table.flag[ids] != LOST[0]]
            table.mark(READY, gone)
            self.arrivals.add(gone)
        table.mark(SENT, ids)
        for w, part in self.arrivals.split(ids).items():
            self._order(w, part)

    def wait_for(self, rows: RowIndex) -> None:
        """Wait until these environments are READY.

        Raises:
            EnvError: an environment raised, or its process died or hung.
        """
        waiting, count = self._table.waiting, len(numbers(rows))
        self._wait_until(lambda: waiting(rows).count(READY) == count)

    def wait_for_any(self, size: int) -> RowIndex:
        """Wait for so many environments, whichever are READY first; raises as `wait_for` does."""
        self._wait_until(lambda: self._table.flags.count(READY) >= size)
        return self.arrivals.take(size)

    def wait_for_first(
        self, groups: Iterable[RowIndex], called: Callable[[], bool], lock: "Lock | None" = None
    ) -> int | None:
        """Wait until all of one group are READY; see `WaitsForFirst`. Raises as `wait_for`."""
        while True:
            for k, rows in enumerate(groups):
                waiting = self._table.waiting(rows)
                if waiting.count(READY) == len(waiting):
                    return k
            if called():
                return None
            self._wait(lock)
            self._handle_failures()

    def call_away(self) -> None:
        """Wake whoever waits, from any thread."""
        self._buffers.ready.post()

    def settle(self, workers: Sequence[int]) -> None:
        """Wait until these workers are idle; raises as `wait_for` does."""
        self._wait_until(lambda: all(self._task[w] is None for w in workers))

    def ask(self, messages: dict[int, Message], insist: bool) -> dict[int, Any]:
        """Have workers call a method of their `Slots` (it, then arguments); what each returns.

        Args:
            insist: whether a worker whose environment raises may be replaced and asked again, as one that dies is.

        Raises:
            EnvError: an environment raised, or its process died or hung.
        """
        told: dict[int, WorkerProcess] = {}
        answers: dict[int, Any] = {}
        while True:
            for w, message in messages.items():
                if told.get(w) is not self._processes[w]:  # or what it did was done by a process that is lost
                    answers.pop(w, None)
                    self._tell(w, message)
                    told[w] = self._processes[w]
            awaited = next((w for w in messages if w not in answers), None)
            if awaited is None:
                self._handle_failures()
                if all(told[w] is self._processes[w] for w in messages):
                    break
                continue
            try:
                answers[awaited] = self._answer(awaited, insist)
            except PaddockError as error:
                self._recover(awaited, error)
        for answer in answers.values():
            if isinstance(answer, PaddockError):
                raise answer
        return {w: answers[w] for w in messages}

    def _tell(self, w: int, message: Message) -> None:
        data = cloudpickle.dumps(message)  # first: a worker that has been told to listen waits for it
        self.settle([w])
        with Uninterrupted():
            self._answers.pop(w, None)
            self._watch(w, ASKED)
            self._buffers.order[w] = LISTEN
            self._buffers.go[w].post()
            if not self._processes[w].send(data):
                self._fail(w, self._processes[w].hang(self._buffers.at_work[w], self._timeout_s))

    def _answer(self, w: int, demand: bool = True) -> Any:
        """What a worker says to what it was told; raises what it died of, and what it raised if that is no answer."""
        while w not in self._answers:
            if w in self._failed:
                raise self._failed.pop(w)
            self._wait()
        answer = self._answers.pop(w)
        if demand and isinstance(answer, PaddockError):
            raise answer
        return answer

    def _order(self, w: int, rows: RowIndex) -> None:
        """Have a worker step some of its environments, at once or when it has done what it is at."""
        if self._task[w] is not None:
            self._queue[w].append(rows)
            return
        buffers = self._buffers
        self._watch(w, rows)
        if isinstance(rows, slice):
            buffers.order[w] = STEP
        else:
            buffers.chosen[self.rows[w]] = False
            buffers.chosen[rows] = True
            buffers.order[w] = STEP_CHOSEN
        buffers.go[w].post()

    def _watch(self, w: int, task: RowIndex | str) -> None:
        self._task[w] = task
        self._watchdog.begin(w)

    def _wait_until(self, done: Callable[[], bool]) -> None:
        self._handle_failures()  # that somebody was interrupted in
        while not done():
            self._wait()
            self._handle_failures()

    def _wait(self, lock: "Lock | None" = None) -> None:
        """Wait for a worker, and see to those that have come; now and then look after the others."""
        if lock is None:
            came = self._buffers.ready.wait(LOOK_S)
        else:
            lock.release()
            try:
                # Who spins takes the interpreter's lock again and again, which the lock's holder needs.
                came = self._buffers.ready.wait(LOOK_S, spin=False)
            finally:
                lock.acquire()
        with Uninterrupted():  # or what a worker has done may be lost
            if not came or time.monotonic() > self._next_look:
                self._look()
            for w, state in enumerate(self._buffers.state.tobytes()):
                if state != WORKING:
                    self._arrive(w)

    def _arrive(self, w: int) -> None:
        """See to a worker that has done what it was at."""
        state, task, said = self._buffers.state[w], self._task[w], None
        if state != DONE:
            try:
                said = self._processes[w].receive(self._timeout_s)
            except EOFError:
                self._buffers.state[w] = WORKING
                self._fail(w, self._processes[w].death(self._buffers.at_work[w]))
                return
            except EnvError as error:
                state, said = FAILED, error
        self._buffers.state[w] = WORKING  # until the next order, it changes no more
        if isinstance(task, str):
            self._answers[w] = said
        elif state == FAILED:
            assert isinstance(said, PaddockError)
            self._fail(w, said)
        elif task is not None:
            self._losses[w] = 0
            self._table.note(task, said or {})
            self._table.mark(READY, task)
            self.arrivals.came(w)
        self._task[w] = None
        if self._queue[w] and not (w in self._failed and self._restart):
            self._order(w, self._queue[w].pop(0))

    def _look(self) -> None:
        """Find workers that have died, or make no progress."""
        self._next_look = time.monotonic() + LOOK_S
        for w, process in enumerate(self._processes):
            if self._task[w] is None:
                continue
            alive = process.child.popen.poll() is None
            if self._buffers.state[w] != WORKING:
                continue
            patience_s = max(self._timeout_s, START_S) if self._task[w] is STARTING else self._timeout_s
            if not alive:
                self._fail(w, self._processes[w].death(self._buffers.at_work[w]))
            elif self._watchdog.is_stuck(w, patience_s):
                self._fail(w, process.hang(self._buffers.at_work[w], patience_s))

    def _fail(self, w: int, error: PaddockError) -> None:
        """Note what a worker raised or died of, for whoever waits for it."""
        task, self._task[w] = self._task[w], None
        self._failed[w] = error
        if self._restart:
            return
        if self._processes[w].child.popen.poll() is not None:
            self._queue[w].clear()
            self._drop(self.rows[w])
        elif task is not None and not isinstance(task, str):
            self._drop(task)

    def _drop(self, rows: RowIndex) -> None:
        self._table.forget(rows)
        self._table.mark(NEW, rows)

    def _handle_failures(self) -> None:
        while self._failed:
            with Uninterrupted():
                self._recover(*self._failed.popitem())

    def _recover(self, w: int, error: PaddockError) -> None:
        """Replace a worker that failed, whose episodes end; raise what it failed of where that is not to be."""
        if not self._restart:
            self._failed.clear()
            raise error
        if self._table.lose(self.arrivals.ids[w]):
            self.arrivals.add(self.arrivals.ids[w])
        while True:
            self._losses[w] += 1
            if self._losses[w] > LOSSES_IN_A_ROW:
                self._drop(self.rows[w])
                what, _, trace = str(error).partition("\n")
                raise EnvError(f"{what} (the same worker failed {self._losses[w]} times in a row)\n{trace}".rstrip())
            self.restarts += 1
            log.warning("%s; its worker is replaced and its episodes end truncated", str(error).partition(";")[0])
            try:
                self._replace(w)
                return
            except PaddockError as other:
                error = other
            except BaseException:  # as Ctrl-C while it starts: whoever goes on replaces it
                self._failed[w] = error
                raise

    def _replace(self, w: int) -> None:
        self._processes[w].child.kill()
        self._processes[w].close()
        self._buffers.go[w].initialize()  # whatever tokens its predecessor left
        self._buffers.state[w] = WORKING
        self._buffers.at_work[w] = IDLE
        self._queue[w].clear()
        self._processes[w] = WorkerProcess(self._jobs[w], self._timeout_s)
        self._watch(w, STARTING)
        self._answer(w)
        for message in self._revive(w):
            self._tell(w, message)
            self._table.note(message[1], self._answer(w))
