"""What runs tasks inside a worker process: threads, and a queue they take from, as many at once as needs allow.

Drivers hand over small tasks in chunks. Ends are told when a chunk is done or FLUSH_S have passed, so that a thousand
tasks of a millisecond cost thirty messages and a task of a second is told at once.
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
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from multiprocessing.pool import MaybeEncodingError  # type: ignore[attr-defined]
from typing import Any, Protocol

from paddock.algos.pool.broadcast import Blob, read_from
from paddock.algos.pool.protocol import Closes, RemoteError
from paddock.algos.pool.script import Script, dump, load, run_for

log = logging.getLogger(__name__)

REST_S = 10.0  # a thread that takes longer to let go of what it kept is replaced
FLUSH_S = 0.1  # ends of small tasks are gathered for so long
UNFIT = 70  # exit code of a process whose thread cannot go on: EX_SOFTWARE of sysexits.h
UNTOLD = pickle.dumps((RemoteError("its error could not be told, as there was no memory left for it"), ""))
_local = threading.local()  # .client: whose task this thread runs
_at_rest: list[Callable[[], None]] = []


class Client(Protocol):
    """Who gave a job, and is told of the end of each of its tasks, and which is the job's last."""

    @property
    def waits(self) -> bool:
        """Whether it is there still."""
        ...

    def ended(self, task: int, seconds: float, good: bool, data: bytes, last: bool) -> None: ...


@dataclass(eq=False, slots=True)
class Job:
    """Tasks that came together; one thread runs them, one after the other."""

    client: Client
    run: Callable[[bytes], Any]
    tasks: deque[tuple[int, bytes]]  # not begun: number and pickled task
    cpu: int
    memory_gb: float
    gpu: int
    limit_s: float | None = None  # for each task
    renew_after: int | None = None  # tasks of this series after which the process is renewed
    series: str = ""
    told: Callable[[], None] | None = None  # called once what came of a task is pickled
    running: int | None = None  # the task that runs
    began: float = 0.0  # when it did, by the executor's clock


@dataclass(eq=False)
class Executor:
    """The jobs of a worker process: waiting, and running."""

    cpu: int
    memory_gb: float
    gpu: int
    retire: Callable[[], None]  # called once in a thread of the executor, when a series asks for a new process
    _calls: deque[Job] = field(default_factory=deque)
    _waiting: deque[Job] = field(default_factory=deque)
    _running: dict[Job, None] = field(default_factory=dict)
    _series: dict[str, int] = field(default_factory=dict)
    _closed: bool = False
    _rests: int = 0
    stopped_s: float = field(default=0.0, init=False)  # in which this process did not run, as far as is known

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        for _ in range(self.cpu):
            self._start_thread()

    def _start_thread(self) -> None:
        threading.Thread(target=self._work, name="paddock-task", daemon=True).start()

    def add(self, job: Job, first: bool = False) -> None:
        """Queue a job, behind the others; a call of an object goes first, since its caller waits."""
        with self._changed:
            (self._calls if first else self._waiting).append(job)
            self._changed.notify()

    def take_back(self, client: Client, ids: Iterable[int] | None = None) -> list[int]:
        """Remove a client's tasks that have not begun, those of these numbers or all; returns those removed."""
        wanted = None if ids is None else set(ids)
        removed: list[int] = []
        with self._changed:
            for job in (*self._calls, *self._waiting, *self._running):
                if job.client is client:
                    removed += _remove(job.tasks, wanted)
            self._changed.notify_all()  # what was first in the queue, and did not fit, may have gone
        return removed

    def close(self) -> None:
        """Begin no further task."""
        with self._changed:
            self._closed = True

    def rest(self) -> None:
        """Have each thread, once it has nothing to do, call what `call_at_rest` was given: nobody is there any more."""
        with self._changed:
            self._rests += 1
            self._changed.notify_all()

    def excuse(self, seconds: float) -> None:
        """Let so many seconds, in which this process was stopped, count for no task's limit."""
        self.stopped_s += seconds

    def _clock(self) -> float:
        return time.monotonic() - self.stopped_s

    def overdue(self, client: Client) -> list[int]:
        """A client's tasks that run and have exceeded their limit."""
        now = self._clock()
        with self._changed:
            running = [job for job in self._running if job.client is client and job.limit_s is not None]
        found = [(job.running, now - job.began > (job.limit_s or 0.0)) for job in running]
        return [task for task, late in found if late and task is not None]

    def runs(self, client: Client) -> bool:
        """Return whether a task of a client runs."""
        with self._changed:
            return any(job.client is client for job in self._running)

    def _work(self) -> None:
        try:
            self._serve()
        except BaseException:
            # Or its task would run for ever, in a process that says it lives. No memory may be left for more words.
            os.write(2, b"paddock: a thread of this worker could not go on, so the worker ends\n")
            os._exit(UNFIT)

    def _serve(self) -> None:
        rests = 0
        while True:
            _forget_client()
            with self._changed:
                while (job := self._next()) is None and rests == self._rests:
                    self._changed.wait()
                if job is not None:
                    self._running[job] = None
            if job is None or job.client is _NOBODY:
                rests = self._rests if job is None else rests
                if not self._let_go(job):
                    return
                continue
            renew = self._run(job)
            with self._changed:
                del self._running[job]
                if job.tasks:  # which the executor, closed by now, leaves to whoever takes them back
                    self._waiting.appendleft(job)
                self._changed.notify_all()
            if renew:
                self.retire()

    def _let_go(self, job: Job | None) -> bool:
        """Close an object, by a job, or call what is to be called at rest.

        Returns:
            False where that took long, and another thread took over.
        """
        here = [True]

        def leave() -> None:
            here.pop()
            if job is not None:
                del self._running[job]
            self._changed.notify_all()

        def replace() -> None:
            with self._changed:
                if here:
                    log.warning("a worker's thread takes long to let go of what it kept; another one takes its place")
                    leave()
                    self._start_thread()

        timer = threading.Timer(REST_S, replace)
        timer.daemon = True
        timer.start()
        if job is None:
            let_go()
        else:
            self._run(job)
        with self._changed:
            timer.cancel()
            stays = bool(here)
            if stays:
                leave()
            return stays

    def _run(self, job: Job) -> bool:
        """Run the tasks of a job; returns whether the process is to be renewed."""
        while not self._closed:
            try:
                task, data = job.tasks.popleft()
            except IndexError:
                return False
            _local.client = job.client
            # In this order: `overdue` may look between any two.
            job.began, began = self._clock(), time.monotonic()
            job.running = task
            good, value = perform(job.run, data)
            if job.told is not None:
                job.told()
            seconds = time.monotonic() - began
            job.running = None
            renew = job.renew_after is not None and self._count(job.series) == job.renew_after
            self._closed |= renew
            job.client.ended(task, seconds, good, value, not job.tasks)
            if renew:
                return True
        return False

    def _next(self) -> Job | None:
        """The first job, if it may begin now; a job that needs much is not overtaken by ones that need less."""
        for jobs in (self._calls, self._waiting):
            while jobs and not jobs[0].tasks:
                jobs.popleft()
            if jobs:
                return jobs.popleft() if self._fits(jobs[0]) and not self._closed else None
        return None

    def _fits(self, job: Job) -> bool:
        # Added up anew: what is taken from a fraction of a GB and given back does not quite make it whole again.
        jobs = [*self._running, job]
        return (
            sum(one.cpu for one in jobs) <= self.cpu
            and sum(one.memory_gb for one in jobs) <= self.memory_gb
            and sum(one.gpu for one in jobs) <= self.gpu
        )

    def _count(self, series: str) -> int:
        with self._changed:
            self._series[series] = self._series.get(series, 0) + 1
            return self._series[series]


def _remove(tasks: deque[tuple[int, bytes]], wanted: set[int] | None) -> list[int]:
    """Take tasks out of a deque from which another thread takes the first; returns the numbers of those taken."""
    # From the end, and only as long as all of them are wanted: the other thread takes from the beginning.
    removed = []
    with contextlib.suppress(IndexError):
        while wanted is None or tasks[-1][0] in wanted:
            removed.append(tasks.pop()[0])
    return removed


def call_at_rest(call: Callable[[], None]) -> None:
    """Have something called in each thread that runs tasks, when all whose tasks they may be have gone."""
    _at_rest.append(call)


def let_go() -> None:
    """Call in this thread what `call_at_rest` was given; one that fails is told of, and keeps no other."""
    for call in _at_rest:
        try:
            call()
        except Exception:
            log.exception("a thread could not let go of what it kept")


def _forget_client() -> None:
    """Let this thread keep nothing of whose task it ran: what was broadcast may be large, and its driver gone."""
    _local.client = None
    read_from({})
    run_for(None)


def is_awaited() -> bool:
    """Return whether anybody waits for the task that this thread runs; who runs none is awaited."""
    client: Client | None = getattr(_local, "client", None)
    return client is None or client.waits


def perform(run: Callable[[bytes], Any], data: bytes) -> tuple[bool, bytes]:
    """Run, and pickle what came of it: (True, its value), or (False, the error with its traceback in words)."""
    try:
        with NoForks():
            value = run(data)
        try:
            return True, dump(value)
        except Exception as error:
            raise MaybeEncodingError(error, value) from error
    except BaseException as error:
        # Even SystemExit is the task's own: the worker has others to run.
        if isinstance(error, MemoryError):
            traceback.clear_frames(error.__traceback__)  # they hold what there is too much of
        return False, dump_error(error)


class NoForks:
    """What a fork does not leave: it ends there, as a program ends, by the error that it leaves by, if it is by one.

    Else it would have locks of other threads, and run tasks that are not its own.
    """

    def __enter__(self) -> None:
        self._process = os.getpid()

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> None:
        if os.getpid() == self._process:
            return
        code = 0 if error is None else 1
        try:
            with contextlib.suppress(Exception):  # of whatever is in the place of the streams there
                if isinstance(error, SystemExit):
                    code = error.code if isinstance(error.code, int) else int(error.code is not None)
                    if not isinstance(error.code, int | None):
                        print(error.code, file=sys.stderr)
                elif error is not None:
                    traceback.print_exception(error)
            with contextlib.suppress(Exception):
                sys.stdout.flush()
        finally:
            os._exit(code & 0xFF)


def dump_error(error: BaseException) -> bytes:
    """Pickle an exception and its traceback; in words where it cannot travel, and by `UNTOLD` where nothing can."""
    try:
        return _in_words(error)
    except BaseException:
        return UNTOLD


def _in_words(error: BaseException) -> bytes:
    try:
        text = "".join(traceback.format_exception(error))
        line = "".join(traceback.format_exception_only(error)).strip()
    except BaseException:  # of its own, where it is asked for what these tell
        line = type(error).__qualname__
        return pickle.dumps((RemoteError(line), "".join([*traceback.format_tb(error.__traceback__), line])))
    try:
        data = dump((error, text))
        pickle.loads(data)
        return data
    except BaseException:
        return pickle.dumps((RemoteError(line), text))


class Resident:
    """An object that lives here; its calls run one at a time, in their order."""

    def __init__(self, executor: Executor, data: bytes, blobs: Mapping[str, Blob], script: Script | None) -> None:
        self._executor = executor
        self._blobs = blobs
        self._script = script
        self._data: bytes | None = data
        self._object: Any = None
        self._calls: deque[tuple[int, Job]] = deque()  # by their numbers; the first runs, or waits for a thread
        self._lock = threading.Lock()

    def add(self, job: Job) -> None:
        """Queue a call: a job of one task, its pickled (method, args, kwargs)."""
        job.run = self._call
        self._queue(job)

    def close(self, taken_back: Collection[int] = ()) -> None:
        """Let the object go once its open calls have ended, by its own `close` if it has one.

        Args:
            taken_back: numbers of calls that the executor gave back, and will not run.
        """
        with self._lock:
            if self._calls and self._calls[0][0] in taken_back:
                self._calls.popleft()
        self._queue(Job(_NOBODY, self._close, deque([(-1, b"")]), 1, 0.0, 0))

    @property
    def open(self) -> list[int]:
        """The numbers of its calls that have not ended."""
        with self._lock:
            return [number for number, _ in self._calls]

    def give_up(self) -> list[int]:
        """Drop the calls that wait for another one's end; returns their numbers."""
        with self._lock:
            dropped = list(self._calls)[1:]
            self._calls = deque(list(self._calls)[:1])
        return [number for number, _ in dropped]

    def _queue(self, job: Job) -> None:
        job.told = self._next
        with self._lock:
            self._calls.append((job.tasks[0][0], job))
            first = len(self._calls) == 1
        if first:
            self._executor.add(job, first=True)

    def _next(self) -> None:
        """Let the next call begin: not before what came of the last is pickled, which may be a part of the object."""
        with self._lock:  # in one: who gives up finds each call either here or with the executor
            self._calls.popleft()
            if self._calls:
                self._executor.add(self._calls[0][1], first=True)

    def _call(self, data: bytes) -> Any:
        self._prepare()
        if self._data is not None:
            self._object, self._data = load(self._data)(), None
        method, args, kwargs = load(data)
        return getattr(self._object, method)(*args, **kwargs)

    def _close(self, _: bytes) -> None:
        self._prepare()
        if isinstance(self._object, Closes):  # which one that was never called is not
            self._object.close()

    def _prepare(self) -> None:
        read_from(self._blobs)
        run_for(self._script)


def memory_gb(limit: int | None) -> float:
    """A worker's memory limit in GB; without one it is not counted."""
    return limit / 2**30 if limit else sys.float_info.max


class _Nobody:
    waits = False

    def ended(self, task: int, seconds: float, good: bool, data: bytes, last: bool) -> None: ...


_NOBODY = _Nobody()
