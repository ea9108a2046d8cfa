"""A process beside the run that holds a tracker's library, and what passes between the two: lines of JSON.

Such a library waits for its service and for the network, in its exit handlers too, and only a process can be ended when
it hangs. The run writes settings, then a line for each row, then null; an end without null is that of a run that was
killed. What comes back are lines for the user. `Child` is the run's side, `serve` the process's.
"""

import contextlib
import importlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

BOOT = "import sys; sys.path[:] = {path!r}; from paddock.tracking.child import serve; serve({module!r})"
FAILED = "failed: "  # how the line begins that says why the process ends early
GRACE_S = 2  # beyond close_timeout_s, for the run to end the process itself

Say = Callable[[str], None]


class Child:
    """The run's side. What the process prints is in `mirror.log` of its folder.

    Args:
        module: of this package; its function `mirror` is given the process's side, an `Inbox`.
        folder: the process's own; made if it is missing.
        settings: plain data, with `close_timeout_s` and `queue_rows`.
        environment: variables beyond this process's own.
        say: shows a line to the user.
    """

    def __init__(
        self, module: str, folder: Path, settings: Mapping[str, Any], environment: Mapping[str, str], say: Say
    ) -> None:
        folder.mkdir(exist_ok=True)
        self._log_file = folder / "mirror.log"
        self._say = say
        self._reason = ""
        with open(self._log_file, "ab") as log_file:
            self.process = subprocess.Popen(
                [sys.executable, "-c", BOOT.format(path=sys.path, module=module)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log_file,
                env=environment,
                encoding="utf-8",
                start_new_session=True,  # Ctrl-C is the run's affair: the child ends when its input does
            )
        self._relay = threading.Thread(target=self._hear, name=f"{module} says", daemon=True)
        self._relay.start()
        self.send(settings)

    def send(self, message: Mapping[str, Any] | None) -> None:
        """Write a line.

        Raises:
            RuntimeError: the process has ended.
        """
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(message) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self._ended(self.process.wait()) from None

    def close(self) -> None:
        """Say that the run is over, and wait for the end of the process.

        Raises:
            RuntimeError: it failed.
        """
        assert self.process.stdin is not None
        self.send(None)
        self.process.stdin.close()
        code = self.process.wait()
        if code != 0:
            raise self._ended(code)
        self._relay.join()

    def kill(self) -> None:
        """End the process at once; does not wait."""
        self.process.kill()

    def _hear(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(FAILED):
                self._reason = f" ({line.removeprefix(FAILED).strip()})"
            else:
                self._say(line.rstrip("\n"))

    def _ended(self, code: int) -> RuntimeError:
        self._relay.join()
        return RuntimeError(f"its process ended with status {code}{self._reason}, see {self._log_file}")


class Inbox:
    """The process's side: the settings, the rows as they come, and a way to answer.

    Attributes:
        killed: whether the run ended without saying so; known once there are no more rows.
    """

    def __init__(self, lines: IO[str], answers: IO[str]) -> None:
        self.settings: dict[str, Any] = json.loads(lines.readline())
        self.killed = True
        self._lines = lines
        self._answers = answers
        self._arrived: queue.Queue[dict[str, float] | None] = queue.Queue(self.settings["queue_rows"])
        threading.Thread(target=self._read, name="inbox", daemon=True).start()

    def batches(self, rows: int) -> Iterator[list[dict[str, float]]]:
        """The rows in order, as many at once as have arrived, at most so many; ends with the run."""
        over = False
        while not over:
            batch = [self._arrived.get()]
            with contextlib.suppress(queue.Empty):
                while batch[-1] is not None and len(batch) < rows:
                    batch.append(self._arrived.get_nowait())
            over = batch[-1] is None
            kept = [row for row in batch if row is not None]
            if kept:
                yield kept

    def say(self, text: str) -> None:
        """Show the user a line."""
        with contextlib.suppress(BrokenPipeError):  # a killed run hears nothing, and its rows are kept all the same
            self._answers.write(text + "\n")

    def _read(self) -> None:
        # A line that a kill cut off ends the input too.
        with contextlib.suppress(ValueError):
            for line in self._lines:
                row = json.loads(line)
                if row is None:
                    self.killed = False
                    break
                self._arrived.put(row)
        # Kills this process whatever it waits for; by then the run has given it up, or is gone itself.
        signal.alarm(round(self.settings["close_timeout_s"]) + GRACE_S)
        self._arrived.put(None)


def serve(module: str) -> None:
    """Let the module's `mirror` take what the run sends; the process ends with it."""
    # Libraries and their services inherit the standard streams: they get the log, and the pipes stay with this process.
    lines = os.fdopen(os.dup(0), encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    # A scheduler that preempts a job signals all its processes; the run itself says when it is over.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    inbox = Inbox(lines, answers)
    sys.argv = inbox.settings["argv"]  # noted as the run's command
    code = 0
    try:
        # What libraries keep for their exit handlers to remove goes here, since those do not run.
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            os.environ["TMPDIR"] = tempfile.tempdir = folder
            importlib.import_module(f"paddock.tracking.{module}").mirror(inbox)
    except Exception as error:
        traceback.print_exc()
        inbox.say(f"{FAILED}{in_a_line(error)}")
        code = 1
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    # The library's exit handlers only send telemetry, and wait for a server that does not answer.
    os._exit(code)


def in_a_line(error: BaseException) -> str:
    """What an exception says first, or its name."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
