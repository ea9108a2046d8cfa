"""A driver's connection to a worker: its requests go to an executor, and the ends of tasks come back.

Both sides send lists of messages:

from the driver   value forget run recall make call drop
from the worker   alive ends returned overdue leaving

A worker that leaves waits until the driver hangs up, which it does once the worker has nothing more of its.
"""

import asyncio
import contextlib
import functools
import os
import pickle
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from paddock.algos.pool import broadcast
from paddock.algos.pool.executor import FLUSH_S, Executor, Job, Resident
from paddock.algos.pool.messages import receive, send
from paddock.algos.pool.protocol import Needs

ALIVE_S = 4.0  # between two signs of life
TICK_S = 0.25  # between two looks at time limits
STOPPED_S = 1.0  # a tick that took longer was that of a stopped process, or of one whose interpreter a task held
TIMEOUT_EXIT_CODE = 75


class DriverConnection:
    """One driver's connection, from its greeting to its end."""

    def __init__(self, comm: Any, capacity: Needs, loop: asyncio.AbstractEventLoop, retire: Callable[[], None]) -> None:
        self._comm = comm
        self._loop = loop
        self._cpu = capacity.cpu
        self._executor = Executor(capacity, self._ended, retire)
        self._functions: dict[str, Any] = {}
        self._values: dict[str, broadcast.Blob] = {}
        self._residents: dict[str, Resident] = {}
        self._open = 0  # tasks taken whose end was not reported
        self._ends: deque[tuple[int, float, bool, bytes]] = deque()
        self._flushing = False  # whether ends will be reported soon
        self._out: list[tuple[Any, ...]] = []
        self._wake = asyncio.Event()
        self._closed = False
        self._leaving = False
        self._operations: dict[str, Callable[..., None]] = {
            "value": self._value,
            "forget": self._forget,
            "run": self._run,
            "recall": self._recall,
            "make": self._make,
            "call": self._call,
            "drop": self._drop,
        }

    async def serve(self, answer: dict[str, Any]) -> None:
        """Answer the driver's greeting, then read messages until it goes."""
        writing = asyncio.ensure_future(self._write())
        self._living = asyncio.ensure_future(self._live())  # which ends by itself
        try:
            await self._comm.write(answer)
            while True:
                for operation, *arguments in await receive(self._comm):
                    self._operations[operation](*arguments)
        finally:
            self._closed = True
            writing.cancel()
            self._executor.abandon()
            for resident in self._residents.values():
                resident.close()

    def leave(self) -> None:
        """Give back what has not begun, and take nothing more."""
        self._leaving = True
        self._executor.close()
        self._give_back(self._executor.take_back())
        self._send("leaving")

    @property
    def connected(self) -> bool:
        """Whether the driver is still there."""
        return not self._closed

    @property
    def over(self) -> bool:
        """Whether the driver has been sent everything, or has gone."""
        return self._closed or not (self._open or self._ends or self._out)

    def _ended(self, task: int, seconds: float, good: bool, data: bytes, last: bool) -> None:
        """Take the end of a task; called in the thread that ran it, and kept short for the sake of short tasks."""
        self._ends.append((task, seconds, good, data))
        with contextlib.suppress(RuntimeError):  # the loop may have ended
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
        needs: Needs,
        limit_s: float | None,
        renew_after: int | None,
    ) -> None:
        if self._leaving:
            self._send("returned", [id for id, _ in items])
            return
        self._open += len(items)
        run = functools.partial(self._apply, function)
        threads = max(self._cpu // needs.cpu, 1)
        for k in range(min(threads, len(items))):
            self._executor.add(Job(run, deque(items[k::threads]), needs, limit_s, renew_after, function))

    def _recall(self, ids: Sequence[int]) -> None:
        self._give_back(self._executor.take_back(ids))

    def _make(self, id: str, factory: bytes) -> None:
        self._residents[id] = Resident(factory)

    def _call(self, id: str, call: int, data: bytes, needs: Needs, limit_s: float | None) -> None:
        if self._leaving:  # the driver makes the object, and this call, elsewhere
            self._send("returned", [call])
            return
        self._open += 1
        resident = self._residents[id]
        resident.call_id = call
        run = functools.partial(self._apply_method, resident)
        self._executor.add(Job(run, deque([(call, data)]), needs, limit_s), first=True)

    def _drop(self, id: str) -> None:
        resident = self._residents.pop(id, None)
        if resident is not None:
            self._give_back(self._executor.take_back([] if resident.call_id is None else [resident.call_id]))
            resident.close()

    # In threads of the executor

    def _apply(self, function: str, data: bytes) -> Any:
        broadcast.read_from(self._values)
        fn = self._functions.get(function)
        if fn is None:
            fn = self._functions[function] = broadcast.received(function).value
        return fn(pickle.loads(data))

    def _apply_method(self, resident: Resident, data: bytes) -> Any:
        broadcast.read_from(self._values)
        return resident.call(data)

    # To the driver

    def _give_back(self, ids: list[int]) -> None:
        self._open -= len(ids)
        self._send("returned", ids)

    def _flush_later(self) -> None:
        self._flushing = False  # before looking, so that an end that comes now starts another timer
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
                # Messages stay in the list until they are written, since `over` looks for them.
                messages = list(self._out)
                await send(self._comm, messages)
                del self._out[: len(messages)]
                if self._out:
                    self._wake.set()
        except OSError:
            pass
        finally:
            self._comm.abort()  # or the driver would wait for messages that never come

    async def _live(self) -> None:
        """Send signs of life, and end this process where a task exceeds its limit: a thread cannot be interrupted."""
        sent = time.monotonic()
        while self.connected or self._executor.busy:
            begun = time.monotonic()
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            self._executor.clock += min(now - begun, STOPPED_S)
            if overdue := self._executor.overdue(TICK_S):
                self._flush()
                self._send("overdue", overdue)
                await asyncio.sleep(0.5)  # lets the message leave before the process ends
                os._exit(TIMEOUT_EXIT_CODE)
            if now - sent >= ALIVE_S:
                sent = now
                self._send("alive")
        self._values.clear()
