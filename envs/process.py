"""Start Python processes that end with this one, and describe how a process ended.

`multiprocessing` is not used because it imports the main script in every process that it spawns.
"""

import contextlib
import multiprocessing
import os
import signal
import socket
import struct
import subprocess
import sys
import weakref
from collections.abc import Iterator, Sequence
from typing import IO, Any, TypeVar

from paddock import ROOT

BOOT = """import signal, sys
for number in {ignored}:
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {ignored})
sys.path[:] = {path!r}
"""
# In the child's code: a preexec_fn may hang in a process with threads.
END = "from paddock.envs.parent import die_with_parent; die_with_parent({life}, {number})\n"
CALL = """import os
from multiprocessing.connection import Connection
from {module} import {name}
os.set_inheritable({channel}, False)
{name}(Connection({channel}))"""
AnyFile = TypeVar("AnyFile", bound=IO[Any])
# Terminals, schedulers and service managers signal every process of a group; the parent ends its children.
GROUP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
FIRST_S = 120.0  # time limit for a process to read its first message
_lives: weakref.WeakKeyDictionary[subprocess.Popen[bytes], Any] = weakref.WeakKeyDictionary()
_own: weakref.WeakSet[Any] = weakref.WeakSet()  # files that forks close


def start_python(
    code: str,
    *arguments: str,
    flags: Sequence[str] = ("-P",),
    ignored: Sequence[signal.Signals] = (),
    number: signal.Signals | None = signal.SIGKILL,
    pass_fds: Sequence[int] = (),
    **options: Any,
) -> subprocess.Popen[bytes]:
    """Run code in a new Python process with this process's `sys.path`.

    The process ignores the signals `ignored` of its group, and the kernel sends it the signal `number`, also after
    `os.execv`, when this process ends or releases the returned object. `options` are those of `subprocess.Popen`.
    """
    # Editable installs may use an import finder, which an interpreter without `site` lacks.
    path = sys.path if str(ROOT) in sys.path else [*sys.path, str(ROOT)]
    boot = BOOT.format(ignored=[int(one) for one in ignored], path=path)
    read, life = multiprocessing.Pipe(duplex=False)
    with read, _blocked(ignored):  # inherited by the process, which unblocks the signals once they are ignored
        end = "" if number is None else END.format(life=read.fileno(), number=int(number))
        process = subprocess.Popen(
            [sys.executable, *flags, "-c", boot + end + code, *arguments],
            stdin=subprocess.DEVNULL,
            pass_fds=[*pass_fds, read.fileno()],
            **options,
        )
    _lives[process] = life
    return process


@contextlib.contextmanager
def _blocked(numbers: Sequence[signal.Signals]) -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def keep_from_forks(file: AnyFile) -> AnyFile:
    """Register a file that forks of this process close; otherwise they would keep its lock."""
    _own.add(file)
    return file


def _close_in_fork() -> None:
    for file in (*_lives.values(), *_own):
        file.close()


os.register_at_fork(after_in_child=_close_in_fork)  # else a fork would keep this process's children alive


class ChildProcess:
    """Python process that serves this one over `connection` with pickled messages."""

    def __init__(
        self,
        function: str,
        message: bytes,
        *,
        ignored: Sequence[signal.Signals] = GROUP_SIGNALS,
        pass_fds: Sequence[int] = (),
        **options: Any,
    ) -> None:
        """Start a process that calls a function, MODULE:NAME, with its end of the connection.

        `message` is the first message, pickled; the other arguments are those of `start_python`.
        """
        self.connection, theirs = multiprocessing.Pipe()
        module, _, name = function.partition(":")
        with theirs:
            call = CALL.format(module=module, name=name, channel=theirs.fileno())
            self.popen = start_python(call, ignored=ignored, pass_fds=[*pass_fds, theirs.fileno()], **options)
        self.limit_waits(FIRST_S)
        # If it has died or hangs, the caller's wait will notice.
        with contextlib.suppress(ConnectionError, BlockingIOError):
            self.connection.send_bytes(message)
        self.limit_waits(0.0)

    def limit_waits(self, seconds: float) -> None:
        """Set the timeout after which reads and writes raise BlockingIOError; 0 for no limit."""
        timeval = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
        with socket.socket(fileno=os.dup(self.connection.fileno())) as end:
            end.settimeout(None)  # not the default timeout of new sockets
            for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
                end.setsockopt(socket.SOL_SOCKET, option, timeval)

    def kill(self, after_s: float = 0.0) -> int:
        """Kill the process if it does not exit within `after_s` seconds; return its exit code as `Popen` does."""
        try:
            code = self.popen.wait(after_s)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            code = self.popen.wait()
        if (life := _lives.pop(self.popen, None)) is not None:
            life.close()  # without waiting for the garbage collector
        return code


def describe_exit(code: int) -> str:
    """Describe an exit code of `Popen`, which is -n for signal n."""
    return f"exited with status {code}" if code >= 0 else f"was killed by {name_signal(-code)}"


def name_signal(number: int) -> str:
    """Return a signal's name; most real-time signals lack one."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
