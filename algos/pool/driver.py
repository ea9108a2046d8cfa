"""A driver's connection to a worker: what it asks is given to the executor, and what comes of it is said.

Both sides talk in lists of messages:

from the driver   value forget run recall make call drop
from the worker   alive ends returned overdue leaving

A worker that leaves waits until the driver hangs up, which it does once the worker has nothing more of its.
"""

import asyncio
import contextlib
import functools
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any

from paddock.algos.pool import broadcast
from paddock.algos.pool.executor import FLUSH_S, Executor, Job, Resident
from paddock.algos.pool.messages import receive, send
from paddock.algos.pool.script import Script, load, run_for

ALIVE_S = 4.0  # between two signs of life
STOPPED_S = 1.0  # a process that was late by so much, and did not compute, was stopped
TIMEOUT_EXIT_CODE = 75


class DriverConnection:
    """One driver's connection, from its greeting to its end."""

    def __init__(
        self,
        comm: Any,
        executor: Executor,
        loop: asyncio.AbstractEventLoop,
        script: Script | None,
        drivers: Collection["DriverConnection"] = (),
    ) -> None:
        """Take what to serve by.

        Args:
            drivers: that are connected, this one among them.
        """
        self._comm = comm
        self._drivers = drivers
        self._script = script
        self._executor = executor
        self._loop = loop
        self._functions: dict[str, Any] = {}
        self._values: dict[str, broadcast.Blob] = {}
        self._residents: dict[str, Resident] = {}
        self._open = 0  # tasks taken and not told to have ended
        self._ends: deque[tuple[int, float, bool, bytes]] = deque()
        self._flushing = False  # whether ends will be told soon
        self._out: list[tuple[Any, ...]] = []
        self._wake = asyncio.Event()
        self._closed = False
        self._leaving = False
        self._limited = False  # whether tasks have had a limit so far
        self._operations: dict[str, Callable[..., None]] = {
            "value": self._value,
            "forget": self._forget,
            "run": self._run,
            "recall": self._recall,
            "make": self._make,
            "call": self._call,
            "drop": self._drop,
        }

    async def serve(self) -> None:
        """Read messages until the driver goes."""
        writing = asyncio.ensure_future(self._write())
        self._living = asyncio.ensure_future(self._live())  # which ends by itself
        try:
            while True:
                for operation, *arguments in await receive(self._comm):
                    self._operations[operation](*arguments)
        finally:
            self._closed = True
            writing.cancel()

    def abandon(self) -> None:
        """Forget all that belonged to the driver; what runs is finished for nobody."""
        self._closed = True
        for resident in self._residents.values():
            resident.give_up()
        taken_back = self._executor.take_back(self)
        for resident in self._residents.values():
            resident.close(taken_back)
        self._residents.clear()

    def leave(self) -> None:
        """Give back what has not begun, and say that nothing more is taken."""
        self._leaving = True
        waiting = [id for resident in self._residents.values() for id in resident.give_up()]
        self._give_back([*self._executor.take_back(self), *waiting])
        self._send("leaving")

    @property
    def waits(self) -> bool:
        """Whether the driver is there still; any thread may ask."""
        return not self._closed

    @property
    def over(self) -> bool:
        """Whether the driver has been told everything, or has gone."""
        return self._closed or not (self._open or self._ends or self._out)

    def ended(self, task: int, seconds: float, good: bool, data: bytes, last: bool) -> None:
        """Take the end of a task; called in the thread that ran it, and kept short for the sake of short tasks."""
        self._ends.append((task, seconds, good, data))
        with contextlib.suppress(RuntimeError):  # the loop may have ended, and with it whoever would be told
            if last:
                self._loop.call_soon_threadsafe(self._flush)
            elif not self._flushing:
                self._flushing = True
                self._loop.call_soon_threadsafe(self._loop.call_later, FLUSH_S, self._flush_later)

    # From the driver

    def _value(self, id: str, data: bytes) -> None:
        self._values[id] = broadcast.Blob(data)

    def _forget(self, ids: Sequence[str]) -> None:
        for id in ids:
            self._values.pop(id, None)
            self._functions.pop(id, None)

    def _run(
        self,
        function: str,
        items: Sequence[tuple[int, bytes]],
        needs: tuple[int, float, int],
        limit_s: float | None,
        renew_after: int | None,
    ) -> None:
        if self._leaving:
            self._send("returned", [id for id, _ in items])
            return
        self._open += len(items)
        self._limited |= limit_s is not None
        run = functools.partial(self._apply, function)
        threads = max(self._executor.cpu // needs[0], 1)
        for k in range(min(threads, len(items))):
            share = deque(items[k::threads])
            self._executor.add(Job(self, run, share, *needs, limit_s, renew_after, function))

    def _recall(self, ids: Sequence[int]) -> None:
        self._give_back(self._executor.take_back(self, ids))

    def _make(self, id: str, factory: bytes) -> None:
        self._residents[id] = Resident(self._executor, factory, self._values, self._script)

    def _call(self, id: str, call: int, data: bytes, needs: tuple[int, float, int], limit_s: float | None) -> None:
        if self._leaving:  # the driver makes the object, and this call, elsewhere
            self._send("returned", [call])
            return
        self._limited |= limit_s is not None
        self._open += 1
        self._residents[id].add(Job(self, _unset, deque([(call, data)]), *needs, limit_s))

    def _drop(self, id: str) -> None:
        resident = self._residents.pop(id, None)
        if resident is not None:
            # Of objects that are no more here nobody gives calls back, and this one's may have been made elsewhere.
            waiting = resident.give_up()
            taken_back = self._executor.take_back(self, resident.open)
            resident.close(taken_back)
            self._give_back([*taken_back, *waiting])

    # To the driver

    def _apply(self, function: str, data: bytes) -> Any:
        broadcast.read_from(self._values)
        run_for(self._script)
        fn = self._functions.get(function)
        if fn is None:
            fn = self._functions[function] = broadcast.received(function).value
        return fn(load(data))

    def _give_back(self, ids: list[int]) -> None:
        self._open -= len(ids)
        self._send("returned", ids)

    def _flush_later(self) -> None:
        self._flushing = False  # before looking, so that an end that comes now sees to itself
        self._flush()

    def _flush(self) -> None:
        ends = [self._ends.popleft() for _ in range(len(self._ends))]
        self._open -= len(ends)
        if ends:
            self._send("ends", ends)

    def _send(self, *message: Any) -> None:
        self._out.append(message)
        self._wake.set()

    async def _write(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                # Stays in sight until it is written, since `over` looks for it.
                messages = list(self._out)
                await send(self._comm, messages)
                del self._out[: len(messages)]
                if self._out:
                    self._wake.set()
        except OSError:
            pass
        finally:
            self._comm.abort()  # or a driver that is told nothing more would wait for it

    async def _live(self) -> None:
        """Tell the driver that this process lives, and end it where a task has outstayed its limit.

        What the driver sent is kept for as long as it is there or a task of its runs.
        """
        told = time.monotonic()
        # A task's limit holds though its driver has gone: it has a thread that others wait for.
        while self.waits or self._executor.runs(self):
            pause_s, begun, computed_s = 0.1 if self._limited else ALIVE_S, time.monotonic(), time.process_time()
            excused_s = self._executor.stopped_s
            await asyncio.sleep(pause_s)
            # A process that only computed was not stopped, though a task may have held the interpreter.
            late_s = time.monotonic() - begun - pause_s - (time.process_time() - computed_s)
            late_s -= self._executor.stopped_s - excused_s  # which another driver's connection has seen
            if late_s > STOPPED_S:
                self._executor.excuse(late_s)
            # A thread cannot be interrupted, so a task that exceeds its limit takes its process along.
            overdue = self._executor.overdue(self)
            if overdue:
                for driver in {self, *self._drivers}:  # of whom the others lose this process through no task of theirs
                    driver._flush()
                    driver._send("overdue", overdue if driver is self else [])
                await asyncio.sleep(0.5)  # lets the notice leave before the process does
                os._exit(TIMEOUT_EXIT_CODE)
            if time.monotonic() - told >= 0.9 * ALIVE_S:
                told = time.monotonic()
                self._send("alive")
        self._values.clear()
        self._functions.clear()


def _unset(data: bytes) -> None:
    """Stands for what a job runs until its object says it."""
