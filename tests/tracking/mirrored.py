"""Rows, trackers and mirrors for several test files, and what is read back of W&B."""

import io
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

from paddock.tracking.console import Console
from paddock.tracking.tensorboard import TensorBoard
from paddock.tracking.wandb import Wandb


def row(iteration: int) -> dict[str, float]:
    return {
        "train/return_mean": iteration / 3,
        "iteration": iteration,
        "step": 100 * iteration,
        "system/seconds": 0.5 * iteration,
    }


def quiet() -> Console:
    return Console(io.StringIO(), io.StringIO(), {})


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


PRELUDE = """
import sys, threading
from pathlib import Path
from paddock.tracking.console import Console
from paddock.tracking.tensorboard import TensorBoard
from paddock.tracking.wandb import Wandb
from paddock.tracking.tracker import Tracker
RUN = Path(sys.argv[1])
class Hanging:
    name = "Hanging"
    queue_rows, close_timeout_s = 3, 0.05
    def open(self, first_step, say): threading.Event().wait()
    def log(self, metrics): pass
    def close(self): pass
    def abandon(self): pass
def go(mirrors, rows, name="a/b"):
    tracker = Tracker(RUN, mirrors, 0, Console(sys.stdout, sys.stderr, {}))
    for i in range(1, rows + 1):
        tracker.log({"iteration": i, "step": i, name: 1.0})
    return tracker
"""


def run_code(tmp_path: Path, code: str, **streams: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PRELUDE + code, str(tmp_path)], cwd=ROOT, **streams)


def tensorboard(run_dir: Path) -> TensorBoard:
    return TensorBoard(queue_rows=1000, close_timeout_s=30, run_dir=run_dir, run_name="r", config={})


@pytest.fixture(name="wandb_home")
def wandb_home_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    for name in [key for key in os.environ if key.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("NETRC", raising=False)
    monkeypatch.setenv("HOME", str(home))
    for name in ("DIR", "CONFIG_DIR", "CACHE_DIR", "DATA_DIR"):
        monkeypatch.setenv(f"WANDB_{name}", str(home / name))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    return home


def wandb(run_dir: Path, mode: Any = "offline", **changes: Any) -> Wandb:
    run_dir.mkdir(exist_ok=True)
    keys: dict[str, Any] = {
        "project": "farm",
        "entity": None,
        "group": "seeds",
        "job_type": None,
        "tags": ["tagged"],
        "init_timeout_s": 2.0,
        "queue_rows": 1000,
        "close_timeout_s": 60.0,
        "run_name": "a name",
        "config": {"algo": {"sigma": 0.1}},
    }
    return Wandb(mode=mode, run_dir=run_dir, **(keys | changes))


def records(file: Path) -> Iterator[Any]:
    """The records of a .wandb file: LevelDB's log format after a header of 7 bytes, checksums not looked at."""
    from wandb.proto import wandb_internal_pb2

    data = file.read_bytes()
    assert data[:4] == b":W&B"
    at, parts = 7, b""
    while at + 7 <= len(data):
        room = 32768 - at % 32768
        if room < 7:
            at += room
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            record = wandb_internal_pb2.Record()  # type: ignore[attr-defined]
            record.ParseFromString(parts)
            yield record
            parts = b""


def history(run_dir: Path) -> list[tuple[Any, list[dict[str, Any]]]]:
    """(run record, rows) of each offline session, oldest first."""
    sessions = []
    for file in sorted((run_dir / "wandb").glob("offline-run-*/*.wandb")):
        found = list(records(file))
        run = next(record.run for record in found if record.WhichOneof("record_type") == "run")
        rows = [
            {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
            for record in found
            if record.WhichOneof("record_type") == "history"
        ]
        sessions.append((run, rows))
    return sessions
