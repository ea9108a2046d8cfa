"""A tracking service that is silent, broken or away, and a full disk, cost a run nothing but the mirror."""

import contextlib
import io
import queue
import socket
import subprocess
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forkserver
import psutil
import pytest
from conftest import TINY, call_main, wait_until
from mirrored import history, row, rows_of, tensorboard, wandb, wandb_home_fixture  # noqa: F401

from paddock.tracking.child import wait_for_lock
from paddock.tracking.console import Console
from paddock.tracking.tracker import Tracker

RUN = [*TINY, "compute=serial", "seed=3", "budget.iterations=3"]


class Server:
    """A port on loopback that accepts connections and never answers.

    Attributes:
        met: set once somebody has connected and sent something.
    """

    def __init__(self) -> None:
        self.met = threading.Event()
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._socket.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                self._open.append(connection)
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if connection.recv(1):
                self.met.set()

    def close(self) -> None:
        for each in (self._socket, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@pytest.fixture
def silent() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture(scope="module")
def untracked(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The metrics of a run that nobody watches."""
    run = tmp_path_factory.mktemp("untracked") / "run"
    assert call_main(*RUN, f"run.dir={run}") == 0
    return (run / "metrics.jsonl").read_bytes()


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A mark that all processes started from here on carry, where the kernel shows it: they start for real."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv("PADDOCK_TEST_MARK", mark)
    with forkserver.real_starts():
        yield mark


def marked(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("PADDOCK_TEST_MARK") == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


# Servers


def test_wandb_without_an_answer_goes_offline(
    silent: Server,
    untracked: bytes,
    tmp_path: Path,
    wandb_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    mark: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    monkeypatch.setenv("WANDB_BASE_URL", silent.url)
    run = tmp_path / "run"
    keys = ["track=wandb", "track.wandb.init_timeout_s=1", "track.wandb.close_timeout_s=60"]
    assert call_main(*RUN, *keys, f"run.dir={run}") == 0
    out, err = capfd.readouterr()
    assert out.count("W&B is offline (") == 1 and err == "", (run / "wandb" / "mirror.log").read_text()
    assert silent.met.is_set()
    assert (run / "metrics.jsonl").read_bytes() == untracked
    ((record, rows),) = history(run)
    assert (record.job_type, len(rows)) == ("es", 4)  # of three iterations, and of the evaluation at the end
    wait_until(lambda: not marked(mark))


def test_hanging_service_neither_slows_nor_stops_a_run(
    silent: Server,
    tmp_path: Path,
    wandb_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    mark: str,
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    monkeypatch.setenv("WANDB_BASE_URL", silent.url)
    mirror = wandb(tmp_path, "online", init_timeout_s=3600.0, close_timeout_s=0.2)
    err = io.StringIO()
    tracker = Tracker(tmp_path, [mirror], 0, Console(io.StringIO(), err, {}))
    tracker.log(row(1))
    assert silent.met.wait(60)
    # It hangs from here on: what follows would never happen if anything waited for it.
    assert marked(mark)
    for i in range(2, 3001):
        tracker.log(row(i))
    tracker.close()
    lines = err.getvalue().splitlines()
    assert "did not close within 0.2 s and was abandoned; metrics.jsonl has every row" in lines[0]
    assert len(rows_of(tmp_path / "metrics.jsonl")) == 3000
    wait_until(lambda: not marked(mark))


def test_process_of_a_resumed_run_waits_for_the_killed_one(tmp_path: Path) -> None:
    said: queue.SimpleQueue[str] = queue.SimpleQueue()
    began = threading.Event()

    def begin() -> None:
        with wait_for_lock(tmp_path / "mirror.log", said.put):
            began.set()

    resumed = threading.Thread(target=begin)
    with wait_for_lock(tmp_path / "mirror.log", said.put):
        resumed.start()
        assert "waiting for the process of the previous session" in said.get(timeout=60)
        assert not began.is_set()
    resumed.join(60)
    assert began.is_set() and said.empty()


# Full disks


@contextlib.contextmanager
def full_disk(folder: Path) -> Iterator[None]:
    """A disk of 64 KiB at the folder, of which nothing is left."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True)
    except OSError:
        pytest.skip("there is no mount")
    if done.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted: {done.stderr.strip()}")
    try:
        with open(folder / "ballast", "wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"\0" * 4096)
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_mirror_on_a_full_disk_is_off_after_a_warning(
    name: str,
    tmp_path: Path,
    wandb_home: Path,
    mark: str,
) -> None:
    with full_disk(tmp_path / name):
        mirror: Any = tensorboard(tmp_path) if name == "tensorboard" else wandb(tmp_path)
        err = io.StringIO()
        tracker = Tracker(tmp_path, [mirror], 0, Console(io.StringIO(), err, {}))
        for i in range(1, 11):
            tracker.log(row(i))
        tracker.close()
        assert len(err.getvalue().splitlines()) == 1
        assert f"{mirror.name} failed and is off (" in err.getvalue()
        assert len(rows_of(tmp_path / "metrics.jsonl")) == 10
        wait_until(lambda: not marked(mark))
