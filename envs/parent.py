"""Processes that end with their parent, and leave signals of the whole group to it."""

import fcntl
import os
import select
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


def die_with_parent(life: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when a pipe closes, whose other end its parent alone holds.

    Unlike PR_SET_PDEATHSIG it outlasts the thread that started the process, and misses no parent that is gone already.

    Args:
        life: where the pipe is read; it may stay open over `os.execv`, and the arrangement then stays, too.
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
    """Do nothing at a signal that comes to a whole group: the parent, which has it too, says what follows.

    It is not ignored, as programs that this process starts would inherit that, and could not be ended by it.
    """
    handle_here(number, handle, signal.SIG_DFL)


def handle_here(number: int, handler: Any, in_forks: Any) -> tuple[Any, Any]:
    """Handle a signal in this process, and otherwise in those that it forks.

    Without it, an environment could not terminate the processes that it starts by `multiprocessing`.

    Args:
        number: the signal.
        handler: as of `signal.signal`.
        in_forks: the handler in forks; None for the same.

    Returns:
        Both handlers before.
    """
    before = _in_forks.pop(number, None)
    if in_forks is not None:
        _in_forks[number] = in_forks
    return signal.signal(number, handler), before


_in_forks: dict[int, Any] = {}  # the handlers of signals in forks, where they are others
_fork = threading.local()  # .mask: signals blocked in this thread before it forks


def _block_signals() -> None:
    _fork.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _in_forks)


def _unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _fork.mask)


def _handle_in_fork() -> None:
    for number, handler in _in_forks.items():
        signal.signal(number, handler)
    _unblock_signals()


# A signal that comes before a fork has its own handlers waits for them.
os.register_at_fork(before=_block_signals, after_in_parent=_unblock_signals, after_in_child=_handle_in_fork)
