"""Processes that end with their parent, and leave signals of the whole group to it."""

import fcntl
import os
import select
import signal


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


def leave_to_parent(number: int) -> None:
    """Do nothing at a signal that comes to a whole group: the parent, which has it too, says what follows.

    It is not ignored, as programs that this process starts would inherit that, and could not be ended by it.
    """
    signal.signal(number, lambda number, frame: None)
    os.register_at_fork(after_in_child=lambda: signal.signal(number, signal.SIG_DFL))
