"""CPython's own cases for `multiprocessing.Pool`, run on ours as they are installed beside this interpreter."""

import multiprocessing
import threading
import unittest
from typing import Any
from unittest import mock

import pytest

from paddock.compute import Pool
from paddock.compute.dask.autoscale import Bounds
from paddock.compute.dask.cluster import local

cases = pytest.importorskip("test._test_multiprocessing", reason="this Python comes without its tests")
shared: list[Any] = []  # workers of all pools here, which is much faster than to start some for each


def setUpModule() -> None:
    shared.append(local(Bounds(2, 2), retries=3, task_timeout_s=None))


def tearDownModule() -> None:
    shared.pop().close()


def open_pool(*arguments: Any, **settings: Any) -> Pool:
    return Pool(*arguments, compute=shared[0], **settings)


class TestPool(cases._TestPool, unittest.TestCase):  # type: ignore[name-defined]
    TYPE = "processes"
    Pool = staticmethod(open_pool)

    @unittest.skip("counts the private list _pool; see test_processes_is_the_number_of_workers")
    def test_make_pool(self) -> None: ...


class OfModule:
    """For cases that open `multiprocessing.Pool` by that name."""

    def setUp(self) -> None:
        patch = mock.patch.object(multiprocessing, "Pool", open_pool)
        patch.start()
        self.addCleanup(patch.stop)  # type: ignore[attr-defined]


class TestPoolWorkerErrors(OfModule, cases._TestPoolWorkerErrors, unittest.TestCase):  # type: ignore[name-defined]
    def test_unpickleable_result(self) -> None:
        # The case returns a lambda, which travels here.
        with mock.patch.object(cases, "unpickleable_result", threading.Lock):
            super().test_unpickleable_result()


class TestPoolWorkerLifetime(OfModule, cases._TestPoolWorkerLifetime, unittest.TestCase):  # type: ignore[name-defined]
    @unittest.skip("reads the private _pool and calls _repopulate_pool; see test_a_replaced_process_is_initialized_too")
    def test_pool_worker_lifetime(self) -> None: ...

    @unittest.skip("a script of its own imports the standard class; see test_a_program_ends_though_its_pool_is_open")
    def test_worker_finalization_via_atexit_handler_of_multiprocessing(self) -> None: ...
