"""TensorBoard event files, written without TensorFlow."""

import os
import shlex
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .mirrors import RunMirror, require_package


@dataclass(kw_only=True, eq=False)
class TensorBoard(RunMirror):
    """Mirror to event files in RUN/tensorboard over environment steps, shown by `tensorboard --logdir RUN`.

    A resumed run adds a file that makes TensorBoard discard later steps of earlier files. Values are float32.
    """

    name = "TensorBoard"

    _records: Any = field(default=None, init=False)  # the RecordWriter

    def __post_init__(self) -> None:
        super().__post_init__()
        require_package("tensorboard", "pip install tensorboard")

    def open(self, first_step: int, say: Callable[[str], None]) -> None:
        """Start an event file."""
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter

        folder = self.run_dir / "tensorboard"
        folder.mkdir(exist_ok=True)
        # TensorBoard reads files in order of their names.
        second = max([int(time.time()), *(int(file.name.split(".")[3]) + 1 for file in folder.glob("events.out.*"))])
        name = f"events.out.tfevents.{second:010d}.{socket.gethostname()}.{os.getpid()}"
        self._records = RecordWriter(open(folder / name, "xb", buffering=0))  # noqa: SIM115
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))
        # A second START discards this step and later ones.
        self._write(Event(wall_time=time.time(), step=first_step, session_log=SessionLog(status=SessionLog.START)))

    def log(self, metrics: Mapping[str, float]) -> None:
        """Write a row as an event."""
        from tensorboard.compat.proto.event_pb2 import Event

        event = Event(wall_time=time.time(), step=int(metrics["step"]))
        for key, value in metrics.items():
            if key != "step":
                event.summary.value.add(tag=key, simple_value=value)
        self._write(event)

    def close(self) -> None:
        """Close the event file."""
        if self._records is not None:
            self._records.close()

    def abandon(self) -> None:
        """Do nothing."""

    def commands(self) -> list[str]:
        """Return the command that shows the run."""
        return [f"tensorboard --logdir {shlex.quote(str(self.run_dir))}"]

    def _write(self, event: Any) -> None:
        self._records.write(event.SerializeToString())
