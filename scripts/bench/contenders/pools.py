"""Pools that run sleeping tasks, with each of their dispatch methods; for scripts/bench/runs/pool.py."""

import concurrent.futures
import functools
import logging
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from paddock.compute.dask.autoscale import Bounds
from paddock.compute.dask.cluster import local

WORKERS = 5

Run = Callable[[float, int], None]  # arguments: duration and number of tasks
Ways = Mapping[str, Run]  # dispatch methods of a contender


@contextmanager
def paddock() -> Iterator[Ways]:
    """Open Paddock's local pool."""
    pool = local(Bounds(WORKERS, WORKERS), retries=3, task_timeout_s=None)

    def run(duration: float, count: int) -> None:
        assert sum(done.error is None for done in pool.imap_unordered(time.sleep, [duration] * count)) == count

    yield {"imap_unordered": run}
    pool.close()


@contextmanager
def standard_pool() -> Iterator[Ways]:
    """Open a `multiprocessing.Pool`."""
    with multiprocessing.get_context("spawn").Pool(WORKERS) as pool:
        yield {f"map, {1 / part:g} chunks": functools.partial(_map, pool.map, part) for part in PARTS}


@contextmanager
def executor() -> Iterator[Ways]:
    """Open a `ProcessPoolExecutor`."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(WORKERS, mp_context=context) as pool:

        def run(part: float, duration: float, count: int) -> None:
            list(pool.map(time.sleep, [duration] * count, chunksize=max(1, round(count * part))))

        yield {f"map, {1 / part:g} chunks": functools.partial(run, part) for part in PARTS}


@contextmanager
def joblib_() -> Iterator[Ways]:
    """Open joblib's workers."""
    from joblib import Parallel, delayed

    with Parallel(n_jobs=WORKERS) as parallel:

        def run(part: float | None, duration: float, count: int) -> None:
            parallel.batch_size = "auto" if part is None else max(1, round(count * part))
            parallel(delayed(time.sleep)(duration) for _ in range(count))

        yield {"auto": functools.partial(run, None)} | {
            f"{1 / part:g} batches": functools.partial(run, part) for part in PARTS
        }


@contextmanager
def ipyparallel_() -> Iterator[Ways]:
    """Open an ipyparallel cluster."""
    import ipyparallel

    with tempfile.TemporaryDirectory() as folder:
        cluster = ipyparallel.Cluster(n=WORKERS, ipython_dir=folder, log_level=50)
        client = cluster.start_and_connect_sync(activate=False)
        direct, balanced = client[:], client.load_balanced_view()

        def run(view: Any, part: float | None, duration: float, count: int) -> None:
            chunk = {} if part is None else {"chunksize": max(1, round(count * part))}
            view.map_sync(time.sleep, [duration] * count, **chunk)

        yield {"direct view": functools.partial(run, direct, None)} | {
            f"balanced view, {1 / part:g} chunks": functools.partial(run, balanced, part) for part in PARTS
        }
        with suppress(Exception):  # errors while closing are irrelevant
            client.close()
            cluster.stop_cluster_sync()


@contextmanager
def ray_() -> Iterator[Ways]:
    """Open Ray's workers."""
    import ray

    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)

    @ray.remote
    def nap(durations: Sequence[float]) -> None:
        for duration in durations:
            time.sleep(duration)

    def run(part: float | None, duration: float, count: int) -> None:
        chunk = 1 if part is None else max(1, round(count * part))
        sizes = [min(chunk, count - start) for start in range(0, count, chunk)]
        ray.get([nap.remote([duration] * size) for size in sizes])

    yield {"a task each": functools.partial(run, None)} | {
        f"{1 / part:g} chunks": functools.partial(run, part) for part in PARTS
    }
    ray.shutdown()


def _map(map_: Callable[..., Any], part: float, duration: float, count: int) -> None:
    map_(time.sleep, [duration] * count, max(1, round(count * part)))


PARTS = (1 / WORKERS, 1 / (4 * WORKERS), 1 / (8 * WORKERS), 1e-9)  # shares of all tasks in a chunk; last: one task
CONTENDERS: dict[str, Callable[[], Any]] = {
    "paddock": paddock,
    "multiprocessing.Pool": standard_pool,
    "ProcessPoolExecutor": executor,
    "joblib": joblib_,
    "ipyparallel": ipyparallel_,
    "ray": ray_,
}
