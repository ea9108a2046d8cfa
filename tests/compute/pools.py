"""Pools for several test files: of two workers, of three, and `multiprocessing.Pool` on these."""

from collections.abc import Iterator
from typing import Any

import pytest

from paddock.compute import Pool
from paddock.compute.dask.autoscale import Bounds
from paddock.compute.dask.cluster import local
from paddock.compute.dask.pool import DaskPool
from paddock.config.build import build
from paddock.config.compose import compose_sections


@pytest.fixture(name="two", scope="session")
def two_fixture() -> Iterator[DaskPool]:
    pool = local(Bounds(2, 2), retries=3, task_timeout_s=None)
    yield pool
    pool.close()


@pytest.fixture(name="workers", scope="module")
def workers_fixture() -> Iterator[Any]:
    """Three processes that most tests share."""
    section = compose_sections(["compute"], ["compute=local", "compute.workers=3"])["compute"]
    opened = build("compute", section).open(("paddock",))
    yield opened
    opened.close()


@pytest.fixture(name="pool", params=["serial", "local"])
def pool_fixture(request: pytest.FixtureRequest, workers: Any) -> Iterator[Pool]:
    with Pool(compute="serial" if request.param == "serial" else workers) as opened:
        yield opened


@pytest.fixture(name="local")
def local_fixture(workers: Any) -> Iterator[Pool]:
    with Pool(compute=workers) as opened:
        yield opened


def values(ends: Any) -> list[Any]:
    return [done.value for done in sorted(ends, key=lambda done: done.index)]


def worker_pids(pool: DaskPool) -> list[int]:
    return [worker.answer["pid"] for worker in list(pool._dispatcher.workers.values())]
