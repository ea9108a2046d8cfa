"""Carries the tasks of a `multiprocessing.Pool` to our workers, in place of the standard library's pipes."""

import queue
import threading
from collections.abc import Callable, Sequence
from multiprocessing.pool import IMapIterator
from typing import Any

from paddock.algos.pool.protocol import End, TaskBatch

AHEAD = 32  # chunks of an iterator sent out for each worker: short tasks never wait, endless iterables are not drained


class Transport:
    """Queues between the standard library's threads and a pool of workers.

    Attributes:
        results: those that have not ended, by job; the standard library's.
    """

    results: dict[int, Any]

    def __init__(
        self, workers: Any, own: bool, open_batch: Callable[[Callable[[Sequence[End]], None]], TaskBatch]
    ) -> None:
        """Open a batch.

        Args:
            own: whether the workers are closed at the end.
        """
        self._workers, self._own = workers, own
        self._ends: queue.SimpleQueue[End | None] = queue.SimpleQueue()
        self._jobs: dict[int, tuple[int, int]] = {}  # of the tasks on their way: job, and chunk of it
        self._changed = threading.Condition()
        self._stopped = self._released = False
        self._releasing = threading.Lock()
        self._batch = open_batch(self._deliver)

    def submit(self, task: Any) -> None:
        """Send a task: job, chunk, function, arguments and keywords. None: no more will come.

        Raises:
            Exception: it cannot be pickled, or the pool has failed.
        """
        if task is None:
            threading.Thread(target=self._release_at_end, name="Pool end", daemon=True).start()
            return
        job, chunk, *one_call = task
        with self._changed:
            if isinstance(self.results.get(job), IMapIterator):
                self._changed.wait_for(self._has_room)
            if not self._stopped:
                self._jobs[self._batch.put(tuple(one_call))] = job, chunk

    def put(self, _: None) -> None:
        """Have `get` return None: no more tasks will be submitted."""
        self._ends.put(None)

    def get(self) -> Any:
        """Wait for the next end: job, chunk, and (success, value or exception)."""
        while (end := self._ends.get()) is not None:
            done = end()
            with self._changed:
                job = self._jobs.pop(done.index, None)
                self._changed.notify_all()
            if job is not None:
                return *job, ((True, done.value) if done.error is None else (False, done.error))
        return None

    def stop(self) -> None:
        """Send nothing any more."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def release(self) -> None:
        """Drop what has not ended, and close the workers if they are the pool's own."""
        self.stop()
        with self._releasing:
            if not self._released:
                self._released = True
                self._batch.cancel()
                if self._own:
                    self._workers.close()

    def _deliver(self, ends: Sequence[End]) -> None:
        for end in ends:
            self._ends.put(end)

    def _has_room(self) -> bool:
        return self._stopped or len(self._jobs) < AHEAD * max(self._workers.size, 1)

    def _release_at_end(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or not self._jobs)
        self.release()
