"""Transport of `multiprocessing.Pool` tasks to workers, instead of the standard library's pipes."""

import queue
import threading
from collections.abc import Callable, Sequence
from multiprocessing.pool import IMapIterator
from typing import Any

from paddock.algos.pool.protocol import End, TaskBatch

AHEAD = 32  # chunks of an iterator sent per worker: enough for short tasks, without draining endless iterables


class Transport:
    """Queues between the standard library's threads and a pool of workers.

    Attributes:
        results: the standard library's unfinished results by job.
    """

    results: dict[int, Any]

    def __init__(
        self, workers: Any, own: bool, open_batch: Callable[[Callable[[Sequence[End]], None]], TaskBatch]
    ) -> None:
        """Open a batch; `own` workers are closed at the end."""
        self._workers, self._own = workers, own
        self._ends: queue.SimpleQueue[End | None] = queue.SimpleQueue()
        self._jobs: dict[int, tuple[int, int]] = {}  # unfinished task -> job, chunk
        self._changed = threading.Condition()
        self._stopped = self._released = False
        self._releasing = threading.Lock()
        self._batch = open_batch(self._deliver)

    def submit(self, task: Any) -> None:
        """Send a task: job, chunk, function, arguments and keywords. None marks the end.

        Raises:
            Exception: it cannot be pickled, or the pool has failed.
        """
        if task is None:
            threading.Thread(target=self._release_at_end, name="Pool end", daemon=True).start()
            return
        job, chunk, *one_call = task
        with self._changed:
            if isinstance(self.results.get(job), IMapIterator):
                self._changed.wait_for(self._can_submit)
            if not self._stopped:
                self._jobs[self._batch.put(tuple(one_call))] = job, chunk

    def put(self, _: None) -> None:
        """Make `get` return None, since no more tasks will be submitted."""
        self._ends.put(None)

    def get(self) -> Any:
        """Wait for the next result: job, chunk, and (success, value or exception)."""
        while (end := self._ends.get()) is not None:
            done = end()
            with self._changed:
                job = self._jobs.pop(done.index, None)
                self._changed.notify_all()
            if job is not None:
                return *job, ((True, done.value) if done.error is None else (False, done.error))
        return None

    def stop(self) -> None:
        """Stop sending tasks."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def release(self) -> None:
        """Drop unfinished tasks, and close the workers if the pool owns them."""
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

    def _can_submit(self) -> bool:
        return self._stopped or len(self._jobs) < AHEAD * max(self._workers.size, 1)

    def _release_at_end(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or not self._jobs)
        self.release()
