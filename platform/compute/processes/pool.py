"""`multiprocessing.Pool` on any pool of conf/compute: code for the standard class runs there by swapping the object.

    from paddock.compute import Pool

    with Pool(8) as pool:                                      # processes here
    with Pool(compute="dask", address="tcp://...") as pool:    # a cluster

Where the standard library's pool would hang or go on for ever, this one ends: a task whose worker died runs again, and
raises WorkerLost once that has happened too often; an initializer that raises is the error of the tasks it was to
precede; results of a terminated pool raise PoolError.
"""

import atexit
import functools
import itertools
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from algos.pool.calls import Initializer, Setup, call, map_chunk, starmap_chunk
from algos.pool.protocol import ONE_CPU, Needs
from algos.pool.protocol import Pool as SeamPool
from algos.pool.script import Unguarded, check_guarded
from algos.pool.serial import SerialPool
from envs.errors import ConfigError

from ...config.build import build
from .arrivals import Dispatch, ResultThread
from .results import AsyncResult, Callback, ResultIterator, feed

RUN, CLOSE, TERMINATE = "RUN", "CLOSE", "TERMINATE"
EXIT_S = 10.0  # what the end of the program, or of a pool that nobody closed, waits for its workers to go
CHUNKS = 32  # a map makes at most about so many for each worker, for even shares; small maps have one for each item


class Pool:
    """The standard library's interface; see `multiprocessing.pool.Pool` for what is not said here."""

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
            settings: keys of that option, such as address="tcp://...".

        Raises:
            ValueError, TypeError: as `multiprocessing.Pool`.
            ConfigError: no such option, key or value.
            PoolError: the workers are out of reach.
        """
        self._state = CLOSE  # until it is open
        if processes is not None and processes < 1:
            raise ValueError("Number of processes must be at least 1")
        if maxtasksperchild is not None and not (isinstance(maxtasksperchild, int) and maxtasksperchild >= 1):
            raise ValueError("maxtasksperchild must be a positive int or None")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        own = isinstance(compute, str)
        check_guarded()
        try:
            self._workers: Any = _open(compute, processes, settings) if isinstance(compute, str) else compute
        except Unguarded as error:
            raise SystemExit(f"paddock: {error}") from None  # of a script that cannot go on, in a line
        if not own and settings:
            raise ConfigError(f"compute is an open pool, which takes no {min(settings)}=; open it with that")
        self._retries = retry_errors
        self._options = {"needs": needs, "retry_errors": retry_errors, "renew_after": maxtasksperchild}
        self._lock = threading.Lock()
        self._thread = ResultThread()
        forget = functools.partial(_let_go, self._thread)
        try:
            self._setup: Setup = None
            if initializer is not None:
                self._setup = self._workers.broadcast(Initializer(initializer, tuple(initargs)))
            self._calls = self._dispatch(functools.partial(call, self._setup))
            self._thread.start(functools.partial(_release, self._calls, self._workers if own else None, forget))
        except BaseException:
            if own:
                self._workers.close()
            raise
        self._state = RUN
        weakref.finalize(self, forget).atexit = False
        atexit.register(forget)  # runs before Dask's own, which was registered earlier and would take the loop away

    def apply(self, func: Callable[..., Any], args: Iterable[Any] = (), kwds: Mapping[str, Any] | None = None) -> Any:
        """func(*args, **kwds) on a worker."""
        return self.apply_async(func, args, kwds).get()

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
        ended = functools.partial(self._over, None)
        result = AsyncResult(1, _only, callback, error_callback, ended)
        self._expect(result)
        self._put(self._calls, [(func, tuple(args), dict(kwds or {}))], result)
        return result

    def map(self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int | None = None) -> list[Any]:
        """The values of func, in the order of the items; all end before the first exception among them is raised."""
        return self.map_async(func, iterable, chunksize).get()

    def map_async(
        self,
        func: Callable[[Any], Any],
        iterable: Iterable[Any],
        chunksize: int | None = None,
        callback: Callback | None = None,
        error_callback: Callback | None = None,
    ) -> AsyncResult:
        """Start a map; the callback is called once, with all values."""
        return self._map(map_chunk, func, iterable, chunksize, callback, error_callback)

    def starmap(
        self, func: Callable[..., Any], iterable: Iterable[Iterable[Any]], chunksize: int | None = None
    ) -> list[Any]:
        """Like `map`, where each item holds the arguments of one call."""
        return self.starmap_async(func, iterable, chunksize).get()

    def starmap_async(
        self,
        func: Callable[..., Any],
        iterable: Iterable[Iterable[Any]],
        chunksize: int | None = None,
        callback: Callback | None = None,
        error_callback: Callback | None = None,
    ) -> AsyncResult:
        """Start a starmap; the callback is called once, with all values."""
        return self._map(starmap_chunk, func, iterable, chunksize, callback, error_callback)

    def imap(self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int = 1) -> ResultIterator:
        """The values of func as they come, in the order of the items, which are taken a few ahead of the workers."""
        return self._imap(func, iterable, chunksize, ordered=True)

    def imap_unordered(self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int = 1) -> ResultIterator:
        """Like `imap`, in the order in which they come."""
        return self._imap(func, iterable, chunksize, ordered=False)

    def close(self) -> None:
        """Take no more calls; the workers go once all have ended."""
        with self._lock:
            if self._state == RUN:
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

    def __enter__(self) -> "Pool":
        self._check_running()
        return self

    def __exit__(self, *exception: object) -> None:
        self.terminate()

    def __reduce__(self) -> NoReturn:
        raise NotImplementedError("pool objects cannot be passed between processes or pickled")

    def __repr__(self) -> str:
        size = f" pool_size={self._workers.size}" if self._state == RUN else ""
        return f"<{type(self).__module__}.{type(self).__qualname__} state={self._state}{size}>"

    def __del__(self) -> None:
        if self._state == RUN:
            warnings.warn(f"unclosed running multiprocessing pool {self!r}", ResourceWarning, source=self, stacklevel=2)

    def _map(
        self,
        mapper: Callable[..., list[Any]],
        func: Callable[..., Any],
        iterable: Iterable[Any],
        chunksize: int | None,
        callback: Callback | None,
        error_callback: Callback | None,
    ) -> AsyncResult:
        self._check_running()
        items = list(iterable)
        if chunksize is None:
            # What is retried is a whole chunk.
            chunksize = 1 if self._retries else len(items) // (max(self._workers.size, 1) * CHUNKS) + 1
        _check_chunksize(chunksize)
        chunks = [tuple(items[start : start + chunksize]) for start in range(0, len(items), chunksize)]
        dispatch = self._dispatch(functools.partial(mapper, self._setup, func))
        ended = functools.partial(self._over, dispatch)
        result = AsyncResult(len(chunks), _chain, callback, error_callback, ended)
        self._expect(result)
        self._put(dispatch, chunks, result)
        if not chunks:
            self._thread.do(result.end)
        return result

    def _imap(
        self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int, *, ordered: bool
    ) -> ResultIterator:
        self._check_running()
        _check_chunksize(chunksize)
        dispatch = self._dispatch(functools.partial(map_chunk, self._setup, func))
        results = ResultIterator(ordered, functools.partial(self._over, dispatch))
        self._expect(results)
        workers = self._workers
        arguments = (iterable, chunksize, dispatch, results, self._thread, lambda: workers.size)
        threading.Thread(target=feed, args=arguments, name="Pool tasks", daemon=True).start()
        return results

    def _dispatch(self, fn: Callable[..., Any]) -> Dispatch:
        workers, options = self._workers, self._options
        return Dispatch(lambda deliver: workers.open_batch(fn, deliver, **options), self._thread)

    def _put(self, dispatch: Dispatch, tasks: Iterable[Any], result: AsyncResult) -> None:
        try:
            for position, task in enumerate(tasks):
                dispatch.put(task, functools.partial(result.take, position))
        except BaseException as error:  # nobody will have the result
            result.abandon(error)
            raise

    def _expect(self, result: AsyncResult | ResultIterator) -> None:
        with self._lock:
            self._check_running()
            self._thread.expect(result)

    def _over(self, dispatch: Dispatch | None, result: AsyncResult | ResultIterator) -> None:
        self._thread.over(result)
        if dispatch is not None:
            dispatch.cancel()

    def _check_running(self) -> None:
        if self._state != RUN:
            raise ValueError("Pool not running")


def _open(compute: str, processes: int | None, settings: Mapping[str, Any]) -> Any:
    """Open the pool of an option of conf/compute, checked as a run's is."""
    # Hydra takes a while to import, which whoever only names the class should not wait for.
    from ...config.overrides import compose_sections

    section = {**compose_sections(["compute"], [f"compute={compute}"])["compute"], **settings}
    recipe = build("compute", section)
    if processes is not None and not isinstance(recipe, SerialPool):
        recipe = build("compute", {**section, "workers": processes})
    return recipe.open(("algos", "envs"))


def _chain(chunks: list[list[Any]]) -> list[Any]:
    return list(itertools.chain.from_iterable(chunks))


def _only(values: list[Any]) -> Any:
    [value] = values
    return value


def _check_chunksize(chunksize: int) -> None:
    if chunksize < 1:
        raise ValueError(f"Chunksize must be 1+, not {chunksize}")


def _release(calls: Dispatch, workers: Any, forget: Callable[[], None]) -> None:
    atexit.unregister(forget)
    calls.cancel()
    if workers is not None:
        workers.close()


def _let_go(thread: ResultThread) -> None:
    """End a pool, also one that was forgotten; the collector may ask for it in a thread that must not wait."""
    thread.terminate()
    if threading.current_thread() is threading.main_thread():
        thread.join(EXIT_S)
