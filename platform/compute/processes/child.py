"""Child processes that run a pickled `Process`: their start on this machine, and their entry point."""

import contextlib
import multiprocessing.process
import os
import pickle
import signal
import sys
from collections.abc import Sequence
from multiprocessing import util
from multiprocessing.connection import wait

from paddock.envs.process import start_python

from . import hosting

MAIN = "from paddock.compute.processes.child import main; main({read}, {ended}, {interface!r})"


class Child:
    """Process that serves its objects at an IP address, and ends when this process ends.

    Attributes:
        pid: its process id.
        sentinel: file descriptor that becomes readable when it ends.
    """

    def __init__(self, data: bytes, descriptors: Sequence[int] = (), interface: str = "") -> None:
        """Start the process with its setup and a `Process`, both pickled, and with inherited file descriptors."""
        read, write = os.pipe()  # stays open as long as this process exists
        self.sentinel, ended = os.pipe()
        try:
            code = MAIN.format(read=read, ended=ended, interface=interface or hosting.interfaces[-1])
            self._process = start_python(code, pass_fds=sorted({read, ended, *descriptors}))
        finally:
            os.close(read)
            os.close(ended)
            util.Finalize(self, util.close_fds, (self.sentinel, write))  # type: ignore[attr-defined]
        self.pid = self._process.pid
        with contextlib.suppress(BrokenPipeError), open(write, "wb", closefd=False) as file:  # it may be killed
            file.write(data)

    def wait(self) -> int:
        """Wait for the exit code, which is -n after signal n."""
        wait([self.sentinel])
        return self._process.wait()

    def signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)


def main(read: int, ended: int, interface: str) -> None:
    """Run the process whose setup and pickle come from a pipe.

    Args:
        read: file descriptor of the pipe, which also shows whether the parent exists.
        ended: file descriptor that is closed by the end of this process.
        interface: IP address at which this process serves its objects.
    """
    for descriptor in (read, ended):
        os.set_inheritable(descriptor, False)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # workers ignore it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT, signal.SIGTERM])
    hosting.interfaces.append(interface)
    current = multiprocessing.process.current_process()
    with open(read, "rb", closefd=False) as file:
        current._inheriting = True  # type: ignore[attr-defined]  # as in multiprocessing.spawn
        try:
            setup = pickle.load(file)
            current.name, current.authkey, sys.argv = setup["name"], setup["authkey"], setup["argv"]
            sys.path += [entry for entry in setup["path"] if entry not in sys.path]
            with contextlib.suppress(OSError):  # the folder may not exist on this machine
                os.chdir(setup["folder"])
            process = pickle.load(file)
        finally:
            del current._inheriting  # type: ignore[attr-defined]
    sys.exit(process._bootstrap(parent_sentinel=read))
