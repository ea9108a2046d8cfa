"""`multiprocessing.Pool` on any pool of conf/compute: code for the standard class runs there by swapping the object.

    from paddock.compute import Pool

    with Pool(8) as pool:                                      # processes here
    with Pool(compute="dask", address="tcp://...") as pool:    # a cluster

Where the standard library's pool would hang or go on for ever, this one ends: a task whose worker died runs again, and
raises WorkerLost once that has happened too often; an initializer that raises is the error of the tasks it was to
precede; results of a terminated pool raise PoolError.
"""

import contextlib
import functools
import multiprocessing.pool
import operator
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from paddock.algos.pool.calls import Call, Initializer, SentOnce, call
from paddock.algos.pool.late import LatePool
from paddock.algos.pool.protocol import ONE_CPU, Needs, check_options
from paddock.algos.pool.protocol import Pool as SeamPool
from paddock.algos.pool.script import Unguarded, check_guarded
from paddock.envs.errors import ConfigError, require

from ...config.build import build
from .results import AsyncResult, Callback, ResultIterator, ResultThread, chain

RUN, CLOSE, TERMINATE = "RUN", "CLOSE", "TERMINATE"  # as the standard library's class has them
CHUNKS = 32  # a map makes at most about so many for each worker, for even shares; small maps have one for each item


class Pool(multiprocessing.pool.Pool):
    """The standard library's class over our workers; see there for what is not said here."""

    # Of the base class, which declares them to nobody.
    _check_running: Callable[[], None]
    _get_tasks: Callable[..., Iterator[Any]]

    def __init__(
        self,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: int | None = None,
        context: Any = None,
        *,
        compute: str | SeamPool = "local",
        needs: Needs = ONE_CPU,
        retry_errors: int = 0,
        **settings: Any,
    ) -> None:
        """Open the workers.

        Args:
            processes: workers, where this pool starts them; None: as the YAML says. Nothing in `compute="serial"`.
            initializer: runs in each worker process before its first task; an exception is the task's, and the next
                task tries again.
            maxtasksperchild: a worker process that ran so many chunks is replaced; a call is a chunk of its own.
            context: taken and not used: workers always start afresh, as with "spawn".
            compute: an option of conf/compute, or an open pool, which then stays open when this one ends.
            needs: what each call occupies on its worker.
            retry_errors: how often a chunk that raises is run again before its exception is raised here.
            settings: keys of that option, such as address="tcp://..."; task_timeout_s= is for a chunk, too. With it, or
                with retry_errors=, a map for which no chunksize is given has chunks of one item.

        Raises:
            ValueError, TypeError: as `multiprocessing.Pool`.
            ConfigError: no such option, key or value, or needs or retry_errors that cannot be.
            PoolError: the workers are out of reach.
        """
        self._state = CLOSE  # until it is open
        if processes is not None and processes < 1:
            raise ValueError("Number of processes must be at least 1")
        if maxtasksperchild is not None and not (isinstance(maxtasksperchild, int) and maxtasksperchild >= 1):
            raise ValueError("maxtasksperchild must be a positive int or None")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        check_options({"needs": needs, "retry_errors": retry_errors})
        own = isinstance(compute, str)
        known = own or isinstance(compute, SeamPool | LatePool)
        require(known, f"compute={compute!r} is no option of conf/compute, and no open pool")
        check_guarded()
        try:
            self._workers: Any = _open(compute, processes, settings) if isinstance(compute, str) else compute
        except Unguarded as error:
            raise SystemExit(f"paddock: {error}") from None  # of a script that cannot go on, in a line
        if not own and settings:
            raise ConfigError(f"compute is an open pool, which takes no {min(settings)}=; open it with that")
        self._retries = retry_errors
        self._lock = threading.Lock()
        self._cache: dict[int, Any] = {}  # results that have not ended, by job
        try:
            setup = None
            if initializer is not None:
                setup = self._workers.broadcast(Initializer(initializer, tuple(initargs)))
            open_batch = functools.partial(
                self._workers.open_batch,
                functools.partial(call, setup),
                needs=needs,
                retry_errors=retry_errors,
                renew_after=maxtasksperchild,
            )
            self._thread = ResultThread(open_batch, self._cache, self._workers.close if own else bool)
            self._thread.start()
        except BaseException:
            if own:
                self._workers.close()
            raise
        self._state = RUN
        weakref.finalize(self, self._thread.let_go).atexit = False

    def apply_async(
        self,
        func: Callable[..., Any],
        args: Iterable[Any] = (),
        kwds: Mapping[str, Any] | None = None,
        callback: Callback | None = None,
        error_callback: Callback | None = None,
    ) -> AsyncResult:
        """Start a call; one of the callbacks is called with its value or its exception, in a thread of the pool."""
        self._check_running()
        result = AsyncResult(self, 1, operator.itemgetter(0), callback, error_callback)
        self._begin(result, functools.partial(self._put, [(func, tuple(args), dict(kwds or {}))], result))
        return result

    def imap(  # type: ignore[override]
        self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int = 1
    ) -> ResultIterator:
        """The values of func as they come, in the order of the items, which are taken a few ahead of the workers."""
        return self._imap(func, iterable, chunksize, ordered=True)

    def imap_unordered(  # type: ignore[override]
        self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int = 1
    ) -> ResultIterator:
        """Like `imap`, in the order in which they come."""
        return self._imap(func, iterable, chunksize, ordered=False)

    def close(self) -> None:
        """Take no more calls; the workers go once all have ended."""
        with self._lock:
            if self._state != TERMINATE:  # again, too, where the first was interrupted
                self._state = CLOSE
                self._thread.close()

    def terminate(self) -> None:
        """Drop what waits; a pool that opened its workers ends them, whatever they run."""
        with self._lock:
            self._state = TERMINATE
        self._thread.terminate()
        self._thread.join()

    def join(self) -> None:
        """Wait until all calls have ended and the workers are gone, after `close` or `terminate`."""
        if self._state == RUN:
            raise ValueError("Pool is still running")
        self._thread.join()

    def __repr__(self) -> str:
        size = f" pool_size={self._workers.size}" if self._state == RUN else ""
        return f"<{type(self).__module__}.{type(self).__qualname__} state={self._state}{size}>"

    def _map_async(
        self,
        func: Callable[..., Any],
        iterable: Iterable[Any],
        mapper: Callable[[Any], list[Any]],
        chunksize: int | None = None,
        callback: Callback | None = None,
        error_callback: Callback | None = None,
    ) -> AsyncResult:
        """Start a map or starmap, for the standard library's four; its mapper calls func on the items of a chunk."""
        self._check_running()
        items = list(iterable)
        if chunksize is None:
            # What is retried, and may take so long, is a whole chunk.
            single = self._retries or self._workers.task_timeout_s is not None
            chunksize = 1 if single else len(items) // (max(self._workers.size, 1) * CHUNKS) + 1
        calls = list(self._chunk_calls(func, items, mapper, chunksize))
        result = AsyncResult(self, len(calls), chain, callback, error_callback)
        self._begin(result, functools.partial(self._put, calls, result))
        return result

    def _imap(
        self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int, *, ordered: bool
    ) -> ResultIterator:
        calls = self._chunk_calls(func, iterable, multiprocessing.pool.mapstar, chunksize)  # type: ignore[attr-defined]
        results = ResultIterator(self, ordered)
        workers = self._workers
        arguments = (calls, results, lambda: workers.size)
        feeder = threading.Thread(target=self._thread.feed, args=arguments, name="Pool tasks", daemon=True)
        self._begin(results, feeder.start)
        return results

    def _chunk_calls(
        self, func: Callable[..., Any], iterable: Iterable[Any], mapper: Callable[[Any], list[Any]], chunksize: int
    ) -> Iterator[Call]:
        """Calls of the standard library's mapper, which calls func on the items of a chunk."""
        self._check_running()
        if chunksize < 1:
            raise ValueError(f"Chunksize must be 1+, not {chunksize}")
        with contextlib.suppress(Exception):  # what cannot be pickled is the error of every chunk
            func = SentOnce(self._workers.broadcast(func))
        return ((mapper, (chunk,), {}) for chunk in self._get_tasks(func, iterable, chunksize))

    def _begin(self, result: AsyncResult | ResultIterator, start: Callable[[], object]) -> None:
        """Start what will end a result, and have the pool wait for that before it goes."""
        try:
            with self._lock:
                self._check_running()
                result.keep()
            start()
        except BaseException as error:  # such as Ctrl-C: nobody will have the result
            self._thread.do(functools.partial(result.abandon, error))
            raise

    def _put(self, calls: Collection[Call], result: AsyncResult) -> None:
        for position, one in enumerate(calls):
            self._thread.put(one, functools.partial(result.take, position))
        if not calls:
            self._thread.do(result.end)


def _open(compute: str, processes: int | None, settings: Mapping[str, Any]) -> Any:
    """Open the pool of an option of conf/compute, checked as a run's is."""
    # Hydra takes a while to import, which whoever only names the class should not wait for.
    from ...config.compose import compose_sections

    section = {**compose_sections(["compute"], [f"compute={compute}"])["compute"], **settings}
    if processes is not None and "workers" in section:
        section["workers"] = processes
    return build("compute", section).open(("paddock",))
