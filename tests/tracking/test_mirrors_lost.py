"""A tracking service that is silent, broken or away, and a full disk, cost a run nothing but the mirror."""

import contextlib
import errno
import fcntl
import io
import os
import queue
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forkserver
import psutil
import pytest
from conftest import TINY, call_main, wait_until
from mirrored import history, mlflow, row, rows_of, tensorboard, wandb, wandb_home_fixture  # noqa: F401

from paddock.algos.common.disk import open_temporary
from paddock.tracking.child import SCRATCH, in_turn
from paddock.tracking.console import Console
from paddock.tracking.tracker import Tracker

RUN = [*TINY, "compute=serial", "seed=3", "budget.iterations=3"]


class Server:
    """A port on loopback: `silent` accepts and never answers, `rude` resets every connection, `absent` does not listen.

    Attributes:
        met: set once somebody has connected and sent something.
    """

    def __init__(self, manners: str) -> None:
        self.met = threading.Event()
        self._manners = manners
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        if manners != "absent":
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
            if self._manners == "rude":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.close()

    def close(self) -> None:
        for each in (self._socket, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@pytest.fixture(params=["silent", "rude", "absent"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    server = Server(request.param)
    yield server
    server.close()


@pytest.fixture
def silent() -> Iterator[Server]:
    server = Server("silent")
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


def test_wandb_without_an_answer_goes_offline_and_the_run_ends_with_the_same_bytes(
    server: Server,
    untracked: bytes,
    tmp_path: Path,
    wandb_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    mark: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    monkeypatch.setenv("WANDB_BASE_URL", server.url)
    run = tmp_path / "run"
    keys = ["track=wandb", "track.mirrors.wandb.init_timeout_s=1", "track.mirrors.wandb.close_timeout_s=60"]
    assert call_main(*RUN, *keys, f"run.dir={run}") == 0
    out, err = capfd.readouterr()
    assert out.count("W&B is offline (") == 1 and err == "", (run / "wandb" / "mirror.log").read_text()
    assert server.met.is_set() or server._manners == "absent"
    assert (run / "metrics.jsonl").read_bytes() == untracked
    ((record, rows),) = history(run)
    assert (record.job_type, len(rows)) == ("es", 4)  # of three iterations, and of the evaluation at the end
    wait_until(lambda: not marked(mark))


def test_mlflow_without_an_answer_is_off_after_one_warning_and_the_run_ends_with_the_same_bytes(
    server: Server,
    untracked: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mark: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url)
    run = tmp_path / "run"
    keys = ["track=mlflow", "track.mirrors.mlflow.init_timeout_s=1", "track.mirrors.mlflow.close_timeout_s=60"]
    assert call_main(*RUN, *keys, f"run.dir={run}") == 0
    warnings = capfd.readouterr().err.splitlines()
    assert len(warnings) == 1
    assert warnings[0].startswith(
        f"warning: MLflow failed and is off (RuntimeError: its process ended with status 1 (no run at {server.url}: "
    )
    assert server.met.is_set() or server._manners == "absent"
    assert (run / "metrics.jsonl").read_bytes() == untracked
    wait_until(lambda: not marked(mark))


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_rows_go_on_while_a_service_hangs_and_the_end_does_not_wait_for_it(
    name: str,
    silent: Server,
    tmp_path: Path,
    wandb_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    mark: str,
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    monkeypatch.setenv("WANDB_BASE_URL", silent.url)
    patience: dict[str, Any] = {"init_timeout_s": 3600.0, "close_timeout_s": 0.2}
    mirror = wandb(tmp_path, "online", **patience) if name == "wandb" else mlflow(tmp_path, silent.url, **patience)
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
    assert "did not close within 0.2 s and was left behind; metrics.jsonl has every row" in lines[0]
    assert len(rows_of(tmp_path / "metrics.jsonl")) == 3000
    wait_until(lambda: not marked(mark))


def test_wandb_goes_offline_where_its_own_service_hangs(silent: Server, tmp_path: Path, wandb_home: Path) -> None:
    code = """
import os, sys, types
from paddock.tracking import wandb
wandb.GRACE_S = 0.0
settings = dict(mode="online", run_name="r", run_dir=sys.argv[1], id="r", init_timeout_s=4.0, close_timeout_s=60.0,
                argv=["paddock"], commit=None, pid=os.getpid())
inbox = types.SimpleNamespace(settings=dict.fromkeys(wandb.NAMED) | settings, killed=False, say=print)
wandb.finish(wandb.start(inbox), inbox)
sys.stdout.flush()
os._exit(0)  # as `child.serve` does
"""
    # With a folder for what nobody removes, as `child.serve` gives it.
    environment = os.environ | {"WANDB_API_KEY": "a" * 40, "WANDB_BASE_URL": silent.url, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", code, str(tmp_path)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True) as process:
        wait_until(lambda: silent.met.is_set() or process.poll() is not None)
        for service in psutil.Process(process.pid).children():
            service.suspend()
        out, _ = process.communicate(timeout=60)
    assert out.startswith("W&B is offline (") and process.returncode == 0


def test_a_hanging_service_outlives_a_killed_run_by_close_timeout_s_and_a_little(
    silent: Server, tmp_path: Path, mark: str
) -> None:
    pytest.importorskip("mlflow")
    code = """
import sys, threading
from pathlib import Path
from paddock.tracking.mirrors import Mlflow
mirror = Mlflow(tracking_uri=sys.argv[2], experiment="e", tags={}, init_timeout_s=3600, queue_rows=9, close_timeout_s=1,
                run_dir=Path(sys.argv[1]), run_name="r", config={"algo": {"name": "es"}})
mirror.open(0, print)
for step in range(99):
    mirror.log({"step": step})  # more than it holds
threading.Event().wait()
"""
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path), silent.url], cwd=Path(__file__).parents[2])
    assert silent.met.wait(60)
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    assert children and psutil.wait_procs(children, timeout=60)[1] == []


def test_the_process_of_a_resumed_run_begins_when_that_of_the_killed_one_has_ended(tmp_path: Path) -> None:
    said: queue.SimpleQueue[str] = queue.SimpleQueue()
    began = threading.Event()

    def begin() -> None:
        with in_turn(tmp_path / "mirror.log", said.put):
            began.set()

    resumed = threading.Thread(target=begin)
    with in_turn(tmp_path / "mirror.log", said.put):
        resumed.start()
        assert "waiting for the process of the session before" in said.get(timeout=60)
        assert not began.is_set()
    resumed.join(60)
    assert began.is_set() and said.empty()


def test_what_a_killed_process_left_of_temporary_files_goes_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left, others = tmp_path / f"{SCRATCH}left", tmp_path / "tmp-of-others"
    for folder in (left, others):
        (folder / "media").mkdir(parents=True)
    with open_temporary(SCRATCH) as first:
        assert not left.exists()
        with open_temporary(SCRATCH) as second:
            assert sorted(tmp_path.iterdir()) == sorted([Path(first), Path(second), others])
        assert sorted(tmp_path.iterdir()) == sorted([Path(first), others])

    def refuse(*_: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)  # as of a file system without locks
    with open_temporary(SCRATCH) as first, open_temporary(SCRATCH) as second:
        assert sorted(tmp_path.iterdir()) == sorted([Path(first), Path(second), others])
    assert [*tmp_path.iterdir()] == [others]


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


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_a_mirror_whose_disk_is_full_is_off_after_one_warning(
    name: str,
    tmp_path: Path,
    wandb_home: Path,
    mark: str,
) -> None:
    with full_disk(tmp_path / name):
        mirror: Any = {
            "tensorboard": lambda: tensorboard(tmp_path),
            "wandb": lambda: wandb(tmp_path),
            "mlflow": lambda: mlflow(tmp_path, f"sqlite:///{tmp_path}/mlflow/mlflow.db"),
        }[name]()
        err = io.StringIO()
        tracker = Tracker(tmp_path, [mirror], 0, Console(io.StringIO(), err, {}))
        for i in range(1, 11):
            tracker.log(row(i))
        tracker.close()
        assert len(err.getvalue().splitlines()) == 1
        assert f"{mirror.name} failed and is off (" in err.getvalue()
        assert len(rows_of(tmp_path / "metrics.jsonl")) == 10
        wait_until(lambda: not marked(mark))


def test_a_disk_that_fills_up_on_the_way_turns_tensorboard_off(tmp_path: Path) -> None:
    with full_disk(tmp_path / "tensorboard"):
        (tmp_path / "tensorboard" / "ballast").unlink()
        err = io.StringIO()
        tracker = Tracker(tmp_path, [tensorboard(tmp_path)], 0, Console(io.StringIO(), err, {}))
        for i in range(1, 2001):
            tracker.log(row(i))
        tracker.close()
        assert err.getvalue().startswith("warning: TensorBoard failed and is off (OSError: [Errno 28]")
        assert len(rows_of(tmp_path / "metrics.jsonl")) == 2000


def test_wandb_whose_disk_fills_up_on_the_way_costs_the_run_nothing(
    tmp_path: Path,
    wandb_home: Path,
    mark: str,
) -> None:
    with full_disk(tmp_path / "wandb"):
        opened, err = threading.Event(), io.StringIO()
        ballast = tmp_path / "wandb" / "ballast"
        ballast.unlink()

        class Watch(io.StringIO):
            def write(self, text: str) -> int:
                if text.startswith("W&B is offline"):
                    opened.set()
                return super().write(text)

        mirror = wandb(tmp_path, close_timeout_s=20.0)
        tracker = Tracker(tmp_path, [mirror], 0, Console(Watch(), err, {}))
        wait_until(lambda: opened.is_set() or err.getvalue())
        with open(ballast, "wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"\0" * 512)
        for i in range(1, 501):
            tracker.log(row(i))
        tracker.close()
        assert len(rows_of(tmp_path / "metrics.jsonl")) == 500
        assert len(err.getvalue().splitlines()) <= 1
        wait_until(lambda: not marked(mark))
