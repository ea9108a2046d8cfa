"""Workers of a pool, with their tasks and their availability. Everything runs in the client's event loop."""

import itertools
import time

from .connection import WorkerConnection
from .tasks import Item


class Workers(dict[str, WorkerConnection]):
    """Connections by address, with their availability."""

    def __init__(self) -> None:
        """Start without workers."""
        self.slots = 0  # threads of usable workers
        self.idle: dict[WorkerConnection, None] = {}  # with a free thread
        self.underloaded: dict[WorkerConnection, None] = {}  # without a free thread, but with few waiting tasks
        self._numbers = itertools.count()

    def hold(self, worker: WorkerConnection, item: Item, seconds: float | None) -> int:
        """Record that a worker has an item, and return the worker's number for it."""
        number = next(self._numbers)
        worker.items[number] = item
        item.holders.append(worker)
        item.since = time.monotonic()
        item.seconds = 1.0 if seconds is None else seconds
        worker.expected_s += item.seconds
        worker.alone |= item.alone
        return number

    def release(self, worker: WorkerConnection, number: int) -> Item | None:
        """Remove an item from a worker and return it; None if the worker does not have it."""
        item = worker.items.pop(number, None)
        if item is not None:
            item.holders.remove(worker)
            worker.expected_s -= item.seconds
            worker.alone &= not item.alone
            if not worker.items:
                worker.expected_s, worker.alone, worker.idle_since = 0.0, False, time.monotonic()
        return item

    def place(self, worker: WorkerConnection) -> None:
        """Update whether a worker is usable, idle or underloaded."""
        usable = worker.usable and worker.address in self
        if usable != worker.counted:
            worker.counted = usable
            self.slots += worker.threads if usable else -worker.threads
        self.idle.pop(worker, None)
        self.underloaded.pop(worker, None)
        if usable and not worker.alone:
            if len(worker.items) < worker.threads:
                self.idle[worker] = None
            elif worker.wants_work:
                self.underloaded[worker] = None
