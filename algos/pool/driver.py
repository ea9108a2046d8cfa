"""Worker's side of a driver's connection: passes requests to an executor and reports the ends of tasks.

Both sides send lists of messages:

from the driver   value forget run recall make call drop
from the worker   alive ends returned overdue leaving

A leaving worker waits until the driver disconnects, which happens once the driver has received all results.
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
from paddock.algos.pool.executor import FLUSH_S, Executor, Job, StatefulObject
from paddock.algos.pool.messages import receive, send
from paddock.algos.pool.protocol import Needs

ALIVE_S = 4.0  # heartbeat interval
TICK_S = 0.25  # interval between checks of time limits
STOPPED_S = 1.0  # a longer tick means that the process was stopped, or that a task held the interpreter
TIMEOUT_EXIT_CODE = 75


class DriverConnection:
    """Connection of one driver, from its greeting to its end."""

    def __init__(self, comm: Any, capacity: Needs, loop: asyncio.AbstractEventLoop, retire: Callable[[], None]) -> None:
        """Start an executor; see `Executor` for `capacity` and `retire`."""
        self._comm = comm
        self._loop = loop
        self._cpu = capacity.cpu
        self._executor = Executor(capacity, self._ended, retire)
        self._functions: dict[str, Any] = {}
        self._values: dict[str, broadcast.Blob] = {}
        self._objects: dict[str, StatefulObject] = {}
        self._open = 0  # accepted tasks whose end was not reported yet
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
        self._heartbeat = asyncio.ensure_future(self._watch())  # ends by itself
        try:
            await self._comm.write(answer)
            while True:
                for operation, *arguments in await receive(self._comm):
                    self._operations[operation](*arguments)
        finally:
            self._closed = True
            writing.cancel()
            self._executor.abandon()
            for stateful in self._objects.values():
                stateful.close()

    def leave(self) -> None:
        """Return tasks that have not started, and accept no more."""
        self._leaving = True
        self._executor.close()
        self._give_back(self._executor.take_back())
        self._send("leaving")

    @property
    def connected(self) -> bool:
        """True while the driver is connected."""
        return not self._closed

    @property
    def over(self) -> bool:
        """True if the driver has received everything or has disconnected."""
        return self._closed or not (self._open or self._ends or self._out)

    def _ended(self, task: int, seconds: float, good: bool, data: bytes, last: bool) -> None:
        """Queue the end of a task; called in the task's thread, and short so that small tasks stay cheap."""
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
        self._objects[id] = StatefulObject(factory)

    def _call(self, id: str, call: int, data: bytes, needs: Needs, limit_s: float | None) -> None:
        if self._leaving:  # the driver makes the object, and this call, elsewhere
            self._send("returned", [call])
            return
        self._open += 1
        stateful = self._objects[id]
        stateful.call_id = call
        run = functools.partial(self._apply_method, stateful)
        self._executor.add(Job(run, deque([(call, data)]), needs, limit_s), first=True)

    def _drop(self, id: str) -> None:
        stateful = self._objects.pop(id, None)
        if stateful is not None:
            self._give_back(self._executor.take_back([] if stateful.call_id is None else [stateful.call_id]))
            stateful.close()

    # In threads of the executor

    def _apply(self, function: str, data: bytes) -> Any:
        broadcast.use_received(self._values)
        fn = self._functions.get(function)
        if fn is None:
            fn = self._functions[function] = broadcast.received(function).value
        return fn(pickle.loads(data))

    def _apply_method(self, stateful: StatefulObject, data: bytes) -> Any:
        broadcast.use_received(self._values)
        return stateful.call(data)

    # To the driver

    def _give_back(self, ids: list[int]) -> None:
        self._open -= len(ids)
        self._send("returned", ids)

    def _flush_later(self) -> None:
        self._flushing = False  # reset first, so that an end that arrives now starts another timer
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
                # Messages stay in the list until they are written, since `over` checks it.
                messages = list(self._out)
                await send(self._comm, messages)
                del self._out[: len(messages)]
                if self._out:
                    self._wake.set()
        except OSError:
            pass
        finally:
            self._comm.abort()  # otherwise the driver would wait for messages indefinitely

    async def _watch(self) -> None:
        """Send heartbeats; end the process if a task exceeds its time limit, since threads cannot be interrupted."""
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
