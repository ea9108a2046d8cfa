"""W worker processes at shared buffers: orders go out, answers come in, losses are named and replaced.

Each has one or more blocks of consecutive rows, does their orders one after another, and goes on with one block while
the caller looks at another. What a block is at, `_task`:

    STARTING --- built ---> idle <--- done, rows READY --- rows     more rows are queued, and follow at once
       ^                    |  ^
       |                    |  +----- said -------------- ASKED     a method of its `Slots`: `ask`, `_revive`
       |                    +------- step, ask ---------> rows, ASKED
       |
       +--- restart -------------- failed <--- worker died or hung, not idle, or a step raised, or what was asked did
       |    (rows READY or LOST)     |
       |                             +--- no restart: raised, rows NEW ---> idle
       +--- asked again --- given up <--- failed too often: raised, rows NEW
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from threading import Lock
from typing import Any

import cloudpickle
import numpy as np

from paddock.envs.errors import PaddockError
from paddock.envs.vector.contract import EnvError
from paddock.envs.vector.multiprocess.arrivals import Arrivals
from paddock.envs.vector.multiprocess.interrupts import Uninterrupted
from paddock.envs.vector.multiprocess.process import WorkerProcess
from paddock.envs.vector.multiprocess.shared import DONE, FAILED, LISTEN, STEP, STEP_CHOSEN, WORKING, SharedBuffers
from paddock.envs.vector.multiprocess.watchdog import Watchdog
from paddock.envs.vector.multiprocess.worker import WorkerJob
from paddock.envs.vector.slots import IDLE
from paddock.envs.vector.storage import RowIndex, numbers
from paddock.envs.vector.table import LOST, NEW, READY, SENT, Table

LOSSES_IN_A_ROW = 3  # of a block that has no good step in between; after them its environments are beyond help
START_S = 60.0  # for a process to start and import what it needs, at least
LOOK_S = 0.1  # between looks whether workers still live, while waiting for them
ASKED, STARTING = "asked", "starting"  # a block's task, where it is not rows to step

Message = tuple[Any, ...]  # a method of `Slots`, and its arguments

log = logging.getLogger("paddock.envs.vector")


class Coordinator:
    """The workers. What the rows they step give is entered at the table; READY rows are there to be received."""

    def __init__(
        self,
        jobs: Sequence[WorkerJob],
        buffers: SharedBuffers,
        table: Table,
        processes: list[WorkerProcess],
        revive: Callable[[], Callable[[int], list[Message]] | None],
        *,
        restart: bool,
        timeout_s: float,
    ) -> None:
        """Start the workers and wait until their environments are built.

        Args:
            processes: an empty list, kept at the processes there are.
            revive: a weak reference to what says what a worker that replaces another is to be told of a block, by its
                number.
            restart: whether a worker that dies, hangs or raises is replaced; its episodes then end truncated.
            timeout_s: seconds that one environment may take.

        Raises:
            EnvError: a worker did not start.
        """
        self.restarts = 0
        self.rows = [jobs[0].rows(block) for block in range(jobs[0].blocks)]  # each block's environments
        self.arrivals = Arrivals(self.rows, table)
        self._jobs = jobs
        self._buffers = buffers
        self._table = table
        self._processes = processes
        self._revive = revive
        self._restart = restart
        self._timeout_s = timeout_s
        self._task: list[RowIndex | str | None] = [None] * len(self.rows)  # rows to step, ASKED, STARTING, None if idle
        self._watchdog = Watchdog(buffers.at_work, len(jobs), LOOK_S)
        self._queue: list[list[RowIndex]] = [[] for _ in self.rows]  # a block's rows sent to while it was busy
        self._under_way: list[deque[int]] = [deque() for _ in jobs]  # a worker's blocks that are not idle, as ordered
        self._orders = [0] * len(jobs)  # that each process has had
        self._answers: dict[int, Any] = {}  # of blocks that were asked, or started
        self._failed: dict[int, tuple[int, PaddockError]] = {}  # what workers raised or died of, and at which block
        self._losses = [0] * len(self.rows)  # in a row, by the block that failed
        self._given_up = set[int]()  # workers that are not replaced before they are asked for something
        self._next_look = 0.0
        for job in jobs:
            buffers.at_work[job.number] = IDLE
            processes.append(WorkerProcess(job, timeout_s))
            for block in job.own:
                self._watch(block, STARTING)
        for block in range(len(self.rows)):
            self._answer(block)

    def step(self, rows: RowIndex) -> None:
        """Have these environments stepped, whose actions lie on the table."""
        table = self._table
        if self._restart:
            table.keep(rows)
        lost = LOST in table.waiting(rows)
        whole = None if lost else self.arrivals.whole(rows)
        if whole is not None:
            table.mark(SENT, rows)
            for block in whole:
                self._order(block, self.rows[block])
            return
        ids = np.arange(table.num_envs)[rows]
        if lost:
            # Their episodes ended with a process; what they ended with is in the buffers.
            gone, ids = ids[table.flag[ids] == LOST[0]], ids[table.flag[ids] != LOST[0]]
            table.mark(READY, gone)
            self.arrivals.add(gone)
        table.mark(SENT, ids)
        for block, part in self.arrivals.split(ids).items():
            self._order(block, part)

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

    def settle(self, blocks: Collection[int]) -> None:
        """Wait until these blocks are idle; raises as `wait_for` does."""
        self._wait_until(lambda: all(self._task[block] is None for block in blocks))

    def ask(self, messages: dict[int, Message], insist: bool) -> dict[int, Any]:
        """Have blocks' workers call a method of the `Slots` (it, then arguments); what each returns.

        Args:
            insist: whether a worker whose environment raises may be replaced and asked again, as one that dies is.

        Raises:
            EnvError: an environment raised, or its process died or hung.
        """
        told: dict[int, WorkerProcess] = {}
        answers: dict[int, Any] = {}
        while True:
            for block, message in messages.items():
                if told.get(block) is not self._process(block):  # or what it did was done by a process that is lost
                    answers.pop(block, None)
                    self._tell(block, message)
                    told[block] = self._process(block)
            awaited = next((block for block in messages if block not in answers), None)
            if awaited is None:
                self._handle_failures()
            if any(told[block] is not self._process(block) for block in messages):
                continue
            if awaited is None:
                break
            try:
                answers[awaited] = self._answer(awaited, insist)
            except PaddockError as error:
                self._failed.setdefault(self._worker(awaited), (awaited, error))
                self._handle_failures()
        for answer in answers.values():
            if isinstance(answer, PaddockError):
                raise answer
        return {block: answers[block] for block in messages}

    def _worker(self, block: int) -> int:
        return block % len(self._jobs)

    def _process(self, block: int) -> WorkerProcess:
        return self._processes[self._worker(block)]

    def _tell(self, block: int, message: Message) -> None:
        """Ask something of a block, when its worker has done what it is at; workers that failed are seen to."""
        w = self._worker(block)
        self.settle(self._jobs[w].own)  # or the process might not take it for as long as its other blocks step
        if w in self._given_up:
            self._go_on(w)
        self._say(block, message)

    def _say(self, block: int, message: Message) -> None:
        """Ask something of a block whose worker is idle."""
        data = cloudpickle.dumps(message)  # first: a worker that has been told to listen waits for it
        w = self._worker(block)
        with Uninterrupted():
            self._answers.pop(block, None)
            self._watch(block, ASKED)
            self._buffers.order[block] = LISTEN
            self._post(block)
            if not self._processes[w].send(data):
                self._fail(w, self._processes[w].hang(self._buffers.at_work[w], self._timeout_s))

    def _answer(self, block: int, demand: bool = True) -> Any:
        """What a block answers; raises what its worker failed of, and an answer that is an error where one is due."""
        w = self._worker(block)
        while block not in self._answers:
            if w in self._failed:
                raise self._failed[w][1]
            self._wait()
        answer = self._answers.pop(block)
        if demand and isinstance(answer, PaddockError):
            raise answer
        return answer

    def _order(self, block: int, rows: RowIndex) -> None:
        """Have some of a block's environments stepped, when its worker has done what it was ordered before."""
        if self._task[block] is not None:
            self._queue[block].append(rows)
            return
        buffers = self._buffers
        self._watch(block, rows)
        if isinstance(rows, slice):
            buffers.order[block] = STEP
        else:
            buffers.chosen[self.rows[block]] = False
            buffers.chosen[rows] = True
            buffers.order[block] = STEP_CHOSEN
        self._post(block)

    def _watch(self, block: int, task: RowIndex | str) -> None:
        """Note what a block is at, after all others of its worker; from when it is the first, its time counts."""
        w = self._worker(block)
        self._task[block] = task
        if not self._under_way[w]:
            self._watchdog.begin(w)
        self._under_way[w].append(block)

    def _post(self, block: int) -> None:
        """Have the worker do a block's order after those before it."""
        w = self._worker(block)
        self._buffers.turns[w, self._orders[w] % len(self._jobs[w].own)] = block // len(self._jobs)
        self._orders[w] += 1
        self._buffers.go[w].post()

    def _wait_until(self, done: Callable[[], bool]) -> None:
        self._handle_failures()  # that somebody was interrupted in, or that came as another was raised
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
            for blocks in self._under_way:
                while blocks and self._buffers.state[blocks[0]] != WORKING:
                    self._arrive(blocks[0])

    def _arrive(self, block: int) -> None:
        """See to a block that has done what it was at, the first of its worker's."""
        w, state, task, said = self._worker(block), self._buffers.state[block], self._task[block], None
        if state != DONE:
            try:
                said = self._processes[w].receive(self._timeout_s)
            except EOFError:
                self._fail(w, self._processes[w].death(self._buffers.at_work[w]))
                return
            except EnvError as error:
                state, said = FAILED, error
        if task is STARTING and isinstance(said, PaddockError):  # after which its process ends, whose end says less
            self._fail(w, said)
            return
        self._buffers.state[block] = WORKING  # until the next order, it changes no more
        self._under_way[w].popleft()
        self._task[block] = None
        if self._under_way[w]:
            self._watchdog.begin(w)
        if isinstance(task, str):
            self._answers[block] = said
        elif state == FAILED:
            assert isinstance(said, PaddockError)
            self._failed.setdefault(w, (block, said))
            if not self._restart and task is not None:
                self._drop(task)
        elif task is not None:
            self._losses[block] = 0
            self._table.note(task, said or {})
            self._table.mark(READY, task)
            self.arrivals.came(block)
        if self._queue[block] and not (w in self._failed and self._restart):
            self._order(block, self._queue[block].pop(0))

    def _look(self) -> None:
        """Find workers that have died, or make no progress."""
        self._next_look = time.monotonic() + LOOK_S
        for w, process in enumerate(self._processes):
            if not self._under_way[w]:
                continue
            block = self._under_way[w][0]
            alive = process.child.popen.poll() is None
            if self._buffers.state[block] != WORKING:
                continue
            patience_s = max(self._timeout_s, START_S) if self._task[block] is STARTING else self._timeout_s
            if not alive:
                self._fail(w, self._processes[w].death(self._buffers.at_work[w]))
            elif self._watchdog.is_stuck(w, patience_s):
                self._fail(w, process.hang(self._buffers.at_work[w], patience_s))

    def _fail(self, w: int, error: PaddockError) -> None:
        """End a worker that died or hangs, and note that for whoever waits for it."""
        self._failed.setdefault(w, (self._under_way[w][0], error))
        self._end(w)
        if not self._restart:
            for block in self._jobs[w].own:
                self._drop(self.rows[block])

    def _end(self, w: int) -> None:
        """Kill a process, if it lives, and forget what it was at."""
        self._processes[w].child.kill()
        self._under_way[w].clear()
        for block in self._jobs[w].own:
            self._task[block] = None
            self._queue[block].clear()
            self._answers.pop(block, None)
            self._buffers.state[block] = WORKING

    def _drop(self, rows: RowIndex) -> None:
        self._table.forget(rows)
        self._table.mark(NEW, rows)

    def _handle_failures(self) -> None:
        while self._failed:
            with Uninterrupted():
                self._recover(next(iter(self._failed)))

    def _recover(self, w: int) -> None:
        """Replace a worker that failed, whose episodes end; raise what it failed of where that is not to be."""
        block, error = failed = self._failed.pop(w)
        if not self._restart:
            self._failed.clear()
            raise error
        try:
            self._end(w)  # or it might go on with another block, whose steps are lost
            ids = np.concatenate([self.arrivals.ids[own] for own in self._jobs[w].own])
            if self._table.lose(ids):
                self.arrivals.add(ids)
            while self._losses[block] < LOSSES_IN_A_ROW:
                what = str(error).partition("\n")[0].partition(";")[0]
                log.warning("%s; its worker is replaced and its episodes end truncated", what)
                try:
                    self._replace(w)
                except PaddockError as other:
                    error = other
                    self._failed.pop(w, None)
                    self._losses[block] += 1
                else:
                    self._losses[block] += 1
                    return
        except BaseException:  # as Ctrl-C while it starts: whoever goes on replaces it
            self._failed[w] = failed
            raise
        self._give_up(w)
        what, _, trace = str(error).partition("\n")
        raise EnvError(f"{what} (the same worker failed {LOSSES_IN_A_ROW + 1} times in a row)\n{trace}".rstrip())

    def _give_up(self, w: int) -> None:
        """Leave a worker, until somebody asks something of it all the same."""
        self._end(w)
        self._given_up.add(w)
        for block in self._jobs[w].own:
            self._losses[block] = 0
            self._drop(self.rows[block])

    def _go_on(self, w: int) -> None:
        """Replace a worker that was given up; where that raises, as `_replace` does, it stays so."""
        with Uninterrupted():
            try:
                self._replace(w)
            except BaseException:  # as Ctrl-C while it starts
                self._end(w)
                self._failed.pop(w, None)
                raise
            self._given_up.remove(w)

    def _replace(self, w: int) -> None:
        """Start a process in place of one, which is ended; others that fail meanwhile are seen to by who called this.

        Raises:
            PaddockError: it did not start, or could not be told what its predecessor had been.
        """
        self._end(w)
        self._processes[w].close()
        self._buffers.go[w].initialize()  # whatever tokens its predecessor left
        self._orders[w] = 0
        self._buffers.at_work[w] = IDLE
        self._processes[w] = WorkerProcess(self._jobs[w], self._timeout_s)
        for block in self._jobs[w].own:
            self._watch(block, STARTING)
        for block in self._jobs[w].own:
            self._answer(block)
        revive = self._revive()
        assert revive is not None
        for block in self._jobs[w].own:
            for message in revive(block):
                self._say(block, message)
                self._table.note(message[1], self._answer(block))
        self.restarts += 1
