"""The mirrors of `conf/track`: TensorBoard, Weights & Biases, MLflow.

None brings its library into the run: TensorBoard's event file is written here from its protobufs (no TensorFlow, no
torch), and the other two live in a process of their own each (`child.py`), which can be ended when it hangs.
"""

import importlib.util
import os
import re
import secrets
import shlex
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from envs.errors import ConfigError, nearest, require

from ..runs.checkpoint import Checkpoints, write_atomically
from ..runs.folder import algorithm_name, read_json
from .child import MirrorProcess
from .crc32c import Crc32c

WANDB_MODES = ("online", "offline", "disabled")


class TensorBoard:
    """Event files in RUN/tensorboard, over environment steps; see it with `tensorboard --logdir RUN`.

    A resumed run adds a file that makes TensorBoard forget the steps to come again. Values are float32, as everywhere
    in TensorBoard.
    """

    def __init__(
        self, *, queue_rows: int, close_timeout_s: float, run_dir: Path, run_name: str, config: Mapping[str, Any]
    ) -> None:
        _require_limits(queue_rows, close_timeout_s)
        _require_package("tensorboard")
        self.queue_rows = queue_rows
        self.close_timeout_s = close_timeout_s
        self._run_dir = run_dir
        self._folder = run_dir / "tensorboard"
        self._file: IO[bytes] | None = None
        self._crc32c = Crc32c()

    def open(self, first_step: int, say: Callable[[str], None]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        self._folder.mkdir(exist_ok=True)
        # TensorBoard reads files in order of their names, so a later one must not be named by a clock that is behind.
        times = [int(match[1]) for file in self._folder.iterdir() if (match := _EVENT_FILE.match(file.name))]
        second = max([int(time.time()), *(t + 1 for t in times)])
        name = f"events.out.tfevents.{second:010d}.{socket.gethostname()}.{os.getpid()}"
        self._file = open(self._folder / name, "xb", buffering=0)  # noqa: SIM115
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))
        # A second START discards what was read before with this step or a later one.
        self._write(Event(wall_time=time.time(), step=first_step, session_log=SessionLog(status=SessionLog.START)))

    def log(self, metrics: Mapping[str, float]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        event = Event(wall_time=time.time(), step=int(metrics["step"]))
        for key, value in metrics.items():
            if key != "step":
                event.summary.value.add(tag=key, simple_value=value)
        self._write(event)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def abandon(self) -> None:
        pass

    def commands(self) -> list[str]:
        """See `track.Shown`."""
        return [f"tensorboard --logdir {shlex.quote(str(self._run_dir))}"]

    def _write(self, event: Any) -> None:
        # The TFRecord format: length, its checksum, data, its checksum, little-endian.
        data = event.SerializeToString()
        head = struct.pack("<Q", len(data))
        assert self._file is not None
        self._file.write(b"".join(part + struct.pack("<I", self._crc32c.masked(part)) for part in (head, data)))


_EVENT_FILE = re.compile(r"events\.out\.tfevents\.(\d+)\.")


class InChild:
    """Abstract: a mirror whose `open` starts a process that does the rest.

    Args:
        module: of this package, which that process runs.
        distribution: what is installed for it.
        settings: the mirror's own.
    """

    def __init__(
        self,
        module: str,
        distribution: str,
        settings: Mapping[str, Any],
        run_dir: Path,
        run_name: str,
        config: Mapping[str, Any],
        init_timeout_s: float,
        queue_rows: int,
        close_timeout_s: float,
    ) -> None:
        require(init_timeout_s > 0, f"init_timeout_s={init_timeout_s} must be positive; try 15")
        _require_limits(queue_rows, close_timeout_s)
        self.queue_rows = queue_rows
        self.close_timeout_s = close_timeout_s
        self._run_dir = run_dir
        self._folder = run_dir / module
        self._process: MirrorProcess | None = None
        self._settings = {
            **settings,
            "module": module,
            "name": run_name,
            "dir": str(run_dir.absolute()),
            "config": dict(config),
            "init_timeout_s": init_timeout_s,
            "queue_rows": queue_rows,
            "close_timeout_s": close_timeout_s,
            "argv": sys.argv,
        }
        if settings.get("mode") != "disabled":
            _require_package(module, distribution)

    def log(self, metrics: Mapping[str, float]) -> None:
        if self._process is not None:
            self._process.send(metrics)

    def close(self) -> None:
        if self._process is not None:
            self._process.close()

    def abandon(self) -> None:
        if self._process is not None:
            self._process.kill()


class Wandb(InChild):
    """A Weights & Biases run, over environment steps, fed row by row to a child process.

    `online` without a key or a network becomes offline and says so. A resumed run folder continues the same W&B run:
    its id is kept in RUN/wandb/run_id, beside wandb's own files and `mirror.log`, which has what wandb printed.
    """

    def __init__(
        self,
        *,
        mode: str,
        project: str,
        entity: str | None,
        group: str | None,
        job_type: str | None,
        tags: Sequence[str],
        init_timeout_s: float,
        queue_rows: int,
        close_timeout_s: float,
        run_dir: Path,
        run_name: str,
        config: Mapping[str, Any],
    ) -> None:
        known = ", ".join(WANDB_MODES)
        require(mode in WANDB_MODES, f"mode={mode!r} is unknown; allowed: {known}; {nearest(str(mode), WANDB_MODES)}")
        settings: dict[str, Any] = {
            "mode": mode,
            "project": project,
            "entity": entity,
            "group": group,
            "tags": list(tags),
        }
        settings |= {"job_type": job_type, "pid": os.getpid()}
        limits = init_timeout_s, queue_rows, close_timeout_s
        super().__init__("wandb", "wandb", settings, run_dir, run_name, config, *limits)

    def open(self, first_step: int, say: Callable[[str], None]) -> None:
        if self._settings["mode"] == "disabled":
            return
        self._folder.mkdir(exist_ok=True)
        commit = read_commit(self._run_dir)
        settings = self._settings | {
            "id": _stable_id(self._folder / "run_id"),
            "group": self._settings["group"] or sweep_name(self._run_dir),
            "job_type": self._settings["job_type"] or algorithm_name(self._settings["config"]),
            "commit": commit,
            "config": self._settings["config"] | ({"commit": commit} if commit else {}),
        }
        # A service that some other W&B user in this process has started is not ours to use. Copies of the files to be
        # uploaded are kept in the run's folder, and not in the user's home.
        environment = {"WANDB_DATA_DIR": str(self._folder.absolute() / "data"), **os.environ}
        environment.pop("WANDB_SERVICE", None)
        self._process = MirrorProcess(self._folder, settings, environment, say)

    def commands(self) -> list[str]:
        """See `track.Shown`: what is still to be uploaded."""
        sessions = sorted(self._folder.glob("offline-run-*"))
        every = f"{shlex.quote(str(self._folder))}/offline-run-*"
        listed = shlex.join(map(str, sessions)) if len(sessions) < 2 else every
        return [f"wandb sync {listed}"] if sessions else []


class Mlflow(InChild):
    """An MLflow run, over environment steps, fed row by row to a child process.

    Without a tracking URI, here or in the environment, runs are kept in a database beside their folders. A resumed run
    folder continues the same MLflow run: its id is kept in RUN/mlflow/run_id, beside `mirror.log`. A server that cannot
    be reached turns the mirror off; `paddock.upload` makes up for it.
    """

    def __init__(
        self,
        *,
        tracking_uri: str | None,
        experiment: str,
        tags: Mapping[str, Any],
        init_timeout_s: float,
        queue_rows: int,
        close_timeout_s: float,
        run_dir: Path,
        run_name: str,
        config: Mapping[str, Any],
    ) -> None:
        fits = tracking_uri is None or re.match(r"databricks\b|[\w+.-]+:/", tracking_uri)
        allowed = "http://HOST:PORT, sqlite:////FILE, databricks, null"
        require(bool(fits), f"tracking_uri={tracking_uri!r} is no address of MLflow; allowed: {allowed}")
        settings: dict[str, Any] = {"tracking_uri": tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")}
        settings |= {"experiment": experiment, "tags": {str(key): str(value) for key, value in tags.items()}}
        settings["algorithm"] = algorithm_name(config)
        limits = init_timeout_s, queue_rows, close_timeout_s
        super().__init__("mlflow", "mlflow-skinny", settings, run_dir, run_name, config, *limits)

    def open(self, first_step: int, say: Callable[[str], None]) -> None:
        known = {"commit": read_commit(self._run_dir), "sweep": sweep_name(self._run_dir)}
        environment = {"MLFLOW_DISABLE_TELEMETRY": "true", **os.environ}
        self._process = MirrorProcess(self._folder, self._settings | known, environment, say)


# What is known of a run from its folder


def sweep_name(run_dir: Path) -> str | None:
    """The name of the sweep's folder that a run's folder is in; None for a run of its own."""
    folder = run_dir.absolute().parent
    of_hydra = (folder / "multirun.yaml").exists()
    searched = (folder / "sweep.json").exists() and (run_dir / "trial.json").exists()
    return folder.name if of_hydra or searched else None


def read_commit(run_dir: Path) -> str | None:
    """The commit of the code that a run was made with; None where it is not known."""
    return read_json(run_dir / "provenance.json").get("commit")


def find_policy(run_dir: Path) -> list[Path]:
    """The files of a run's folder that make its policy: the newest checkpoint and the configuration."""
    newest = Checkpoints(run_dir / "checkpoints", keep=1).paths()[:1]
    return [*newest, run_dir / "config.yaml"] if newest else []


def find_videos(run_dir: Path) -> list[Path]:
    """The films in a run's folder."""
    return sorted(run_dir.glob("*.mp4"))


def _stable_id(path: Path) -> str:
    """The id kept in a file."""
    if not path.exists():
        write_atomically(path, secrets.token_hex(6).encode())
    return path.read_text(encoding="ascii").strip()


def _require_limits(queue_rows: int, close_timeout_s: float) -> None:
    require(queue_rows > 0, f"queue_rows={queue_rows} must be positive; try 1000")
    require(close_timeout_s > 0, f"close_timeout_s={close_timeout_s} must be positive; try 30")


def _require_package(name: str, distribution: str | None = None) -> None:
    if importlib.util.find_spec(name) is None:
        remedy = f"pip install {distribution or name}"
        raise ConfigError(f"track needs the package {name}, which is not installed; try: {remedy}")
