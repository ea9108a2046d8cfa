"""Executor threads of a worker process, which run one driver's tasks concurrently within their resource needs.

Drivers send small tasks in chunks. Ends are reported when a chunk is done or after FLUSH_S, so that a thousand tasks of
a millisecond cost thirty messages and a task of a second is reported at once.
"""

import contextlib
import logging
import os
import pickle
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.pool import MaybeEncodingError  # type: ignore[attr-defined]
from typing import Any

from paddock.algos.pool.main_thread import lend_main_thread
from paddock.algos.pool.pickling import dump
from paddock.algos.pool.protocol import Closes, Needs

log = logging.getLogger(__name__)

FLUSH_S = 0.1  # interval at which ends of small tasks are reported
UNFIT = 70  # exit code of a process whose thread cannot continue: EX_SOFTWARE of sysexits.h
_local = threading.local()  # .executor: the executor that this thread belongs to
_at_rest: list[Callable[[], None]] = []


@dataclass(eq=False, slots=True)
class Job:
    """Chunk of tasks that one thread runs sequentially."""

    run: Callable[[bytes], Any]
    tasks: deque[tuple[int, bytes]]  # number and pickled task of those not started
    needs: Needs
    limit_s: float | None = None  # per task
    renew_after: int | None = None  # number of tasks of this series after which the process is replaced
    series: str = ""
    running: int | None = None  # number of the running task
    began: float = 0.0  # its start, by the executor's clock


class Executor:
    """Queue of one driver's jobs, and the threads that run them.

    Attributes:
        clock: seconds that this process has run, without those in which it was stopped; advanced by the loop that
            checks time limits.
        abandoned: whether the driver is gone.
    """

    def __init__(
        self,
        capacity: Needs,
        ended: Callable[[int, float, bool, bytes, bool], None],
        retire: Callable[[], None],
    ) -> None:
        """Start a thread for each CPU; a single one uses the process's main thread if it is idle.

        `ended` is called with a task's number, seconds, success, pickled value or error, and whether it was its job's
        last task. `retire` is called once when a series needs a new process.
        """
        self.clock = 0.0
        self.abandoned = False
        self._capacity = capacity
        self._ended = ended
        self._retire = retire
        self._calls: deque[Job] = deque()
        self._waiting: deque[Job] = deque()
        self._running: dict[Job, None] = {}
        self._series: dict[str, int] = {}
        self._closed = False
        self._changed = threading.Condition()
        if capacity.cpu == 1 and lend_main_thread(self._work):
            return
        for _ in range(capacity.cpu):
            threading.Thread(target=self._work, name="paddock-task", daemon=True).start()

    def add(self, job: Job, first: bool = False) -> None:
        """Queue a job; calls of stateful objects take precedence (`first`), since their callers wait."""
        with self._changed:
            (self._calls if first else self._waiting).append(job)
            self._changed.notify()

    def take_back(self, ids: Iterable[int] | None = None) -> list[int]:
        """Remove tasks that have not started, all or those of these numbers; return the numbers removed."""
        wanted = None if ids is None else set(ids)
        removed: list[int] = []
        with self._changed:
            for job in (*self._calls, *self._waiting, *self._running):
                # From the end, as long as all are wanted: threads take tasks from the beginning.
                with contextlib.suppress(IndexError):
                    while wanted is None or job.tasks[-1][0] in wanted:
                        removed.append(job.tasks.pop()[0])
            self._changed.notify_all()
        return removed

    def close(self) -> None:
        """Start no further tasks."""
        self._closed = True

    def abandon(self) -> None:
        """End the threads once they have finished their tasks."""
        with self._changed:
            self._closed = self.abandoned = True
            self._changed.notify_all()

    @property
    def busy(self) -> bool:
        """True if a task is running."""
        return bool(self._running)

    def overdue(self, margin_s: float) -> list[int]:
        """Return the numbers of tasks that have exceeded their limit by a margin."""
        with self._changed:
            running = [(job.running, job) for job in self._running if job.limit_s is not None]
        return [
            task
            for task, job in running
            if task is not None and self.clock - job.began > (job.limit_s or 0.0) + margin_s and job.running == task
        ]

    def _work(self) -> None:
        _local.executor = self
        try:
            while (job := self._take()) is not None:
                renew = self._run(job)
                with self._changed:
                    del self._running[job]
                    if job.tasks:  # left by a closed executor to `take_back`
                        self._waiting.appendleft(job)
                    self._changed.notify_all()
                if renew:
                    self._retire()
            run_cleanups()
        except BaseException as error:
            if isinstance(error, SystemExit) and self._closed:
                raise  # the worker ends
            # Otherwise the task would seem to run indefinitely. Memory may be exhausted, so do nothing else.
            os.write(2, b"paddock: a worker thread failed, so the worker exits\n")
            os._exit(UNFIT)

    def _take(self) -> Job | None:
        with self._changed:
            while (job := self._next()) is None and not self.abandoned:
                self._changed.wait()
            if job is not None:
                self._running[job] = None
            return job

    def _next(self) -> Job | None:
        """Return the first job if it can start now; later jobs never overtake it, even if they need less."""
        for jobs in (self._calls, self._waiting):
            while jobs and not jobs[0].tasks:
                jobs.popleft()
            if jobs:
                return jobs.popleft() if self._fits(jobs[0]) and not self._closed else None
        return None

    def _fits(self, job: Job) -> bool:
        needs, most = [one.needs for one in (*self._running, job)], self._capacity
        return (
            sum(one.cpu for one in needs) <= most.cpu
            and sum(one.memory_gb for one in needs) <= most.memory_gb
            and sum(one.gpu for one in needs) <= most.gpu
        )

    def _run(self, job: Job) -> bool:
        """Run the tasks of a job; return whether the process must be replaced."""
        while not self._closed:
            try:
                task, data = job.tasks.popleft()
            except IndexError:
                return False
            # The order matters, since `overdue` may run between any two statements.
            job.began, began = self.clock, time.monotonic()
            job.running = task
            good, value = perform(job.run, data)
            seconds = time.monotonic() - began
            job.running = None
            renew = job.renew_after is not None and self._count(job.series) == job.renew_after
            self._closed |= renew
            self._ended(task, seconds, good, value, not job.tasks)
            if renew:
                return True
        return False

    def _count(self, series: str) -> int:
        with self._changed:
            self._series[series] = self._series.get(series, 0) + 1
            return self._series[series]


def register_cleanup(call: Callable[[], None]) -> None:
    """Register a function to call in each executor thread once its driver is gone."""
    _at_rest.append(call)


def run_cleanups() -> None:
    """Call the registered cleanups in this thread, and log their errors."""
    for call in _at_rest:
        try:
            call()
        except Exception:
            log.exception("cleanup of a worker thread failed")


def has_driver() -> bool:
    """Return whether the driver of this thread's task is connected; True in a thread without tasks."""
    executor: Executor | None = getattr(_local, "executor", None)
    return executor is None or not executor.abandoned


def perform(run: Callable[[bytes], Any], data: bytes) -> tuple[bool, bytes]:
    """Run a task and pickle its outcome: (True, value) or (False, error and formatted traceback)."""
    try:
        value = run(data)
        try:
            return True, dump(value)
        except Exception as error:
            raise MaybeEncodingError(error, value) from error
    except BaseException as error:
        # Even SystemExit ends only the task, since the worker runs others.
        if isinstance(error, MemoryError):
            traceback.clear_frames(error.__traceback__)  # frees the memory that the frames hold
        return False, dump_error(error)


def dump_error(error: BaseException) -> bytes:
    """Pickle a formatted traceback and the pickled exception, which is empty if it cannot be pickled."""
    text = "".join(traceback.format_exception(error))
    cause: BaseException | None = error
    while cause is not None and cause.__traceback__ is not None:  # drop frames, which would be pickled too
        cause.__traceback__, cause = None, cause.__cause__ or cause.__context__
    try:
        return pickle.dumps((text, dump(error)))
    except Exception:
        return pickle.dumps((text, b""))


class StatefulObject:
    """Object that lives in this process; its driver sends one call at a time."""

    def __init__(self, factory: bytes) -> None:
        self._factory: bytes | None = factory
        self._object: Any = None
        self._lock = threading.Lock()  # after the object has moved away and back, an earlier call may still run
        self.call_id: int | None = None  # of the last call

    def call(self, data: bytes) -> Any:
        """Call a method: pickled (name, args, kwargs)."""
        with self._lock:
            if self._factory is not None:
                self._object, self._factory = pickle.loads(self._factory)(), None
            method, args, kwargs = pickle.loads(data)
            return getattr(self._object, method)(*args, **kwargs)

    def close(self) -> None:
        """Close the object in a separate thread, so that a hanging `close` blocks nothing else."""
        threading.Thread(target=self._close, name="paddock-close", daemon=True).start()

    def _close(self) -> None:
        with self._lock:
            if isinstance(self._object, Closes):  # None if it was never called
                try:
                    self._object.close()
                except Exception:
                    log.exception("closing a stateful object failed")


def memory_gb(limit: int | None) -> float:
    """Return a worker's memory limit in GB; unlimited memory is not counted."""
    return limit / 2**30 if limit else sys.float_info.max
