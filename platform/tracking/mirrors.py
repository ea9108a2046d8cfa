"""The mirrors of `conf/track`: TensorBoard, Weights & Biases, MLflow.

None imports TensorFlow or torch into the run: TensorBoard's event file is written with its protobufs and records alone,
and the other two live in a process each (`child.py`), which can be killed when it hangs.
"""

import importlib.util
import os
import re
import secrets
import shlex
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

from paddock.envs.errors import ConfigError, install, nearest, require

from ..runs.checkpoint import Checkpoints, write_atomically
from ..runs.folder import read_json
from ..runs.identity import algorithm_name
from ..runs.sweeps import sweep_name
from .child import MirrorProcess

MOST_S = 1e6  # twelve days
WANDB_MODES = ("online", "offline", "disabled")


@dataclass(kw_only=True, eq=False)
class OfRun:
    """Abstract mirror of the run in a folder."""

    name: ClassVar[str]  # what messages call it

    queue_rows: int
    close_timeout_s: float
    run_dir: Path
    run_name: str
    config: Mapping[str, Any]

    def __post_init__(self) -> None:
        require(self.queue_rows > 0, f"queue_rows={self.queue_rows} must be positive; try 1000")
        self._check_seconds("close_timeout_s", 30)

    def _check_seconds(self, name: str, usual: int) -> None:
        seconds = getattr(self, name)
        require(0 < seconds <= MOST_S, f"{name}={seconds} must be positive, and at most {MOST_S:g}; try {usual}")


@dataclass(kw_only=True, eq=False)
class TensorBoard(OfRun):
    """Event files in RUN/tensorboard, over environment steps; see it with `tensorboard --logdir RUN`.

    A resumed run adds a file that makes TensorBoard discard the steps that follow. Values are float32.
    """

    name = "TensorBoard"

    _records: Any = field(default=None, init=False)  # the RecordWriter

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_package("tensorboard", "pip install tensorboard")

    def open(self, first_step: int, say: Callable[[str], None]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter

        folder = self.run_dir / "tensorboard"
        folder.mkdir(exist_ok=True)
        # TensorBoard reads files in the order of their names.
        second = max([int(time.time()), *(int(file.name.split(".")[3]) + 1 for file in folder.glob("events.out.*"))])
        name = f"events.out.tfevents.{second:010d}.{socket.gethostname()}.{os.getpid()}"
        self._records = RecordWriter(open(folder / name, "xb", buffering=0))  # noqa: SIM115
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))
        # A second START discards this step and later ones.
        self._write(Event(wall_time=time.time(), step=first_step, session_log=SessionLog(status=SessionLog.START)))

    def log(self, metrics: Mapping[str, float]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        event = Event(wall_time=time.time(), step=int(metrics["step"]))
        for key, value in metrics.items():
            if key != "step":
                event.summary.value.add(tag=key, simple_value=value)
        self._write(event)

    def close(self) -> None:
        if self._records is not None:
            self._records.close()

    def abandon(self) -> None:
        pass

    def commands(self) -> list[str]:
        """See `track.Shown`."""
        return [f"tensorboard --logdir {shlex.quote(str(self.run_dir))}"]

    def _write(self, event: Any) -> None:
        self._records.write(event.SerializeToString())


@dataclass(kw_only=True, eq=False)
class InChild(OfRun):
    """Abstract mirror in a process that `open` starts."""

    init_timeout_s: float
    _process: MirrorProcess | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_seconds("init_timeout_s", 15)

    def log(self, metrics: Mapping[str, float]) -> None:
        if self._process is not None:
            self._process.send(metrics)

    def close(self) -> None:
        if self._process is not None:
            self._process.close()

    def abandon(self) -> None:
        if self._process is not None:
            self._process.kill()

    def _describe(self) -> dict[str, Any]:
        """Return the settings of the process, and the facts of the run."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.init} | {
            "run_dir": str(self.run_dir.absolute()),
            "commit": read_commit(self.run_dir),
            "sweep": sweep_name(self.run_dir),
            "pid": os.getpid(),
            "argv": sys.argv,
        }


@dataclass(kw_only=True, eq=False)
class Wandb(InChild):
    """A Weights & Biases run, over environment steps, fed row by row to a child process.

    Its own `_step` is ten times the iteration, and one more for each evaluation that the run's end adds.
    `online` without a key or a network becomes offline and says so. A resumed run folder continues the same W&B run:
    its id is kept in RUN/wandb/run_id, beside wandb's own files and `mirror.log`, which has what wandb printed.
    """

    name = "W&B"

    mode: str
    project: str
    entity: str | None
    group: str | None
    job_type: str | None
    tags: Sequence[str]

    def __post_init__(self) -> None:
        mode, known = self.mode, ", ".join(WANDB_MODES)
        require(mode in WANDB_MODES, f"mode={mode!r} is unknown; allowed: {known}; {nearest(str(mode), WANDB_MODES)}")
        super().__post_init__()
        if mode != "disabled":
            _require_package("wandb", "pip install wandb")

    def open(self, first_step: int, say: Callable[[str], None]) -> None:
        if self.mode == "disabled":
            return
        folder = self.run_dir / "wandb"
        folder.mkdir(exist_ok=True)
        if not (folder / "run_id").exists():
            write_atomically(folder / "run_id", secrets.token_hex(6).encode())
        settings = self._describe()
        settings |= {
            "module": "wandb",
            "id": (folder / "run_id").read_text().strip(),
            "group": self.group or settings["sweep"],
            "job_type": self.job_type or algorithm_name(self.config),
            "tags": list(self.tags),
            "config": {**self.config, **({"commit": settings["commit"]} if settings["commit"] else {})},
        }
        # Not the service of another W&B user in this process; and copies of files go into the run's folder.
        environment = {"WANDB_DATA_DIR": str(folder.absolute() / "data"), **os.environ}
        environment.pop("WANDB_SERVICE", None)
        self._process = MirrorProcess(folder, settings, environment, say)

    def commands(self) -> list[str]:
        """See `track.Shown`: what is still to be uploaded."""
        folder = self.run_dir / "wandb"
        sessions = sorted(folder.glob("offline-run-*"))
        listed = shlex.join(map(str, sessions)) if len(sessions) < 2 else f"{shlex.quote(str(folder))}/offline-run-*"
        return [f"wandb sync {listed}"] if sessions else []


@dataclass(kw_only=True, eq=False)
class Mlflow(InChild):
    """An MLflow run, over environment steps, fed row by row to a child process.

    Without a tracking URI, here or in the environment, runs are kept in a database beside their folders. A resumed run
    folder continues the same MLflow run: its id is kept in RUN/mlflow/run_id, beside `mirror.log`. A server that cannot
    be reached turns the mirror off; `paddock.upload` makes up for it.
    """

    name = "MLflow"

    tracking_uri: str | None
    experiment: str
    tags: Mapping[str, Any]

    def __post_init__(self) -> None:
        uri = self.tracking_uri
        allowed = "http://HOST:PORT, sqlite:////FILE, databricks, null"
        fits = uri is None or re.match(r"databricks\b|[\w+.-]+:/", uri)
        require(bool(fits), f"tracking_uri={uri!r} is no address of MLflow; allowed: {allowed}")
        super().__post_init__()
        _require_package("mlflow", install("mlflow"))

    def open(self, first_step: int, say: Callable[[str], None]) -> None:
        settings = self._describe() | {
            "tracking_uri": self.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI"),
            "tags": {str(key): str(value) for key, value in self.tags.items()},
            "algorithm": algorithm_name(self.config),
            "module": "mlflow",
        }
        environment = {"MLFLOW_DISABLE_TELEMETRY": "true", **os.environ}
        self._process = MirrorProcess(self.run_dir / "mlflow", settings, environment, say)


def read_commit(run_dir: Path) -> str | None:
    """Return the commit of the code that a run was made with, if it is known."""
    return read_json(run_dir / "provenance.json").get("commit")


def find_policy(run_dir: Path) -> list[Path]:
    """Return the files of a run's policy: the newest checkpoint and the configuration."""
    newest = Checkpoints(run_dir / "checkpoints", keep=1).paths()[:1]
    return [*newest, run_dir / "config.yaml"] if newest else []


def find_videos(run_dir: Path) -> list[Path]:
    """Return the videos in a run's folder."""
    return sorted(run_dir.glob("*.mp4"))


def _require_package(name: str, remedy: str) -> None:
    if importlib.util.find_spec(name) is None:
        raise ConfigError(f"track needs the package {name}, which is not installed; try: {remedy}")
