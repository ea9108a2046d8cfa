"""Driver's connection to one worker: its capacity, its tasks, and the messages in both directions."""

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

HANDSHAKE_S = 10.0  # a worker that does not answer within it is retried later


class WorkerConnection:
    """Driver's view of one worker. Everything runs in the client's event loop."""

    def __init__(self, address: str, comm: Any, answer: dict[str, Any]) -> None:
        """Take an open connection and the worker's answer to the handshake."""
        self.address = address
        self.answer = answer
        self.capacity: dict[str, float] = answer["capacity"]
        self.threads = int(self.capacity["cpu"])
        self.items: dict[int, Item] = {}  # unfinished items by number, in the order of sending
        self.objects = 0  # number of stateful objects
        self.expected_s = 0.0  # expected duration of its items
        self.joined = self.idle_since = time.monotonic()
        self.quiet_s = 0.0  # since its last message, counting only time in which this process ran
        self.silent = False
        self.stuck = False  # silent for so long that it is replaced
        self.counted = False  # included in the number of slots
        self.alone = False  # it runs a task that must run alone
        self.leaving = bool(answer["leaving"])
        self.retired = False  # it has announced its exit
        self.recalling = False
        self._comm = comm
        self._values: set[str] = set()  # broadcasts that were sent to it
        self._out: list[tuple[Any, ...]] = []
        self._wake = asyncio.Event()

    @property
    def usable(self) -> bool:
        """Return whether it may receive work."""
        return not (self.silent or self.leaving)

    def parallel(self, needs: Needs) -> int:
        """Return how many tasks with these needs run here at once."""
        fits = [self.capacity["cpu"] // needs.cpu]
        if needs.memory_gb:
            fits.append(self.capacity["memory_gb"] // needs.memory_gb)
        if needs.gpu:
            fits.append(self.capacity["gpu"] // needs.gpu)
        return int(min(fits))

    @property
    def wants_work(self) -> bool:
        """Return whether few tasks wait behind those that run."""
        behind = len(self.items) - self.threads
        return behind <= 0 or self.expected_s * behind / len(self.items) < AHEAD_S * self.threads

    def send(self, *message: Any) -> None:
        """Queue a message; messages of one loop iteration are sent together."""
        self._out.append(message)
        self._wake.set()

    def share(self, blobs: Sequence[Broadcast[Any]]) -> None:
        """Send the broadcasts that this worker does not have yet."""
        for blob in blobs:
            if blob.id not in self._values:
                self._values.add(blob.id)
                self.send("value", blob.id, blob.data)

    def forget(self, ids: set[str]) -> None:
        """Delete broadcasts on the worker."""
        known = self._values & ids
        if known:
            self._values -= known
            self.send("forget", list(known))

    async def talk(self, handle: Callable[["WorkerConnection", Sequence[tuple[Any, ...]]], None]) -> None:
        """Handle the worker's messages until the connection ends.

        Raises:
            MemoryError: a message does not fit into memory.
        """
        writing = asyncio.ensure_future(self._write())
        try:
            with contextlib.suppress(OSError, EOFError):
                while True:
                    handle(self, await receive(self._comm, self._reset_silence))
            if writing.done():  # the connection has ended since nothing could be written
                writing.result()
        finally:
            writing.cancel()
            self._comm.abort()

    def give_up(self) -> None:
        """Mark a silent worker for replacement, and disconnect."""
        self.stuck = True
        self.abort()

    def abort(self) -> None:
        """Close the connection at once."""
        self._comm.abort()

    def _reset_silence(self) -> None:
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
            self._comm.abort()  # otherwise a worker that receives nothing would seem busy


async def greet(address: str, connection: dict[str, Any], hello: dict[str, Any]) -> WorkerConnection | None:
    """Connect to a worker and exchange handshakes; None if the worker has not loaded this project.

    Raises:
        OSError, TimeoutError: the worker cannot be reached.
    """
    # Dask's timeout does not cover the handshake, which a stopped worker does not answer.
    async with asyncio.timeout(HANDSHAKE_S):
        comm = await distributed.comm.connect(address, HANDSHAKE_S, **connection)
    try:
        await comm.write({"op": OPERATION, "hello": hello})
        async with asyncio.timeout(HANDSHAKE_S):
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
