"""What is left of a vector environment that is closed, forgotten, interrupted or killed: nothing."""

import contextlib
import gc
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import psutil
import pytest
from conftest import ROOT, alive, env_spec, wait_until
from vector_cases import TASKS, N, multiprocess, workers_of

from paddock.envs.spec import EnvSpec


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
    vec.set_attr("nap_s", 0.5)
    vec.reset(seed=0)
    vec.send(np.ones(1, int))  # whose info finds nobody any more
    wait_until(lambda: vec._coordinator._buffers.active_env[0] == 0)
    vec.close()
    assert (tmp_path / "diary").read_text() == closed + "closed\n"


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
        ("while True: vec.step(np.zeros(4, int))", ""),
    ],
    ids=["idle", "stepping"],
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


def test_workers_leave_signals_to_their_parent() -> None:
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


def test_ctrl_c_in_a_call_closes_the_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> NoReturn:
        raise KeyboardInterrupt

    vec = multiprocess(num_envs=2, workers=2).make(TASKS["box"])
    processes = workers_of(vec)
    vec.reset(seed=0)
    vec.send(np.zeros(2, int))
    monkeypatch.setattr(vec._coordinator, "wait_for", interrupt)
    with pytest.raises(KeyboardInterrupt):
        vec.recv()
    assert vec.closed and not any(process.is_running() for process in processes)
