"""What runs tasks inside a worker process: threads, and a queue they take from, as many at once as needs allow.

Drivers hand over small tasks in chunks. An end is sent when there is nothing left to do or when the last sending is
FLUSH_S ago, so that a thousand tasks of a millisecond cost fifty messages and a task of a second is told at once.
"""

import pickle
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from multiprocessing.pool import MaybeEncodingError  # type: ignore[attr-defined]
from typing import Any, Protocol

import cloudpickle

from algos.pool import RemoteError

FLUSH_S = 0.02  # ends of small tasks are gathered for so long


class Client(Protocol):
    """Who gave a job, and is told of its end."""

    def ended(self, job: "Job", seconds: float, good: bool, data: bytes) -> None: ...


@dataclass(eq=False, slots=True)
class Job:
    """One task on its worker."""

    client: Client
    id: int
    run: Callable[[], Any]
    cpu: int
    memory_gb: float
    gpu: int
    limit_s: float | None = None
    series: str | None = None  # tasks of one batch whose worker is renewed after some of them
    renew_after: int | None = None


@dataclass(eq=False)
class Desk:
    """The jobs of a worker process: waiting, running, and what is free for the next."""

    cpu: int
    memory_gb: float
    gpu: int
    retire: Callable[[], None]  # called once in a thread of the desk, when a series asks for a new process
    _free: dict[str, float] = field(init=False)
    _urgent: deque[Job] = field(default_factory=deque)
    _waiting: deque[Job] = field(default_factory=deque)
    running: dict[Job, float] = field(default_factory=dict)  # when each began, of time.monotonic()
    _series: dict[str, int] = field(default_factory=dict)
    _closed: bool = False

    def __post_init__(self) -> None:
        self._free = {"cpu": self.cpu, "memory_gb": self.memory_gb, "gpu": self.gpu}
        self._changed = threading.Condition()
        for k in range(self.cpu):
            threading.Thread(target=self._work, name=f"paddock-{k}", daemon=True).start()

    def add(self, jobs: Iterable[Job], urgent: bool) -> None:
        """Queue jobs, behind those of the same urgency."""
        with self._changed:
            (self._urgent if urgent else self._waiting).extend(jobs)
            self._changed.notify(self.cpu)

    def take_back(self, client: Client, ids: Iterable[int] | None = None) -> list[int]:
        """Remove a client's jobs that have not begun, those of these ids or all; returns the ids of those removed."""
        wanted = None if ids is None else set(ids)
        removed: list[int] = []
        with self._changed:
            for jobs in (self._urgent, self._waiting):
                kept = []
                for job in jobs:
                    if job.client is client and (wanted is None or job.id in wanted):
                        removed.append(job.id)
                    else:
                        kept.append(job)
                jobs.clear()
                jobs.extend(kept)
        return removed

    def idle_for(self, client: Client) -> bool:
        """Whether nothing of a client waits or runs."""
        with self._changed:
            return not any(job.client is client for jobs in (self._urgent, self._waiting, self.running) for job in jobs)

    def close(self) -> None:
        """Begin no further job."""
        with self._changed:
            self._closed = True

    def overdue(self) -> list[Job]:
        """Running jobs that have exceeded their limit."""
        now = time.monotonic()
        with self._changed:
            return [job for job, began in self.running.items() if job.limit_s is not None and now - began > job.limit_s]

    def _work(self) -> None:
        while True:
            with self._changed:
                while (job := self._next()) is None:
                    self._changed.wait()
                self._take(job, 1)
                self.running[job] = time.monotonic()
            started = time.perf_counter()
            good, data = perform(job.run)
            seconds = time.perf_counter() - started
            with self._changed:
                del self.running[job]
                self._take(job, -1)
                if job.cpu > 1 or job.memory_gb or job.gpu:
                    self._changed.notify_all()
                renew = self._count(job)
            job.client.ended(job, seconds, good, data)
            if renew:
                self.retire()

    def _next(self) -> Job | None:
        """The first job, if it may begin now; a job that needs much is not overtaken by ones that need less."""
        for jobs in (self._urgent, self._waiting):
            if jobs:
                return jobs.popleft() if self._fits(jobs[0]) and not self._closed else None
        return None

    def _fits(self, job: Job) -> bool:
        free = self._free
        return job.cpu <= free["cpu"] and job.memory_gb <= free["memory_gb"] and job.gpu <= free["gpu"]

    def _take(self, job: Job, sign: int) -> None:
        self._free["cpu"] -= sign * job.cpu
        self._free["memory_gb"] -= sign * job.memory_gb
        self._free["gpu"] -= sign * job.gpu

    def _count(self, job: Job) -> bool:
        if job.series is None or job.renew_after is None:
            return False
        self._series[job.series] = count = self._series.get(job.series, 0) + 1
        if count == job.renew_after:
            self._closed = True
        return count == job.renew_after


def perform(run: Callable[[], Any]) -> tuple[bool, bytes]:
    """Run, and pickle what came of it: (True, its value), or (False, the error with its traceback in words)."""
    try:
        value = run()
        try:
            return True, dump(value)
        except Exception as error:
            raise MaybeEncodingError(error, value) from error
    except BaseException as error:
        # Even SystemExit is the task's own: the worker has others to run.
        return False, dump_error(error)


def dump(value: Any) -> bytes:
    """Pickle a value; by value where the other side could not import it."""
    try:
        data = pickle.dumps(value, 5)
    except Exception:
        return cloudpickle.dumps(value)
    # What was defined in the script itself has another script's name on the other side.
    return cloudpickle.dumps(value) if b"__main__" in data else data


def dump_error(error: BaseException) -> bytes:
    """Pickle an exception and its traceback; in words where it cannot travel."""
    text = "".join(traceback.format_exception(error))
    try:
        data = dump((error, text))
        pickle.loads(data)
        return data
    except Exception:
        return pickle.dumps((RemoteError(f"{type(error).__name__}: {error}"), text))


class Resident:
    """An object that lives here; its calls run one at a time, in their order."""

    def __init__(self, desk: Desk, data: bytes) -> None:
        self._desk = desk
        self._data: bytes | None = data
        self._object: Any = None
        self._calls: deque[Job] = deque()
        self._busy = False
        self._lock = threading.Lock()

    def add(self, job: Job, data: bytes) -> None:
        """Queue a call: its pickled (method, args, kwargs)."""
        job.run = lambda: self._run(data)
        with self._lock:
            self._calls.append(job)
            if self._busy:
                return
            self._busy = True
        self._desk.add([job], urgent=True)

    def close(self) -> None:
        """Let the object go once its open calls have ended, by its own `close` if it has one."""
        self.add(Job(_NOBODY, -1, _nothing, 1, 0.0, 0), dump(("close", (), {})))

    def give_up(self) -> list[int]:
        """Drop the calls that wait for another one's end; returns their ids."""
        with self._lock:
            dropped = [job.id for job in list(self._calls)[1:]]
            while len(self._calls) > 1:
                self._calls.pop()
        return dropped

    def _run(self, data: bytes) -> Any:
        try:
            if self._data is not None:
                self._object = pickle.loads(self._data)()
                self._data = None
            method, args, kwargs = pickle.loads(data)
            if method == "close" and not hasattr(self._object, "close"):
                return None
            return getattr(self._object, method)(*args, **kwargs)
        finally:
            with self._lock:
                self._calls.popleft()
                self._busy = bool(self._calls)
                following = self._calls[0] if self._busy else None
            if following is not None:
                self._desk.add([following], urgent=True)


def memory_gb(limit: int | None) -> float:
    """A worker's memory limit in GB; without one it is not counted."""
    return limit / 2**30 if limit else sys.float_info.max


class _Nobody:
    def ended(self, job: Job, seconds: float, good: bool, data: bytes) -> None: ...


_NOBODY = _Nobody()


def _nothing() -> None: ...
