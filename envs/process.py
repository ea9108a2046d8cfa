"""Starts Python processes that end with this one, and says how a process ended.

Not by `multiprocessing`, which imports the main script in every process that it spawns.
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
# Not a preexec_fn, which may hang in a process with threads.
END = "from paddock.envs.parent import die_with_parent; die_with_parent({life}, {number})\n"
CALL = """import os
from multiprocessing.connection import Connection
from {module} import {name}
os.set_inheritable({channel}, False)
{name}(Connection({channel}))"""
AnyFile = TypeVar("AnyFile", bound=IO[Any])
# A terminal, a preempting scheduler and a service that is stopped tell every process; the parent sees to its own.
GROUP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
FIRST_S = 120.0  # that a process may take to begin to read its first message, where that is a large one
_lives: weakref.WeakKeyDictionary[subprocess.Popen[bytes], Any] = weakref.WeakKeyDictionary()
_own: weakref.WeakSet[Any] = weakref.WeakSet()  # open files


def start_python(
    code: str,
    *arguments: str,
    flags: Sequence[str] = ("-P",),
    ignored: Sequence[signal.Signals] = (),
    number: signal.Signals | None = signal.SIGKILL,
    pass_fds: Sequence[int] = (),
    **options: Any,
) -> subprocess.Popen[bytes]:
    """Start this Python on some code, with this process's `sys.path`.

    Args:
        code: what it runs, between `flags` and `arguments`.
        ignored: signals of the whole group that this process handles.
        number: the signal that the kernel sends to it, also after `os.execv`, when this process ends or drops what is
            returned; None: none.
        options: of `subprocess.Popen`.
    """
    # An editable install may have put a finder in its place, which an interpreter without `site` lacks.
    path = sys.path if str(ROOT) in sys.path else [*sys.path, str(ROOT)]
    boot = BOOT.format(ignored=[int(one) for one in ignored], path=path)
    read, life = multiprocessing.Pipe(duplex=False)
    with read, _blocked(ignored):  # which the process inherits, and ignores them before it lets them through
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
    """Have signals wait that come to this thread; those to the process find another one, or wait too."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def keep_from_forks(file: AnyFile) -> AnyFile:
    """Have forks of this process close a file, or what it is a lock of stays locked as long as one of them lives."""
    _own.add(file)
    return file


def _let_go() -> None:
    for file in (*_lives.values(), *_own):
        file.close()


os.register_at_fork(after_in_child=_let_go)  # a fork that outlives this process must not keep its children alive


class ChildProcess:
    """A Python process that serves this one over `connection`, on which messages are pickled."""

    def __init__(
        self,
        function: str,
        message: bytes,
        *,
        ignored: Sequence[signal.Signals] = GROUP_SIGNALS,
        pass_fds: Sequence[int] = (),
        **options: Any,
    ) -> None:
        """Start it on a function, as MODULE:NAME, which is called with its end of the connection.

        Args:
            message: the first one for it, pickled.
            options: of `start_python`.
        """
        self.connection, theirs = multiprocessing.Pipe()
        module, _, name = function.partition(":")
        with theirs:
            call = CALL.format(module=module, name=name, channel=theirs.fileno())
            self.popen = start_python(call, ignored=ignored, pass_fds=[*pass_fds, theirs.fileno()], **options)
        self.limit_waits(FIRST_S)
        # It is dead already or hangs, as whoever waits for it will find.
        with contextlib.suppress(ConnectionError, BlockingIOError):
            self.connection.send_bytes(message)
        self.limit_waits(0.0)

    def limit_waits(self, seconds: float) -> None:
        """Have a write or a read that waits for so long raise BlockingIOError; 0 for no limit."""
        timeval = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
        with socket.socket(fileno=os.dup(self.connection.fileno())) as end:
            end.settimeout(None)  # it has the default one, by which all reads and writes would end at once
            for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
                end.setsockopt(socket.SOL_SOCKET, option, timeval)

    def kill(self, after_s: float = 0.0) -> int:
        """End the process if it has not ended by itself in so many seconds; returns its exit code, as `Popen` does."""
        try:
            code = self.popen.wait(after_s)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            code = self.popen.wait()
        if (life := _lives.pop(self.popen, None)) is not None:
            life.close()  # or it stays open until what a closed owner leaves in circles is collected
        return code


def describe_exit(code: int) -> str:
    """Say how a process ended: by its exit code, or -n for signal n."""
    return f"exited with status {code}" if code >= 0 else f"was killed by {name_signal(-code)}"


def name_signal(number: int) -> str:
    """Return a signal's name; most of the real-time ones have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
