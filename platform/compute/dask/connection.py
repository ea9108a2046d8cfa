"""A driver's connection to one worker: what it can hold, what it has, and the messages both ways."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import distributed.comm

from paddock.algos.pool.broadcast import Broadcast
from paddock.algos.pool.messages import receive, send
from paddock.algos.pool.protocol import Needs, PoolError
from paddock.algos.pool.worker import OPERATION

from .tasks import AHEAD_S, Item

GREETING_S = 10.0  # a worker that does not answer within it is tried again later


class WorkerConnection:
    """One worker, as the driver sees it. All of it belongs to the client's event loop."""

    def __init__(self, address: str, comm: Any, answer: dict[str, Any]) -> None:
        self.address = address
        self.answer = answer  # to the greeting
        self.capacity: dict[str, float] = answer["capacity"]
        self.threads = int(self.capacity["cpu"])
        self.items: dict[int, Item] = {}  # what it has and has not ended, by number, in the order of sending
        self.objects = 0  # that live there
        self.expected_s = 0.0  # work it has, as far as is known
        self.joined = self.idle_since = time.monotonic()
        self.quiet_s = 0.0  # since its last sign of life, as far as this process ran
        self.silent = False
        self.stuck = False  # it was silent for so long that it is given up
        self.counted = False  # among those that may be given work
        self.alone = False  # it runs a task that must have it for itself
        self.leaving = bool(answer["leaving"])
        self.retired = False  # it has announced that it leaves
        self.recalling = False
        self._comm = comm
        self._values: set[str] = set()  # broadcasts it was sent
        self._out: list[tuple[Any, ...]] = []
        self._wake = asyncio.Event()

    @property
    def usable(self) -> bool:
        """Whether it may be given work."""
        return not (self.silent or self.leaving)

    def parallel(self, needs: Needs) -> int:
        """How many tasks of these needs run here at once."""
        fits = [self.capacity["cpu"] // needs.cpu]
        if needs.memory_gb:
            fits.append(self.capacity["memory_gb"] // needs.memory_gb)
        if needs.gpu:
            fits.append(self.capacity["gpu"] // needs.gpu)
        return int(min(fits))

    @property
    def hungry(self) -> bool:
        """Whether little waits behind what its threads run."""
        behind = len(self.items) - self.threads
        return behind <= 0 or self.expected_s * behind / len(self.items) < AHEAD_S * self.threads

    def send(self, *message: Any) -> None:
        """Queue a message; those of one turn of the loop travel together."""
        self._out.append(message)
        self._wake.set()

    def share(self, blobs: Sequence[Broadcast[Any]]) -> None:
        """Send those broadcasts that this worker has not got yet."""
        for blob in blobs:
            if blob.id not in self._values:
                self._values.add(blob.id)
                self.send("value", blob.id, blob.data)

    def forget(self, ids: set[str]) -> None:
        """Let the worker forget broadcasts."""
        known = self._values & ids
        if known:
            self._values -= known
            self.send("forget", list(known))

    async def talk(self, handle: Callable[["WorkerConnection", Sequence[tuple[Any, ...]]], None]) -> None:
        """Pass on the worker's messages until the connection ends.

        Raises:
            MemoryError: there is none for what is written or read.
        """
        writing = asyncio.ensure_future(self._write())
        try:
            with contextlib.suppress(OSError, EOFError):
                while True:
                    handle(self, await receive(self._comm, self._hear))
            if writing.done():  # the connection has ended since nothing could be written
                writing.result()
        finally:
            writing.cancel()
            self._comm.abort()

    def give_up(self) -> None:
        """Have a worker that is silent replaced."""
        self.stuck = True
        self.abort()

    def abort(self) -> None:
        """End the connection at once."""
        self._comm.abort()

    def _hear(self) -> None:
        self.quiet_s = 0.0

    async def _write(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                messages, self._out = self._out, []
                await send(self._comm, messages)
        except OSError:
            pass
        finally:
            self._comm.abort()  # or a worker that gets no message would seem to work on


async def greet(address: str, connection: dict[str, Any], hello: dict[str, Any]) -> WorkerConnection | None:
    """Connect to a worker and learn what it is; None where it does not know us.

    Raises:
        OSError, TimeoutError: it is out of reach.
    """
    # Dask's limit is not for the handshake, which a worker that was stopped does not answer.
    async with asyncio.timeout(GREETING_S):
        comm = await distributed.comm.connect(address, GREETING_S, **connection)
    try:
        await comm.write({"op": OPERATION, "hello": hello})
        async with asyncio.timeout(GREETING_S):
            answer = await comm.read()
        if not isinstance(answer, dict):
            comm.abort()
            return None
        if answer.get("status") == "uncaught-error":
            raise PoolError(f"worker {address} cannot serve: {answer.get('text', answer)}")
        return WorkerConnection(address, comm, answer)
    except BaseException:
        comm.abort()
        raise
