"""`multiprocessing.Pool` on any pool of conf/compute: code for the standard class runs there by swapping the object.

    from paddock.compute import Pool

    with Pool(8) as pool:                                      # processes here
    with Pool(compute="dask", address="tcp://...") as pool:    # a cluster

Everything but the transport is the standard library's. Where its pool would hang, this one ends: a task whose worker
died runs again, and raises WorkerLost once that has happened too often; an initializer that raises is the error of the
tasks it was to precede; results of a terminated pool raise PoolError.
"""

import atexit
import contextlib
import functools
import logging
import multiprocessing.pool
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from paddock.algos.pool.calls import Initializer, call, call_shared
from paddock.algos.pool.late import LatePool
from paddock.algos.pool.main_guard import Unguarded, check_guarded
from paddock.algos.pool.protocol import ONE_CPU, Needs, PoolError, check_options
from paddock.algos.pool.protocol import Pool as SeamPool
from paddock.envs.errors import ConfigError, require

from ...config.build import build
from .transport import Transport

log = logging.getLogger(__name__)

CHUNKS = 32  # a map makes at most about so many for each worker, for even shares; small maps have one for each item

Callback = Callable[[Any], object]


class Pool(multiprocessing.pool.Pool):
    """The standard library's class over our workers; see there for what is not documented here."""

    # Of the base class, which does not declare them.
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
            processes: workers, where this pool starts them; None: as in the YAML. Ignored by `compute="serial"`.
            initializer: runs in each worker process as it starts; an exception is that of the first task there, and
                the next task tries again.
            initargs: its arguments.
            maxtasksperchild: a worker process that ran so many chunks is replaced; a call is a chunk of its own.
            context: ignored: workers always start afresh, as with "spawn".
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
        self._state = "INIT"
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
        if not own and settings:
            raise ConfigError(f"compute is an open pool, which takes no {min(settings)}=; open it with that")
        check_guarded()
        try:
            self._workers: Any = _open(compute, processes, settings) if isinstance(compute, str) else compute
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
            if setup is not None:  # as workers start; one that had another task first runs it before that
                started = self._workers.open_batch(run, lambda ends: None, needs=needs)
                for _ in range(self._workers.size):
                    started.put((_do_nothing, (), {}))
            super().__init__(max(self._workers.size, 1))
            self._transport.results = self._cache
            undo.pop_all()
        atexit.register(self._terminate)  # before Dask's own function, which was registered earlier, ends its loop

    def _share(self, setup: Initializer) -> Any:
        try:
            return self._workers.broadcast(setup)
        except RuntimeError as error:  # a lock of multiprocessing
            remedy = "workers share those of a manager: multiprocessing.Manager().Lock()"
            raise RuntimeError(f"initargs cannot be sent to workers: {error}; {remedy}") from error

    def _setup_queues(self) -> None:
        self._inqueue = self._outqueue = self._transport
        self._quick_put, self._quick_get = self._transport.submit, self._transport.get

    def _get_sentinels(self) -> list[Any]:
        return [self._change_notifier._reader]

    @staticmethod
    def Process(*_: Any, **__: Any) -> "_Worker":  # type: ignore[override]  # noqa: N802  called by the base class
        return _Worker()

    def join(self) -> None:
        """Wait until all calls have ended and the workers are gone, after `close` or `terminate`."""
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
        """Start a call; one of the callbacks is called with its value or its exception, in a thread of the pool."""
        return super().apply_async(func, args, dict(kwds or {}), _guarded(callback), _guarded(error_callback))

    def imap(self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int = 1) -> Iterator[Any]:  # type: ignore[override]
        """Return the values of func as they come, in the order of the items, taken a few ahead of the workers."""
        return super().imap(self._sent_once(func), iterable, chunksize)

    def imap_unordered(self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int = 1) -> Iterator[Any]:  # type: ignore[override]
        """Like `imap`, in the order in which they come."""
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
        """Start a map or starmap, for the standard library's four."""
        self._check_running()
        items = list(iterable)
        if chunksize is None:
            # A whole chunk is retried or timed out.
            chunksize = 1 if self._single else len(items) // (max(self._workers.size, 1) * CHUNKS) + 1
        start: Any = super()._map_async  # type: ignore[misc]
        callbacks = _guarded(callback), _guarded(error_callback)
        return start(self._sent_once(func), items, mapper, chunksize, *callbacks)

    def _sent_once(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that travels to each worker once, however many chunks call it."""
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
        error = PoolError("the pool was terminated before this task ended; close() and join() wait for all")
        for result in list(handlers[-1].values()):
            _abandon(result, error)
        inqueue.release()


class _Worker:
    """Stands for a worker where the standard library counts its processes."""

    name, exitcode = "", None

    def start(self) -> None: ...

    def join(self) -> None: ...


def _do_nothing() -> None:
    """Return at once: what is called for the sake of the initializer before it."""


def _abandon(result: Any, error: PoolError) -> None:
    """End a result that nothing will come of; callbacks are not called."""
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
    """Return a callback that does not end the thread that calls it when it raises."""

    def guarded(given: Any) -> None:
        assert callback is not None
        try:
            callback(given)
        except BaseException:  # not even SystemExit may end the thread that others wait for
            log.exception("a callback raised; its result is there all the same")

    return None if callback is None else guarded


def _open(compute: str, processes: int | None, settings: Mapping[str, Any]) -> Any:
    """Open the pool of an option of conf/compute, checked as a run's is."""
    from ...config.compose import compose_sections  # Hydra takes a while to import

    section = {**compose_sections(["compute"], [f"compute={compute}"])["compute"], **settings}
    if processes is not None and "workers" in section:
        section["workers"] = processes
    return build("compute", section).open(("paddock",))
