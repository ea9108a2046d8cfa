"""Child processes: end with the parent, and leave signals of the process group to it."""

import fcntl
import os
import select
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


def die_with_parent(life: int, number: int = signal.SIGKILL) -> None:
    """Make the kernel signal this process when a pipe closes whose write end only the parent holds.

    Unlike PR_SET_PDEATHSIG this does not depend on the thread that started the process, and it detects a dead parent.

    Args:
        life: file descriptor of the read end; the setting survives `os.execv` if it stays open.
        number: the signal.
    """
    fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(life, fcntl.F_SETSIG, number)
    fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)
    poll = select.poll()
    poll.register(life, 0)
    if poll.poll(0):  # it closed before
        os._exit(1)


def _do_nothing(*_: object) -> None:
    pass


def leave_to_parent(number: int, handle: Callable[[int, FrameType | None], None] = _do_nothing) -> None:
    """Do nothing on a signal to the process group; the parent decides what follows.

    The signal is not ignored: child processes would inherit that and could not be ended by it.
    """
    handle_here(number, handle, signal.SIG_DFL)


def handle_here(number: int, handler: Any, in_forks: Any) -> tuple[Any, Any]:
    """Handle a signal differently in this process and in its forks; return both previous handlers.

    Environments can then terminate the processes that they start with `multiprocessing`. Handlers are those of
    `signal.signal`; None for `in_forks` uses the same handler.
    """
    before = _in_forks.pop(number, None)
    if in_forks is not None:
        _in_forks[number] = in_forks
    return signal.signal(number, handler), before


_in_forks: dict[int, Any] = {}  # handlers that differ in forks, by signal
_fork = threading.local()  # .mask: this thread's signal mask before it forks


def _block_signals() -> None:
    _fork.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _in_forks)


def _unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _fork.mask)


def _handle_in_fork() -> None:
    for number, handler in _in_forks.items():
        signal.signal(number, handler)
    _unblock_signals()


# Block the signals until a fork has set its own handlers.
os.register_at_fork(before=_block_signals, after_in_parent=_unblock_signals, after_in_child=_handle_in_fork)
