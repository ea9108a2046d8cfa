"""Drop-in replacement of `multiprocessing.Pool` on any option of conf/compute.

    from paddock.compute import Pool

    with Pool(8) as pool:                                      # local processes
    with Pool(compute="dask", address="tcp://...") as pool:    # a cluster

Everything except the transport is the standard library's. Unlike the standard pool, it does not hang: a task whose
worker died is retried and finally raises WorkerLost; an exception in the initializer is raised by the tasks after it;
results of a terminated pool raise PoolError.
"""

import atexit
import contextlib
import functools
import logging
import multiprocessing.pool
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from paddock.algos.pool.calls import Initializer, call, call_shared
from paddock.algos.pool.lazy import LazyPool
from paddock.algos.pool.main_guard import Unguarded, check_guarded
from paddock.algos.pool.protocol import ONE_CPU, Needs, PoolError, check_options
from paddock.algos.pool.protocol import Pool as SeamPool
from paddock.envs.errors import ConfigError, require

from ...config.build import build
from .transport import Transport

log = logging.getLogger(__name__)

CHUNKS = 32  # chunks of a map per worker, at most; small maps have one chunk per item

Callback = Callable[[Any], object]


class Pool(multiprocessing.pool.Pool):
    """Pool with the standard library's interface on the workers of any compute backend."""

    # Attributes of the base class, which does not declare them.
    _cache: dict[int, Any]
    _check_running: Callable[[], None]
    _change_notifier: Any
    _terminate: Callable[[], None]

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
            processes: number of workers to start; None: as in the YAML. Ignored by `compute="serial"`.
            initializer: runs once in each worker process; its exception is raised by the first task there, and the
                next task runs it again.
            initargs: arguments of the initializer.
            maxtasksperchild: a worker process is replaced after so many chunks; a single call is one chunk.
            context: ignored; workers always start as with "spawn".
            compute: an option of conf/compute, or an open pool, which stays open when this one is closed.
            needs: resources of each call on its worker.
            retry_errors: how often a chunk that raises is run again before its exception is raised here.
            settings: keys of that option, such as address="tcp://..."; task_timeout_s applies to a chunk. With it, or
                with retry_errors, the default chunksize of maps is 1.

        Raises:
            ValueError, TypeError: as in `multiprocessing.Pool`.
            ConfigError: an option, key or value is invalid.
            PoolError: the workers cannot be reached.
        """
        self._state = "INIT"
        if processes is not None and processes < 1:
            raise ValueError("Number of processes must be at least 1")
        if maxtasksperchild is not None and not (isinstance(maxtasksperchild, int) and maxtasksperchild >= 1):
            raise ValueError("maxtasksperchild must be a positive int or None")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        check_options({"needs": needs, "retry_errors": retry_errors})
        own = isinstance(compute, str)
        known = own or isinstance(compute, SeamPool | LazyPool)
        require(known, f"compute={compute!r} is neither an option of conf/compute nor an open pool")
        if not own and settings:
            raise ConfigError(f"{min(settings)}= cannot be changed in an open pool; set it when opening the pool")
        check_guarded()
        try:
            self._workers: Any = open_backend(compute, processes, settings) if isinstance(compute, str) else compute
        except Unguarded as error:
            raise SystemExit(f"paddock: {error}") from None  # the script cannot continue
        self._single = retry_errors > 0 or self._workers.task_timeout_s is not None
        with contextlib.ExitStack() as undo:
            if own:
                undo.callback(self._workers.close)
            setup = None
            if initializer is not None:
                setup = self._share(Initializer(initializer, tuple(initargs)))
            run = functools.partial(call, setup)
            options = {"needs": needs, "retry_errors": retry_errors, "renew_after": maxtasksperchild}
            self._transport = Transport(self._workers, own, lambda take: self._workers.open_batch(run, take, **options))
            if setup is not None:  # now, if the worker is idle; otherwise before its first task
                for _ in range(self._workers.size):
                    _run_initializer(self._workers, run, needs)
            super().__init__(max(self._workers.size, 1))
            self._transport.results = self._cache
            undo.pop_all()
        atexit.register(self._terminate)  # runs before Dask's exit function, which was registered earlier

    def _share(self, setup: Initializer) -> Any:
        try:
            return self._workers.broadcast(setup)
        except RuntimeError as error:  # a lock of multiprocessing
            remedy = "use a manager's lock, multiprocessing.Manager().Lock()"
            raise RuntimeError(f"initargs cannot be pickled: {error}; {remedy}") from error

    def _setup_queues(self) -> None:
        self._inqueue = self._outqueue = self._transport
        self._quick_put, self._quick_get = self._transport.submit, self._transport.get

    def _get_sentinels(self) -> list[Any]:
        return [self._change_notifier._reader]

    @staticmethod
    def Process(*_: Any, **__: Any) -> "_Worker":  # type: ignore[override]  # noqa: N802  called by the base class
        """Return a placeholder."""
        return _Worker()

    def join(self) -> None:
        """Wait until all calls are finished and the workers have exited, after `close` or `terminate`."""
        super().join()
        self._transport.release()

    def apply_async(
        self,
        func: Callable[..., Any],
        args: Iterable[Any] = (),
        kwds: Mapping[str, Any] | None = None,
        callback: Callback | None = None,
        error_callback: Callback | None = None,
    ) -> Any:
        """Start a call; a callback receives its value or its exception in a thread of the pool."""
        return super().apply_async(func, args, dict(kwds or {}), _guarded(callback), _guarded(error_callback))

    def imap(self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int = 1) -> Iterator[Any]:  # type: ignore[override]
        """Return an iterator of func's values in the order of the items, which are taken slightly ahead."""
        return super().imap(self._sent_once(func), iterable, chunksize)

    def imap_unordered(self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int = 1) -> Iterator[Any]:  # type: ignore[override]
        """Return an iterator of func's values in the order in which they finish."""
        return super().imap_unordered(self._sent_once(func), iterable, chunksize)

    def _map_async(
        self,
        func: Callable[..., Any],
        iterable: Iterable[Any],
        mapper: Any,
        chunksize: int | None = None,
        callback: Callback | None = None,
        error_callback: Callback | None = None,
    ) -> Any:
        """Start a map or starmap; called by four methods of the standard library."""
        self._check_running()
        items = list(iterable)
        if chunksize is None:
            # Retries and timeouts apply to whole chunks.
            chunksize = 1 if self._single else len(items) // (max(self._workers.size, 1) * CHUNKS) + 1
        start: Any = super()._map_async  # type: ignore[misc]
        callbacks = _guarded(callback), _guarded(error_callback)
        return start(self._sent_once(func), items, mapper, chunksize, *callbacks)

    def _sent_once(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that is sent to each worker once, however many chunks call it."""
        self._check_running()
        with contextlib.suppress(Exception):  # a function that cannot be pickled is the error of every chunk
            return functools.partial(call_shared, self._workers.broadcast(func))
        return func

    @staticmethod
    def _help_stuff_finish(inqueue: Transport, task_handler: Any, size: int) -> None:
        inqueue.stop()

    @classmethod
    def _terminate_pool(cls, taskqueue: Any, inqueue: Transport, *handlers: Any) -> None:
        terminate: Any = super()._terminate_pool  # type: ignore[misc]
        terminate(taskqueue, inqueue, *handlers)
        error = PoolError("the pool was terminated before this task finished; use close() and join() to wait")
        for result in list(handlers[-1].values()):
            _abandon(result, error)
        inqueue.release()


class _Worker:
    """Placeholder for a worker process in the standard library's bookkeeping."""

    name, exitcode = "", None

    def start(self) -> None: ...

    def join(self) -> None: ...


def _run_initializer(workers: SeamPool, run: Callable[[Any], Any], needs: Needs) -> None:
    """Run the initializer on an idle worker, in a batch of its own, as short tasks of one batch may share a worker."""
    batch = workers.open_batch(run, lambda ends: batch.cancel(), needs=needs)
    batch.put((_do_nothing, (), {}))


def _do_nothing() -> None:
    """Do nothing; the initializer runs before it."""


def _abandon(result: Any, error: PoolError) -> None:
    """Fail a result that will never be set, without calling its callbacks."""
    if isinstance(result, multiprocessing.pool.IMapIterator):
        with result._cond:  # type: ignore[attr-defined]
            result._items.append((False, error))  # type: ignore[attr-defined]
            result._length = result._index  # type: ignore[attr-defined]
            result._cond.notify()  # type: ignore[attr-defined]
    else:
        result._callback = result._error_callback = None
        result._number_left = 1
        result._set(0, (False, error))


def _guarded(callback: Callback | None) -> Callback | None:
    """Wrap a callback, so that its exceptions do not end the calling thread."""

    def guarded(given: Any) -> None:
        assert callback is not None
        try:
            callback(given)
        except BaseException:  # not even SystemExit may end this thread
            log.exception("a callback raised an exception; its result is unaffected")

    return None if callback is None else guarded


def open_backend(compute: str, processes: int | None, settings: Mapping[str, Any]) -> Any:
    """Open the pool of an option of conf/compute, with the checks of a run."""
    from ...config.compose import compose_sections  # Hydra takes a while to import

    section = {**compose_sections(["compute"], [f"compute={compute}"])["compute"], **settings}
    if processes is not None and "workers" in section:
        section["workers"] = processes
    return build("compute", section).open(("paddock",))
