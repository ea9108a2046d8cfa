"""Child process that runs W&B's library.

It waits for services and the network, even in exit handlers, and only a process can be killed when it hangs.
The run sends settings, then each row, then None; an end without None means that the run was killed. The child sends
lines for the user. `MirrorProcess` is the parent's side, `serve` the child's.
"""

import contextlib
import fcntl
import importlib
import os
import pickle
import queue
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

from paddock.envs.process import ChildProcess

FAILED = "failed: "  # prefix of the line that says why the process ends early
GRACE_S = 2  # after close_timeout_s, in which the run can kill the child

Say = Callable[[str], None]


class MirrorProcess:
    """Parent's side of a mirror process, whose output goes to `mirror.log`.

    Args:
        folder: folder of the process; created if missing.
        settings: plain data, with `close_timeout_s`.
        environment: environment variables of the process.
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
        self._relay = threading.Thread(target=self._hear, name="mirror messages", daemon=True)
        self._relay.start()

    def send(self, row: Mapping[str, float] | None) -> None:
        """Send a row; raise RuntimeError if the process has ended."""
        try:
            self.child.connection.send(row)
        except ConnectionError:
            raise self._ended(self.child.popen.wait()) from None

    def close(self) -> None:
        """Send the end of the run, and wait for the process; raise RuntimeError if it failed."""
        self.send(None)
        code = self.child.popen.wait()
        if code != 0:
            raise self._ended(code)
        self._relay.join()

    def kill(self) -> None:
        """Kill the process without waiting."""
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
        return RuntimeError(f"its process exited with status {code}{self._reason}; see {self._log_file}")


class Inbox:
    """Child's side: settings, incoming rows, and messages to the user."""

    def __init__(self, connection: Connection) -> None:
        self.settings: dict[str, Any] = connection.recv()
        self.killed = True  # whether the run was killed; valid after the last row
        self._connection = connection
        self._arrived: queue.SimpleQueue[dict[str, float] | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="inbox", daemon=True).start()

    def rows(self) -> Iterator[dict[str, float]]:
        """Yield rows as they arrive, until the run ends."""
        while (row := self._arrived.get()) is not None:
            yield row

    def say(self, text: str) -> None:
        """Show the user a line."""
        with contextlib.suppress(ConnectionError):  # the run was killed
            self._connection.send(text)

    def _read(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while (row := self._connection.recv()) is not None:
                self._arrived.put(row)
            self.killed = False
        # End this process even if it hangs.
        signal.alarm(round(self.settings["close_timeout_s"]) + GRACE_S)
        self._arrived.put(None)


def serve(connection: Connection) -> None:
    """Run `mirror` of `wandb.py`, then exit the process."""
    inbox = Inbox(connection)
    sys.argv = inbox.settings["argv"]  # libraries record it as the run's command
    code = 0
    try:
        # Libraries remove their files in exit handlers, which do not run.
        with (
            wait_for_lock(Path(inbox.settings["log"]), inbox.say),
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        ):
            os.environ["TMPDIR"] = tempfile.tempdir = folder
            importlib.import_module(".wandb", __package__).mirror(inbox)
    except Exception as error:
        traceback.print_exc()
        inbox.say(f"{FAILED}{first_line(error)}")
        code = 1
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    # The library's exit handlers send telemetry, and wait for a server that does not answer.
    os._exit(code)


@contextlib.contextmanager
def wait_for_lock(file: Path, say: Say) -> Iterator[None]:
    """Wait for the mirror process of an earlier, killed session to release a lock on the file."""
    with open(file, "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{file.parent.name}: waiting for the process of the previous session")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message, or its name."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
