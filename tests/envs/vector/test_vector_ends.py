"""What is left of a vector environment that is closed, forgotten, interrupted or killed: nothing."""

import contextlib
import gc
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import psutil
import pytest
from conftest import ROOT, alive, env_spec, wait_until
from vector_cases import TASKS, N, multiprocess, workers_of

from paddock.envs.errors import ConfigError
from paddock.envs.spec import EnvSpec
from paddock.envs.vector.multiprocess import process as process_module
from paddock.envs.vector.multiprocess import shared
from paddock.envs.vector.multiprocess import vector as multiprocess_module


def test_semaphores_wait_by_a_clock_that_nobody_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    semaphore = shared.Semaphore(np.zeros(shared.CACHE_LINE, np.uint8))
    semaphore.initialize()

    def jumped() -> float:
        raise AssertionError("the time of day was asked for")

    monkeypatch.setattr(shared.time, "time", jumped)
    assert not semaphore.wait(0.001)
    semaphore.post()
    assert semaphore.wait(0.001)


def test_closing_leaves_nothing_and_is_quick() -> None:
    gc.collect()  # of other tests
    before = set(os.listdir("/proc/self/fd"))
    vec = multiprocess().make(TASKS["box"])
    vec.reset(seed=0)
    vec.send(np.zeros(N, int))  # and never received
    processes = workers_of(vec)
    started = time.monotonic()
    vec.close()
    vec.close()
    assert time.monotonic() - started < 2
    assert not any(process.is_running() for process in processes)
    gc.disable()
    try:
        del vec
        assert not set(os.listdir("/proc/self/fd")) - before
    finally:
        gc.enable()


def diary(tmp_path: Path) -> EnvSpec:
    return env_spec("toy_envs:Diary", kwargs={"path": str(tmp_path / "diary")})


def test_environments_have_time_to_write_as_they_are_closed(tmp_path: Path) -> None:
    vec = multiprocess(num_envs=1, workers=1).make(diary(tmp_path))
    closed = (tmp_path / "diary").read_text()  # that was made to be looked at
    vec.set_attr("nap_s", 0.6 * process_module.CLOSE_S)
    vec.reset(seed=0)
    vec.send(np.ones(1, int))  # whose info finds nobody any more
    wait_until(lambda: vec._coordinator._buffers.at_work[0] == 0)
    vec.close()
    assert (tmp_path / "diary").read_text() == closed + "closed\n"


def test_a_worker_that_does_not_end_in_time_is_killed_with_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process_module, "CLOSE_S", 0.3)
    vec = multiprocess(num_envs=2, workers=2, timeout_s=0.6).make(diary(tmp_path))
    processes = workers_of(vec)
    vec.set_attr("nap_s", 1000)
    vec.reset(seed=0)
    vec.send(np.array([1, 0]))  # one hangs in its step, and the other one as it is closed
    wait_until(lambda: vec._coordinator._buffers.at_work[0] == 0)
    vec.close()
    said = [record.getMessage().partition(" after")[0] for record in caplog.records]
    what = "(toy_envs:Diary): the worker process had not ended"
    assert said == [f"environment 0 {what} 0.3 s", f"environments 1 {what} 0.6 s"]
    assert not any(process.is_running() for process in processes)


def test_ctrl_c_ends_the_wait_for_workers_that_close_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> NoReturn:
        raise KeyboardInterrupt

    gc.collect()
    before = set(os.listdir("/proc/self/fd"))
    vec = multiprocess(num_envs=2, workers=2).make(diary(tmp_path))
    processes = workers_of(vec)
    vec.set_attr("nap_s", 1000)
    monkeypatch.setattr(process_module.WorkerProcess, "end", interrupt)
    with pytest.raises(KeyboardInterrupt):
        vec.close()
    assert not any(process.is_running() for process in processes)
    del vec
    gc.collect()
    assert not set(os.listdir("/proc/self/fd")) - before


def test_a_vector_that_is_let_go_waits_for_no_worker_that_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process_module, "CLOSE_S", 0.3)
    vec = multiprocess(num_envs=1, workers=1, timeout_s=60.0).make(diary(tmp_path))
    (process,) = workers_of(vec)
    vec.set_attr("nap_s", 1000)
    started = time.monotonic()
    del vec
    gc.collect()
    assert time.monotonic() - started < 10 and not process.is_running()
    assert "had not ended 0.3 s after the close" in caplog.text


@pytest.mark.parametrize("step", ["lay_out", "initialize", "Table"])
def test_a_vector_that_cannot_begin_leaves_no_file_open(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: Any) -> None:
        raise ConfigError("no semaphores here")

    places: dict[str, Any] = {
        "lay_out": shared.SharedBuffers,
        "initialize": shared.Semaphore,
        "Table": multiprocess_module,
    }
    real = shared.SharedBuffers.lay_out
    gc.collect()
    before = set(os.listdir("/proc/self/fd"))
    # Laid out once to be measured, and then in memory.
    calls: Iterator[Any] = iter([real, fail])
    later = staticmethod(lambda *given: next(calls)(*given))
    monkeypatch.setattr(places[step], step, later if step == "lay_out" else fail)
    with pytest.raises(ConfigError, match="no semaphores here"):
        multiprocess().make(TASKS["box"])
    gc.collect()
    assert not set(os.listdir("/proc/self/fd")) - before


SCRIPT = """
import sys, numpy as np
sys.path[:0] = {path!r}
from paddock.envs.spec import EnvSpec
from paddock.envs.vector import Multiprocess
recipe = Multiprocess(num_envs=4, workers=2, batch_size=None, restart=False, timeout_s=60)
kwargs = {{"fault": {fault!r}, "at": 2, "on": None}}
env = EnvSpec(id="toy_envs:Faulty-v0", kwargs=kwargs, wrappers=(), max_episode_steps=None, fresh=False)
vec = recipe.make(env)
vec.reset(seed=0)
vec.step(np.zeros(4, int))
print(*(process.child.popen.pid for process in vec._coordinator._processes), flush=True)
{then}
"""


def run_script(then: str, fault: str = "") -> tuple[subprocess.Popen, list[psutil.Process]]:
    script = SCRIPT.format(path=[str(ROOT), str(ROOT / "tests")], fault=fault, then=then)
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    return process, [psutil.Process(int(pid)) for pid in process.stdout.readline().split()]


@pytest.mark.parametrize(
    ("then", "fault"),
    [
        ("__import__('signal').pause()", ""),
        ("vec.step(np.zeros(4, int))", "hang"),
        ("while True: vec.step(np.zeros(4, int))", ""),
    ],
    ids=["idle", "hanging", "stepping"],
)
def test_no_worker_outlives_a_killed_parent(then: str, fault: str) -> None:
    process, workers = run_script(then, fault)
    assert len(workers) == 2
    assert not any(region.path.startswith("/dev/shm/") for one in workers for region in one.memory_maps())
    process.kill()
    process.communicate()
    wait_until(lambda: not any(map(alive, workers)), timeout_s=10)


def test_a_forgotten_close_holds_nothing_up() -> None:
    process, workers = run_script("sys.stdin.readline(); vec.send(np.zeros(4, int))")  # it ends when all are known
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 0 and errors == ""
    wait_until(lambda: not any(map(alive, workers)), timeout_s=10)


def test_interrupting_the_group_is_the_parents_business() -> None:
    process, workers = run_script("[vec.step(np.zeros(4, int)) for _ in range(10**9)]")
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert errors.count("Traceback") == 1 and errors.rstrip().endswith("KeyboardInterrupt")
    wait_until(lambda: not any(map(alive, workers)), timeout_s=10)


def test_workers_leave_signals_to_their_parent_and_hide_none_from_what_environments_start() -> None:
    before = set(psutil.Process().children(recursive=True))
    with contextlib.closing(multiprocess(num_envs=4, workers=2).make(TASKS["box"])) as vec:
        vec.reset(seed=0)
        workers = set(psutil.Process().children(recursive=True)) - before
        assert len(workers) == 2
        for number in (signal.SIGINT, signal.SIGTERM):
            for worker in workers:
                worker.send_signal(number)
            vec.step(vec.action_space.sample())
        assert all(map(alive, workers))
        for worker in workers:
            ignored = re.search(r"SigIgn:\t(\w+)", Path(f"/proc/{worker.pid}/status").read_text())
            assert ignored is not None and not int(ignored[1], 16) >> (signal.SIGTERM - 1) & 1


def make_one() -> None:
    vec = multiprocess(num_envs=2, workers=1).make(TASKS["box"])
    vec.reset(seed=0)
    vec.close()


def test_a_daemonic_process_may_have_workers() -> None:
    process = multiprocessing.get_context("spawn").Process(target=make_one, daemon=True)
    process.start()
    process.join(60)
    assert process.exitcode == 0
