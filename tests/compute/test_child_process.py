"""A command as a task: it ends with the process that started it, and not before."""

import itertools
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from conftest import ROOT, wait_until

from paddock.algos.pool import process
from paddock.algos.pool.process import PythonCommand, run_to_end, start_command
from paddock.envs.parent import leave_to_parent
from paddock.envs.process import GROUP_SIGNALS, ChildProcess


def sleeper(folder: Path) -> PythonCommand:
    """A command that says that it is there, and stays."""
    code = f"import pathlib, time; pathlib.Path({str(folder / 'there')!r}).touch(); time.sleep(600)"
    return PythonCommand(["-c", code], folder, {}, folder / "log" / "out", folder / "stop")


def test_a_command_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    started: list[subprocess.Popen[bytes]] = []
    thread = threading.Thread(target=lambda: started.append(start_command(sleeper(tmp_path))))
    thread.start()
    thread.join()
    (process,) = started
    try:
        wait_until(lambda: (tmp_path / "there").exists() or process.poll() is not None, 60)
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


@pytest.mark.real_start
def test_a_command_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    code = f"""
import sys; sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "tests")!r}, {str(ROOT / "tests/compute")!r}]
from pathlib import Path
from test_child_process import run_to_end, sleeper
run_to_end(sleeper(Path({str(tmp_path)!r})))
"""
    parent = subprocess.Popen([sys.executable, "-c", code])
    try:
        wait_until((tmp_path / "there").exists, 60)
        (child,) = psutil.Process(parent.pid).children()
    finally:
        parent.kill()
        parent.wait()
    child.wait(30)


def echo(connection: Connection) -> None:
    """What a process of the test serves."""
    connection.send(connection.recv())


def fork(connection: Connection) -> None:
    """Say of a fork by which signal it ended."""
    leave_to_parent(signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, b"1")
        time.sleep(600)
    os.read(read, 1)
    os.kill(pid, signal.SIGTERM)
    connection.send(os.WTERMSIG(os.waitpid(pid, 0)[1]))


def test_a_signal_that_is_left_to_the_parent_ends_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tests/compute")
    child = ChildProcess("test_child_process:fork", pickle.dumps(None))
    try:
        assert child.connection.poll(60) and child.connection.recv() == signal.SIGTERM
    finally:
        child.kill()


@pytest.mark.real_start
def test_a_signal_to_all_processes_ends_none_that_is_just_being_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tests/compute")
    child = ChildProcess("test_child_process:echo", pickle.dumps("there"))
    try:
        for number in GROUP_SIGNALS:
            child.popen.send_signal(number)
        assert child.connection.recv() == "there"
    finally:
        child.kill(60)


def test_a_command_is_asked_to_end_by_a_file_and_tells_its_exit_code(tmp_path: Path) -> None:
    codes: list[int] = []
    child = sleeper(tmp_path)
    thread = threading.Thread(target=lambda: codes.append(run_to_end(child)))
    thread.start()
    wait_until((tmp_path / "there").exists, 60)
    child.stop.touch()
    thread.join(60)
    assert codes == [-signal.SIGTERM]
    assert (
        run_to_end(PythonCommand(["-c", "print('said'); raise SystemExit(3)"], tmp_path, {}, child.log, child.stop))
        == 3
    )
    assert child.log.read_text() == "said\n" and not child.stop.exists()


def test_a_run_that_its_last_worker_is_still_at_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For days if need be: that one had fallen silent alone, and goes on to the run's end."""
    days = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: next(days) * 86400.0, sleep=time.sleep)
    monkeypatch.setattr(process, "time", clock)
    code = f"""
import pathlib, sys; sys.path.insert(0, {str(ROOT)!r})
from paddock.runs.folder import FolderInUse
tries = pathlib.Path("tries")
tries.write_text(tries.read_text() + "." if tries.exists() else ".")
sys.exit(FolderInUse.exit_code if len(tries.read_text()) < 3 else 0)
"""
    assert run_to_end(PythonCommand(["-c", code], tmp_path, {}, tmp_path / "log", tmp_path / "stop")) == 0
    assert (tmp_path / "tries").read_text() == "..."


def test_a_child_that_is_asked_to_end_before_its_turn_does_not_begin(tmp_path: Path) -> None:
    child = PythonCommand(["-c", "open('ran', 'w')"], tmp_path, {}, tmp_path / "log", tmp_path / "stop")
    child.stop.touch()
    assert run_to_end(child) == 143
    assert not list(tmp_path.iterdir())
