"""The mirrors of `conf/track`: TensorBoard and Weights & Biases.

Neither brings its library into the run: TensorBoard's event file is written here from its protobufs (no TensorFlow, no
torch), and W&B lives in a child process (`wandb_child.py`), because its own exit handlers wait for its service and for
the network, and only a process can be ended when it hangs.
"""

import importlib.util
import json
import os
import re
import secrets
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from envs.errors import ConfigError, nearest, require

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
        self._folder = run_dir / "tensorboard"
        self._file: IO[bytes] | None = None

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
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=key, simple_value=value) for key, value in metrics.items() if key != "step"]
        self._write(Event(wall_time=time.time(), step=int(metrics["step"]), summary=Summary(value=values)))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def abandon(self) -> None:
        pass

    def _write(self, event: Any) -> None:
        from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

        # The TFRecord format: length, its checksum, data, its checksum, little-endian.
        data = event.SerializeToString()
        head = struct.pack("<Q", len(data))
        assert self._file is not None
        self._file.write(head + struct.pack("<I", masked_crc32c(head)) + data + struct.pack("<I", masked_crc32c(data)))


_EVENT_FILE = re.compile(r"events\.out\.tfevents\.(\d+)\.")


class Wandb:
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
        require(init_timeout_s > 0, f"init_timeout_s={init_timeout_s} must be positive; try 15")
        _require_limits(queue_rows, close_timeout_s)
        self.queue_rows = queue_rows
        self.close_timeout_s = close_timeout_s
        self._process: subprocess.Popen[str] | None = None
        self._log_file = run_dir / "wandb" / "mirror.log"
        self._settings: dict[str, Any] | None = None
        if mode != "disabled":
            _require_package("wandb")
            self._settings = {
                "mode": mode,
                "project": project,
                "entity": entity,
                "group": group,
                "tags": list(tags),
                "name": run_name,
                "dir": str(run_dir.absolute()),
                "config": dict(config),
                "init_timeout_s": init_timeout_s,
                "close_timeout_s": close_timeout_s,
                "pid": os.getpid(),
                "argv": sys.argv,
            }

    def open(self, first_step: int, say: Callable[[str], None]) -> None:
        if self._settings is None:
            return
        folder = self._log_file.parent
        folder.mkdir(exist_ok=True)
        # A service that some other W&B user in this process has started is not ours to use.
        environment = {key: value for key, value in os.environ.items() if key != "WANDB_SERVICE"}
        with open(self._log_file, "ab") as log_file:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(Path(__file__).with_name("wandb_child.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log_file,
                env=environment,
                encoding="utf-8",
                start_new_session=True,  # Ctrl-C is the run's affair: the child ends when its input does
            )
        assert self._process.stdout is not None
        self._relay = threading.Thread(target=_relay, args=(self._process.stdout, say), name="Wandb says", daemon=True)
        self._relay.start()
        self._send(self._settings | {"id": _stable_id(folder / "run_id")})

    def log(self, metrics: Mapping[str, float]) -> None:
        if self._process is not None:
            self._send(metrics)

    def close(self) -> None:
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait()
        self._relay.join()
        if code != 0:
            raise RuntimeError(f"its process ended with status {code}, see {self._log_file}")

    def abandon(self) -> None:
        if self._process is not None:
            self._process.kill()

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise RuntimeError(f"its process ended with status {self._process.wait()}, see {self._log_file}") from None


def _relay(lines: IO[str], say: Callable[[str], None]) -> None:
    for line in lines:
        say(line.rstrip("\n"))


def _stable_id(path: Path) -> str:
    """The id kept in a file; written whole, so that a crash leaves either none or all of it."""
    if not path.exists():
        temporary = path.with_suffix(".tmp")
        with open(temporary, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(6))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    return path.read_text(encoding="ascii").strip()


def _require_limits(queue_rows: int, close_timeout_s: float) -> None:
    require(queue_rows > 0, f"queue_rows={queue_rows} must be positive; try 1000")
    require(close_timeout_s > 0, f"close_timeout_s={close_timeout_s} must be positive; try 30")


def _require_package(name: str) -> None:
    if importlib.util.find_spec(name) is None:
        raise ConfigError(f"track needs the package {name}, which is not installed; try: pip install {name}")
