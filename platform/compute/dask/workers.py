"""The workers of a pool: which has which tasks, and which want more. All of it belongs to the client's event loop."""

import itertools
import time

from .connection import WorkerConnection
from .tasks import Item


class Workers(dict[str, WorkerConnection]):
    """Connections by their addresses, with the state of the loop about them."""

    def __init__(self) -> None:
        self.slots = 0  # threads of the workers that may be given work
        self.idle: dict[WorkerConnection, None] = {}  # with a thread free
        self.hungry: dict[WorkerConnection, None] = {}  # whose threads are taken, with little behind them
        self._numbers = itertools.count()

    def hold(self, worker: WorkerConnection, item: Item, seconds: float | None) -> int:
        """Note that a worker has an item; returns the number under which it knows it."""
        number = next(self._numbers)
        worker.items[number] = item
        item.holders.append(worker)
        item.since = time.monotonic()
        item.seconds = 1.0 if seconds is None else seconds
        worker.expected_s += item.seconds
        worker.alone |= item.alone
        return number

    def release(self, worker: WorkerConnection, number: int) -> Item | None:
        """Note that a worker has an item no more; None where it has not had it."""
        item = worker.items.pop(number, None)
        if item is not None:
            item.holders.remove(worker)
            worker.expected_s -= item.seconds
            worker.alone &= not item.alone
            if not worker.items:
                worker.expected_s, worker.alone, worker.idle_since = 0.0, False, time.monotonic()
        return item

    def place(self, worker: WorkerConnection) -> None:
        """Note whether a worker may be given work, and wants some."""
        usable = worker.usable and worker.address in self
        if usable != worker.counted:
            worker.counted = usable
            self.slots += worker.threads if usable else -worker.threads
        self.idle.pop(worker, None)
        self.hungry.pop(worker, None)
        if usable and not worker.alone:
            if len(worker.items) < worker.threads:
                self.idle[worker] = None
            elif worker.hungry:
                self.hungry[worker] = None
