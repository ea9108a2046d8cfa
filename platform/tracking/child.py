"""A process beside the run that holds a tracker's library.

Such a library waits for its service and for the network, in its exit handlers too, and only a process can be ended when
it hangs. The run sends settings, then each row, then None; an end without None is that of a run that was killed. What
comes back are lines for the user. `MirrorProcess` is the run's side, `serve` the process's.
"""

import contextlib
import faulthandler
import fcntl
import importlib
import os
import pickle
import queue
import select
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from paddock.algos.common.disk import open_temporary
from paddock.envs.process import ChildProcess

SCRATCH = "paddock-mirror-"  # how the folder is called of what a library removes as its process ends
FAILED = "failed: "  # how the line begins that says why the process ends early
STACKS = 0.9  # of close_timeout_s, after which it is told what hangs
GRACE_S = 2  # beyond close_timeout_s, for the run to end the process itself
LOOK_S = 1.0  # between looks whether the run is there still, where rows are taken no more

Say = Callable[[str], None]


class MirrorProcess:
    """The run's side. What the process prints is in `mirror.log` of its folder.

    Args:
        folder: the process's own; made if it is missing.
        settings: plain data, with `close_timeout_s`, `queue_rows` and the `module` of this package whose function
            `mirror` is given the process's side, an `Inbox`.
        environment: its variables.
        say: shows a line to the user.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], environment: Mapping[str, str], say: Say) -> None:
        folder.mkdir(exist_ok=True)
        self._log_file = folder / "mirror.log"
        self._say = say
        self._reason = ""
        first = pickle.dumps({**settings, "log": str(self._log_file.absolute())})
        streams: dict[str, Any] = {"env": environment, "stderr": subprocess.STDOUT, "start_new_session": True}
        with open(self._log_file, "ab") as log:
            self.child = ChildProcess(f"{__name__}:serve", first, number=None, stdout=log, **streams)
        self._relay = threading.Thread(target=self._hear, name="mirror says", daemon=True)
        self._relay.start()

    def send(self, row: Mapping[str, float] | None) -> None:
        """Send a row.

        Raises:
            RuntimeError: the process has ended.
        """
        try:
            self.child.connection.send(row)
        except ConnectionError:
            raise self._ended(self.child.popen.wait()) from None

    def close(self) -> None:
        """Say that the run is over, and wait for the end of the process.

        Raises:
            RuntimeError: it failed.
        """
        self.send(None)
        code = self.child.popen.wait()
        if code != 0:
            raise self._ended(code)
        self._relay.join()

    def kill(self) -> None:
        """End the process at once; does not wait."""
        self.child.popen.kill()

    def _hear(self) -> None:
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                line = self.child.connection.recv()
                if line.startswith(FAILED):
                    self._reason = f" ({line.removeprefix(FAILED)})"
                else:
                    self._say(line)

    def _ended(self, code: int) -> RuntimeError:
        self._relay.join()
        return RuntimeError(f"its process ended with status {code}{self._reason}, see {self._log_file}")


class Inbox:
    """The process's side: the settings, the rows as they come, and a way to answer.

    Attributes:
        killed: whether the run ended without saying so; known once there are no more rows.
    """

    def __init__(self, connection: Connection) -> None:
        self.settings: dict[str, Any] = connection.recv()
        self.killed = True
        self._connection = connection
        self._limited = False  # whether this process is told when to end
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
        with contextlib.suppress(ConnectionError):  # a killed run hears nothing, and its rows are kept all the same
            self._connection.send(text)

    def _read(self) -> None:
        # A row that a kill cut off ends them too.
        with contextlib.suppress(EOFError, OSError):
            while (row := self._connection.recv()) is not None:
                self._put(row)
            self.killed = False
        self._limit()
        self._arrived.put(None)

    def _put(self, row: dict[str, float]) -> None:
        """Hand a row on; where there is no room for it, nor for the end behind it, look whether the run has ended."""
        while True:
            try:
                self._arrived.put(row, timeout=LOOK_S)
                return
            except queue.Full:
                end = select.poll()
                end.register(self._connection.fileno(), 0)
                if end.poll(0):
                    self._limit()

    def _limit(self) -> None:
        """Have this process killed whatever it waits for; by then the run has given it up, or is gone itself.

        Shortly before that, what its threads are at is printed, to mirror.log.
        """
        if not self._limited:
            self._limited = True
            faulthandler.dump_traceback_later(STACKS * self.settings["close_timeout_s"])
            signal.alarm(round(self.settings["close_timeout_s"]) + GRACE_S)


def serve(connection: Connection) -> None:
    """Let the module's `mirror` take what the run sends; the process ends with it."""
    inbox = Inbox(connection)
    sys.argv = inbox.settings["argv"]  # noted as the run's command
    code = 0
    try:
        # What libraries keep for their exit handlers to remove goes here, since those do not run.
        with (
            in_turn(Path(inbox.settings["log"]), inbox.say),
            open_temporary(SCRATCH) as folder,
        ):
            os.environ["TMPDIR"] = tempfile.tempdir = folder
            importlib.import_module(f".{inbox.settings['module']}", __package__).mirror(inbox)
    except Exception as error:
        traceback.print_exc()
        inbox.say(f"{FAILED}{in_a_line(error)}")
        code = 1
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    # The library's exit handlers only send telemetry, and wait for a server that does not answer.
    os._exit(code)


@contextlib.contextmanager
def in_turn(file: Path, say: Say) -> Iterator[None]:
    """Wait for the end of whoever has this turn by the same file: a killed run's process still writes what it was sent.

    Args:
        say: told that there is somebody to wait for.
    """
    with open(file, "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{file.parent.name}: waiting for the process of the session before")
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:  # of a file system without locks
            say(f"{file.parent.name}: {file} cannot be locked ({error.strerror}); a row may come twice after a kill")
        yield


def in_a_line(error: BaseException) -> str:
    """What an exception says first, or its name."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
