"""Processes, queues, pipes and managers on this machine and on two workers of a Dask cluster that a user started."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import unittest
from collections.abc import Iterator
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import process_tasks as tasks
import psutil
import pytest
from conftest import ROOT, launch, launch_scheduler, stop, wait_until

from paddock.compute import BaseManager, cluster
from paddock.envs.errors import ConfigError

PATHS = os.pathsep.join([str(ROOT), str(ROOT / "tests/compute")])
LOST_S = 10.0  # limit for noticing the end of another process


@pytest.fixture(scope="module")
def user_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a scheduler with two workers, started as a user does."""
    folder = tmp_path_factory.mktemp("cluster")
    scheduler, address = launch_scheduler(folder)
    joining = ["worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
    started = [scheduler, *(launch(*joining, cwd=folder, PYTHONPATH=PATHS) for _ in range(2))]
    yield address
    for one in reversed(started):
        stop(one)


@pytest.fixture(scope="module", params=["local", "dask"])
def mp(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The interface on a backend."""
    settings = {} if request.param == "local" else {"address": request.getfixturevalue("user_cluster")}
    with cluster(compute=request.param, **settings) as opened:
        if request.param == "dask":
            wait_until(lambda: opened.cpu_count() == 2, 60)
        yield opened


def ended(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def call_in_thread(function: Any) -> tuple[threading.Thread, list[Any]]:
    """Call a function in a thread; its value or its error appears in the list."""
    outcomes: list[Any] = []

    def call() -> None:
        try:
            outcomes.append(function())
        except Exception as error:
            outcomes.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    return thread, outcomes


def test_a_killed_process_wakes_who_waits_and_has_an_exitcode(mp: Any) -> None:
    ready = mp.Event()
    process = mp.Process(target=tasks.hold, args=(ready,), daemon=True)
    process.start()
    assert ready.wait(60) and process in mp.active_children()
    thread, _ = call_in_thread(process.join)
    os.kill(process.pid, signal.SIGKILL)
    thread.join(LOST_S)
    assert not thread.is_alive() and process.exitcode == -signal.SIGKILL
    assert wait([process.sentinel], 0) == [process.sentinel] and process not in mp.active_children()


def test_users_of_a_killed_owners_queue_get_a_connection_error(mp: Any) -> None:
    mine, theirs = mp.Pipe()
    owner = mp.Process(target=tasks.own_queue, args=(theirs,), daemon=True)
    owner.start()
    pid, items = mine.recv()
    items.put(1)
    assert items.get() == 1
    thread, outcomes = call_in_thread(items.get)
    os.kill(pid, signal.SIGKILL)
    thread.join(LOST_S)
    assert isinstance(outcomes[0], ConnectionError)
    with pytest.raises(ConnectionError):
        items.put(2)
    owner.join()


def test_users_of_a_killed_manager_get_a_connection_error(mp: Any) -> None:
    manager = mp.Manager()
    event = manager.Event()
    thread, outcomes = call_in_thread(event.wait)
    wait_until(thread.is_alive)
    os.kill(manager._process.pid, signal.SIGKILL)
    thread.join(LOST_S)
    assert isinstance(outcomes[0], ConnectionError)
    with pytest.raises(ConnectionError):
        manager.list()


def test_a_killed_waiter_takes_neither_an_item_nor_a_lock(mp: Any) -> None:
    items, ready, lock = mp.Queue(), mp.Queue(), mp.Lock()
    lock.acquire()
    waiters = [
        mp.Process(target=tasks.get_forever, args=(items, ready), daemon=True),
        mp.Process(target=tasks.acquire, args=(lock, ready), daemon=True),
    ]
    for waiter in waiters:
        waiter.start()
    for _ in waiters:
        ready.get(timeout=60)
    for waiter in waiters:
        waiter.kill()
        waiter.join()
    items.put("item")
    lock.release()
    assert items.get(timeout=LOST_S) == "item"
    assert lock.acquire(timeout=LOST_S)


def test_children_end_with_the_process_that_started_them(mp: Any) -> None:
    pids = mp.Queue()
    process = mp.Process(target=tasks.start_two, args=(pids,))
    process.start()
    started = [pids.get(timeout=60) for _ in range(4)]
    process.kill()
    process.join()
    wait_until(lambda: all(ended(pid) for pid in started), LOST_S)


@pytest.mark.parametrize("backend", ["local", "dask"])
def test_processes_end_with_a_killed_program(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    settings = {} if backend == "local" else {"address": request.getfixturevalue("user_cluster")}
    program = f"""
import time
import process_tasks as tasks
from paddock.compute import cluster
with cluster(compute={backend!r}, **{settings}) as mp:
    pids = mp.Queue()
    process = mp.Process(target=tasks.start_one, args=(pids,))
    process.start()
    manager = mp.Manager()
    print(pids.get(), pids.get(), manager._process.pid, flush=True)
    time.sleep(600)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": PATHS}
    ) as driver:
        assert driver.stdout is not None
        try:
            pids = [int(pid) for pid in driver.stdout.readline().split()]
        finally:
            driver.kill()
    assert len(pids) == 3
    wait_until(lambda: all(ended(pid) for pid in pids), LOST_S)


def test_a_process_uses_a_queue_of_a_program_that_is_exiting() -> None:
    program = """
import process_tasks as tasks
import paddock.compute as mp
pids = mp.Queue()
mp.Process(target=tasks.put_pid, args=(pids,)).start()
"""
    environment = os.environ | {"PYTHONPATH": PATHS}
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=60)
    assert (run.returncode, run.stderr) == (0, "")


def test_a_process_ends_with_its_worker(tmp_path: Path) -> None:
    with cluster(compute="dask", workers=1) as mp:
        ready = mp.Queue()
        process = mp.Process(target=tasks.get_forever, args=(mp.Queue(), ready))
        process.start()
        pid = ready.get(timeout=60)
        os.kill(psutil.Process(pid).ppid(), signal.SIGKILL)
        process.join(LOST_S)
        assert process.exitcode == -signal.SIGKILL
        wait_until(lambda: ended(pid), LOST_S)
        assert ready.empty()  # the process is not repeated


def test_a_vector_of_processes_and_pipes_steps_environments(mp: Any) -> None:
    envs = tasks.SubprocessVector([lambda: gymnasium.make("CartPole-v1") for _ in range(3)])
    reference = [gymnasium.make("CartPole-v1") for _ in range(3)]
    expected = np.stack([env.reset(seed=seed)[0] for seed, env in enumerate(reference)])
    np.testing.assert_array_equal(envs.reset(), expected)
    for step in range(5):
        actions = [(step + env) % 2 for env in range(3)]
        obs, reward, done = envs.step(actions)
        expected = np.stack([env.step(action)[0] for env, action in zip(reference, actions, strict=True)])
        np.testing.assert_array_equal(obs, expected)
        assert reward.tolist() == [1.0] * 3 and not done.any()
    if mp.cpu_count() == 2 and multiprocessing.current_process().pid not in (hosts := set(envs.ask("pid", [0] * 3))):
        assert len(hosts) == 2  # both workers have some
    envs.close()
    assert [process.exitcode for process in envs.processes] == [0] * 3


def test_a_parameter_server_learns_through_queues(mp: Any) -> None:
    np.testing.assert_allclose(tasks.serve_parameters(workers=2, steps=20), 3.0, atol=1e-4)


def test_a_manager_runs_environments_elsewhere(mp: Any) -> None:
    class EnvManager(BaseManager):
        pass

    EnvManager.register("CartPole", lambda: gymnasium.make("CartPole-v1"), exposed=("reset", "step"))
    with EnvManager() as manager:
        remote, here = manager.CartPole(), gymnasium.make("CartPole-v1")  # type: ignore[attr-defined]
        np.testing.assert_array_equal(remote.reset(seed=1)[0], here.reset(seed=1)[0])
        for action in (0, 1, 1):
            np.testing.assert_array_equal(remote.step(action)[0], here.step(action)[0])


def test_an_evolution_strategy_improves_through_the_pool(mp: Any) -> None:
    rng, mean = np.random.default_rng(0), np.zeros(4)
    with mp.Pool(2) as pool:
        first = pool.apply(tasks.play_cartpole, (mean,))
        for _ in range(4):
            noise = rng.standard_normal((8, 4))
            returns = np.array(pool.map(tasks.play_cartpole, mean + noise))
            mean = mean + (returns - returns.mean()) @ noise / (8 * returns.std() + 1e-8)
        assert pool.apply(tasks.play_cartpole, (mean,)) > first


def test_pool_tasks_use_the_clusters_queues_and_managers(mp: Any) -> None:
    items, manager = mp.Queue(), mp.Manager()
    shared = manager.Queue()
    with mp.Pool(2) as pool:
        assert pool.map(tasks.with_item, [(items, 1), (shared, 2)]) == [1, 2]
    assert (items.get(timeout=5), shared.get(timeout=5)) == (1, 2)
    manager.shutdown()


def test_shared_memory_of_one_machine_is_refused_elsewhere(user_cluster: str) -> None:
    value = multiprocessing.get_context("spawn").Value("i", 0)
    with cluster(compute="dask", address=user_cluster) as mp, pytest.raises((ValueError, RuntimeError)):
        mp.Process(target=print, args=(value,)).start()


def test_processes_need_a_backend_that_starts_some() -> None:
    with pytest.raises(ConfigError, match="local, dask or slurm"):
        cluster(compute="serial")


FAST_CASES = [
    "TestProcessProcesses.test_process",
    "TestProcessProcesses.test_kill",
    "TestProcessProcesses.test_close",
    "TestProcessProcesses.test_sentinel",
    "TestSubclassingProcessProcesses.test_subclassing",
    "TestQueueProcesses.test_put",
    "TestQueueProcesses.test_get",
    "TestQueueProcesses.test_closed_queue_put_get_exceptions",
    "TestConnectionProcesses.test_connection",
    "TestConnectionProcesses.test_spawn_close",
    "TestMyManagerManager.test_mymanager_context",
    "TestLockProcesses.test_lock",
    "TestLockProcesses.test_rlock",
    "TestSemaphoreProcesses.test_semaphore",
    "TestSemaphoreProcesses.test_timeout",
    "TestConditionProcesses.test_wait_result",
    "TestEventProcesses.test_event",
    "TestBarrierProcesses.test_wait_return",
    "TestValueProcesses.test_value",
]


@pytest.mark.parametrize("case", FAST_CASES)
def test_cpythons_own_case_passes(mp: Any, case: str) -> None:
    """All of them are counted by scripts/stdlib_cases.py."""
    stdlib_cases = pytest.importorskip("stdlib_cases", reason="this Python comes without its tests")
    name, _, method = case.partition(".")
    result = unittest.TestResult()
    with stdlib_cases.ours():
        unittest.TestSuite([getattr(stdlib_cases, name)(method)]).run(result)
    assert not result.skipped and result.wasSuccessful(), result
